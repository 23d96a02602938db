"""What runs inside the user's interpreter: standard library and torch only, nothing of ours from outside."""

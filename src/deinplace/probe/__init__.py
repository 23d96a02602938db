"""What runs inside the user's interpreter: standard library and torch only, and nothing of ours outside this package."""

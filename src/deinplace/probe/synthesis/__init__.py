"""Finds, inside the user's interpreter, how to build a module and call it: standard library and torch only."""

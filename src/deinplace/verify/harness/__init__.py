"""Drivers that nobody named: programs, tests, examples and construction sites of the project, and synthesised calls."""

"""Finds the in-place write that breaks a PyTorch backward pass, rewrites it, and proves the gradients right."""

__version__ = "0.1.0"

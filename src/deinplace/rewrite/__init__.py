"""Rewriting: edits for one statement at a time, and the checks made before anything is written."""

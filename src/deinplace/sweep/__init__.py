"""`sweep`: one command over many repositories, on this machine or on a Ray cluster, taken up again where it stopped."""

from __future__ import annotations

from deinplace.sweep.entries import Entry, read, shard
from deinplace.sweep.store import Store
from deinplace.sweep.task import Plan, Record, carry_out

__all__ = ["Entry", "Plan", "Record", "Store", "carry_out", "read", "shard"]

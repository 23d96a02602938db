"""A quick look at what a function may do: whether any of its writes can meet a save, or a tensor that torch guards.

The abstract machine costs a hundred times as much. What is dropped here cannot give it a fault to report: each value is
a set of the memory cells that it may lie in, branches and loops are joined, and what a call does is summed up once for
each function and kind of arguments. Where the look is too coarse to tell, the machine decides.
"""

from __future__ import annotations

from deinplace.analysis.scout.walk import Looker, suspicious

__all__ = ["Looker", "suspicious"]

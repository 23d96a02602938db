"""A fault that the analysis found, as a run would have reported it."""

from __future__ import annotations

from deinplace.analysis.records import Save, Write
from deinplace.analysis.report import Hit
from deinplace.model import Conflict, Event, ModuleInfo
from deinplace.rules.base import Incident


def incident_of(hit: Hit) -> Incident:
    """A fault as a run would have reported it, for the rules that answer to runs."""
    write, save = hit.write, hit.save
    conflict = Conflict(
        kind="hidden" if write.cut == "unseen" else "version",
        save=_save_event(save),
        writes=(_write_event(write),),
        node=save.op,
        backward=(),
    )
    return Incident(conflict=conflict)


def _save_event(save: Save) -> Event:
    role = "output" if save.role == "output" else "input"
    spans = (save.expression,) if save.expression is not None else ()
    return Event(save.op, save.stack, role="output" if role == "output" else "input", expressions=spans)


def _write_event(write: Write) -> Event:
    return Event(f"aten::{write.op}_", write.stack, module=module_of(write), names=write.names)


def module_of(write: Write) -> ModuleInfo | None:
    """The module that wrote, where one did: where it was built, and where its flag was set."""
    if write.form != "flag" or not write.module:
        return None
    return ModuleInfo(write.module.rpartition(".")[2], None, True, write.flagged[-1:], write.flagged[:-1])

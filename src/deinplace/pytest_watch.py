"""Watches the tests of a pytest run, explains those that fail in backward, and sums up at the end."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from deinplace.rules.base import Incident

_SECTION = "deinplace"
_NO_TORCH = "torch was never imported: there was nothing to watch"


class Watch:
    """Lives in every process of a run: in those that run tests it watches, in the one that reports it sums up."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.state: Any = None
        self.torch = False
        self.faults: dict[str, dict[str, Any]] = {}
        """By the line that tells of it: one fault, and the tests that met it."""
        if not _only_reports(config) and sys.modules.get("torch", config) is not None:
            from deinplace.probe.attach import after_import

            after_import("torch", self._attach)

    def _attach(self, torch: Any) -> None:
        from deinplace.probe import faithful

        self.torch = True
        self.state = faithful.attach(torch)

    # ---- where tests run

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Each test has an account of its own."""
        if self.state is not None:
            self.state.forget()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to the report what was seen; its outcome stays."""
        report = yield
        if self.state is not None and (report.failed or report.when == "call"):
            found = list(self._incidents(call if report.failed else None))
            self.state.forget()
            if found:
                self._explain(report, found)
        return report

    def _incidents(self, call: pytest.CallInfo[None] | None) -> Iterator[Incident]:
        """What explains a failure; of a test that passes, what PyTorch cannot see."""
        from deinplace.model import Raised
        from deinplace.probe import errors, faithful
        from deinplace.rules.base import Incident
        from deinplace.verify import account

        error = _of_the_family(call.excinfo.value if call is not None and call.excinfo is not None else None)
        category = errors.classify(str(error)) if error is not None else None
        conflicts = account.merged([account.conflict(c) for c in self.state.session.conflicts.plain()])
        shown = [c for c in conflicts if c.kind == "hidden" or category == "version"]
        yield from (Incident(conflict=c) for c in shown)
        if error is not None and category is not None and not any(c.kind == "version" for c in shown):
            stack = account.places([*faithful.stack_of(error.__traceback__)])
            yield Incident(raised=Raised(category, str(error), stack))

    def _explain(self, report: pytest.TestReport, found: list[Incident]) -> None:
        """Put the lines, and the rewrite on offer, into the report's own section."""
        from deinplace.model import Outcome
        from deinplace.report import concise, full
        from deinplace.rules.base import Project
        from deinplace.verify.diagnose import explained, sources_of

        roots = tuple({str(self.config.rootpath), str(self.config.invocation_params.dir)})
        project = Project(sources_of(tuple(found), roots))
        outcome = Outcome("run", tuple(explained(found, project)))
        view = _view(outcome, str(self.config.invocation_params.dir))
        if report.failed:
            report.sections.append((_SECTION, full.render(outcome, view).rstrip("\n")))
        faults = [{"line": concise.line(f, view), "failed": report.failed} for f in outcome.findings]
        report.deinplace = list({fault["line"]: fault for fault in faults}.values())  # type: ignore[attr-defined]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker tells the process that reports whether there was a torch."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["deinplace_torch"] = self.torch

    # ---- where is reported

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker of pytest-xdist has told."""
        self.torch = self.torch or bool(getattr(node, "workeroutput", {}).get("deinplace_torch"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect faults, from workers too."""
        for fault in getattr(report, "deinplace", ()):
            known = self.faults.setdefault(fault["line"], {"failed": [], "passed": []})
            tests = known["failed" if fault["failed"] else "passed"]
            if report.nodeid not in tests:
                tests.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Each fault on one line, then the tests that met it."""
        if not self.torch:
            terminalreporter.section(_SECTION)
            terminalreporter.line(_NO_TORCH)
        if not self.faults:
            return
        terminalreporter.section(_SECTION)
        for line, tests in self.faults.items():
            terminalreporter.line(line)
            for word, names in tests.items():
                if names:
                    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                    terminalreporter.line(f"    {word}: {', '.join(names[:3])}{more}")
        met = list(dict.fromkeys(name for tests in self.faults.values() for names in tests.values() for name in names))
        if self.config.getoption("--deinplace-fix"):
            from deinplace import pytest_fix

            for line in pytest_fix.mend(self.config, met):
                terminalreporter.line(line)
        else:
            terminalreporter.line("to mend and prove it with these tests: pytest --deinplace-fix")


def _only_reports(config: pytest.Config) -> bool:
    """True in the process that leaves the tests to the workers of pytest-xdist."""
    return not hasattr(config, "workerinput") and config.getoption("dist", "no") != "no"


def _of_the_family(error: BaseException | None) -> BaseException | None:
    """The error itself, or the one behind it, that PyTorch raises for a write in place."""
    from deinplace.probe.errors import classify

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, RuntimeError) and classify(str(error)) is not None:
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _view(outcome: Any, root: str) -> Any:
    """What the report may look at; the texts are those of the files that tests ran."""
    from deinplace.files import read_text
    from deinplace.report.view import View, places_of

    texts = {path: text for path in dict(places_of(outcome)) if (text := read_text(path)) is not None}
    return View(root, texts, quiet=True)

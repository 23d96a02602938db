"""What the two text reports say, and how it is laid out."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from deinplace.model import Conflict, Finding, Outcome, Place, Span, Verdict
from deinplace.report import diff, render, words
from deinplace.report.frame import frame, note
from deinplace.report.view import View


def test_full_shows_both_ends_with_carets_under_the_exact_spans(outcome: Outcome, view: View) -> None:
    text = render("full", outcome, view)
    assert (
        "unet.py:5:5: DIP102 [fixed] backward needs the output of relu (unet.py:4), "
        "but unet.py:5 `y += residual` overwrote it\n" in text
    )
    lines = text.splitlines()
    for source, carets in (("4 |     é = F.relu(x); y = é", "^" * 9), ("5 |     y += residual", "^" * 13)):
        at = lines.index(source)
        column = source.index("F.relu(x)" if "relu" in source else "y +=")
        assert lines[at + 1][column:].startswith(carets + " ") or lines[at + 1][column:] == carets
        assert lines[at + 1][:column].strip(" |") == ""
    assert "saved here for ReluBackward0: float32 (2, 8)" in text
    assert "backward at train.py:2 runs later" in text
    assert "seen 4 times" in text


def test_full_ends_with_diff_problems_summary_and_verdict(outcome: Outcome, view: View) -> None:
    text = render("full", outcome, view)
    assert "-    y += residual\n+    y = y + residual\n" in text
    assert "old.py:3: is Python 2\n" in text
    assert text.endswith(
        "Found 3 in-place faults (1 fixed: 1 confirmed; 1 rolled back; 1 advised)\n"
        "1 rewrite, confirmed on cpu (gradients of 38 parameters, 2 steps, max |error| 0), oracle: copy-on-write\n"
    )


def test_full_tells_what_to_do_and_why_where_nothing_was_done(outcome: Outcome, view: View) -> None:
    text = render("full", outcome, view)
    assert "= help: clone x first" in text
    assert "= reason: not-editable" in text
    assert "refuted: gradient of w differs in forward" in " ".join(text.split())
    assert "ReLU body.1, inplace=True was made at train.py:1 `net(x)`" in " ".join(text.split())
    assert "float64 (3,) on cuda:0" in text
    assert "a leaf Variable that requires grad" in text


def test_a_hidden_write_is_told_apart(outcome: Outcome, view: View) -> None:
    sentence = words.message(outcome.findings[1], view)
    assert sentence == (
        "backward uses an input of mul (unet.py:4) after unet.py:5 `y += residual` (ReLU body.1, inplace=True) "
        "overwrote it unseen: no error, but wrong gradients"
    )


def test_a_diagnosed_run_starts_at_the_line_that_raises(outcome: Outcome, view: View) -> None:
    first = render("full", replace(outcome, command="run"), view).splitlines()[0]
    assert first.startswith("train.py:2: DIP102")
    assert "unet.py:4" in first
    assert "unet.py:5" in first


def test_disjoint_elements_are_explained(outcome: Outcome, view: View) -> None:
    conflict = outcome.findings[0].conflict
    assert isinstance(conflict, Conflict)
    finding = replace(outcome.findings[0], conflict=replace(conflict, disjoint=True))
    text = render("full", replace(outcome, findings=(finding,)), view)
    assert "shares its version counter" in text
    assert "no element that was saved was written" in text


def test_concise_is_one_line_a_finding(outcome: Outcome, view: View) -> None:
    dry = replace(outcome.findings[0], state="fixable")
    text = render("concise", replace(outcome, findings=(dry, *outcome.findings[1:])), view)
    assert re.match(r"unet\.py:5:5: DIP102 \[\*\] backward needs the output of relu \(unet\.py:4\)", text)
    assert len(text.splitlines()) == 3 + 1 + 1 + 2


@pytest.mark.parametrize("kind", ["full", "concise"])
def test_colour_changes_nothing_but_colour(outcome: Outcome, view: View, kind: str) -> None:
    colored = render(kind, outcome, replace(view, color=True))
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == render(kind, outcome, view)
    assert "\x1b" not in render(kind, outcome, view)


def test_quiet_keeps_findings_and_problems_only(outcome: Outcome, view: View) -> None:
    for kind in ("full", "concise"):
        text = render(kind, outcome, replace(view, quiet=True))
        assert "DIP102" in text
        assert "old.py" in text
        assert "Found" not in text
        assert "eagerly" not in text


def test_an_unproved_rewrite_is_shown_as_lines(outcome: Outcome, view: View) -> None:
    finding = replace(outcome.findings[0], state="unsafe", verdict=Verdict("unconfirmed", "its lines never ran"))
    text = render("full", replace(outcome, findings=(finding,), changes=()), view)
    assert "    -    y += residual\n    +    y = y + residual\n" in text
    assert "unconfirmed: its lines never ran" in text
    assert "Found 1 in-place fault (1 unsafe: --unsafe)" in text


def test_suppressed_findings_are_shown_on_demand_only(outcome: Outcome, view: View) -> None:
    hidden = replace(outcome, findings=(replace(outcome.findings[0], state="suppressed"),), changes=())
    assert "DIP102" not in render("full", hidden, view)
    assert "Found no in-place faults" in render("full", hidden, view)
    assert "DIP102" in render("full", hidden, replace(view, verbose=True))


@pytest.mark.parametrize(
    "text", ["\tx = " + "a" * 200 + "; y += 1", "y += 1; " + "b" * 300, "名前 = '" + "漢字" * 60 + "'; y += 1"]
)
def test_long_lines_are_cut_to_the_width_around_the_carets(text: str) -> None:
    start = len(text[: text.index("y += 1")].encode())
    place = Place("a.py", Span(1, start, 1, start + 6))
    lines = frame(place, "overwritten here", View("/", {"a.py": text}))
    assert all(len(line) <= 80 for line in lines)
    shown, carets = lines[2], lines[3]
    assert "y += 1" in shown
    wide = sum(ord(c) > 0x2E80 for c in shown[: shown.index("y += 1")])
    assert carets.index("^") == shown.index("y += 1") + wide
    assert carets.count("^") == 6


def test_a_place_without_text_is_named_all_the_same(outcome: Outcome, root: Path) -> None:
    text = render("full", outcome, View(str(root)))
    assert "--> unet.py:4:10" in text
    assert "backward needs the output of relu (unet.py:4), but unet.py:5 overwrote it" in text


def test_paths_outside_the_working_folder_stay_absolute(view: View) -> None:
    assert view.path("/elsewhere/a.py") == "/elsewhere/a.py"
    assert view.path("<string>") == "<string>"


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("ReluBackward0", "relu"),
        ("aten::add_.Tensor", "add_"),
        ("NativeBatchNormBackward0", "native_batch_norm"),
        ("MyFunctionBackward", "MyFunction"),
        ("torch::autograd::AccumulateGrad", "autograd::AccumulateGrad"),
    ],
)
def test_operations_are_named_as_users_know_them(op: str, name: str) -> None:
    assert words.operation(op) == name


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_diff_is_one_that_git_applies(outcome: Outcome, root: Path, view: View, end: str) -> None:
    (change,) = outcome.changes
    before, after = (text.replace("\n", end)[: -len(end)] for text in (change.before, change.after))
    path = root / "unet.py"
    path.write_bytes(before.encode())
    patch = diff.unified(replace(change, before=before, after=after), view)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=root, check=True)
    assert path.read_bytes() == after.encode()


def test_a_clean_outcome_says_so(view: View) -> None:
    assert render("full", Outcome("check", files=3), view) == "Found no in-place faults in 3 files\n"


def test_a_static_finding_gets_a_frame(root: Path, view: View) -> None:
    finding = Finding("DIP102", "augmented", str(root / "unet.py"), Span(5, 4, 5, 17), "may overwrite", "fixable")
    text = render("full", Outcome("check", (finding,)), view)
    assert text.startswith("unet.py:5:5: DIP102 [*] may overwrite\n --> unet.py:5:5\n")
    assert "5 |     y += residual\n  |     ^^^^^^^^^^^^^\n" in text


def test_a_terminal_gets_its_sentences_wrapped(outcome: Outcome, view: View) -> None:
    there = replace(view, terminal=True)
    piped, shown = render("full", outcome, view), render("full", outcome, there)
    assert " ".join(piped.split()) == " ".join(shown.split())
    assert max(map(len, piped.splitlines())) > view.width
    assert max(len(line) for line in shown.splitlines()) <= view.width
    painted = render("full", outcome, replace(there, color=True))
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == shown


def test_a_command_to_type_is_not_broken(view: View) -> None:
    text = f"to mend and prove it: deinplace fix . --run 'python train.py --{'option ' * 9}'"
    assert note("note", text, view, indent=0)[-1].strip() == text.partition(": ")[2]
    spread = note("help", f"{'word ' * 13}`x = x.clone()` and more", view)
    assert any("`x = x.clone()`" in line for line in spread)

"""Comments that silence findings."""

from __future__ import annotations

import pytest

from deinplace.analysis.check import check
from tests.analysis.programs import function, parse


def findings(line: str, before: str = "", after: str = "") -> list[tuple[str, str]]:
    body = f"y = torch.relu(nn.Linear(2, 2)(x))\n{before}{line}\n{after}return y"
    return [(f.rule, f.state) for f in check(parse(function(body)))]


@pytest.mark.parametrize(
    "line",
    [
        "y += 1  # deinplace: ignore[DIP102] measured, harmless",
        "y += 1  # deinplace: ignore[augmented-assignment]",
        "y += 1  # noqa: DIP102",
        "y += 1  # noqa: E501, DIP102",
    ],
)
def test_silences_its_line(line: str) -> None:
    assert findings(line) == [("DIP102", "suppressed")]


def test_a_comment_of_its_own_counts_for_the_next_line() -> None:
    assert findings("y += 1", before="# deinplace: ignore[DIP102]\n") == [("DIP102", "suppressed")]


def test_off_and_on() -> None:
    assert findings("y += 1", before="# deinplace: off\n", after="# deinplace: on\n") == [("DIP102", "suppressed")]


def test_whole_file() -> None:
    assert findings("y += 1", after="# deinplace: file-ignore[DIP102]\n") == [("DIP102", "suppressed")]


def test_blanket_forms_are_refused() -> None:
    assert sorted(findings("y += 1  # deinplace: ignore")) == [("DIP102", "advised"), ("DIP900", "advised")]
    assert findings("y += 1  # noqa") == [("DIP102", "advised")]


def test_unused_ones_are_reported() -> None:
    assert sorted(findings("y = y + 1  # deinplace: ignore[DIP102]")) == [("DIP901", "advised")]


def test_text_that_only_looks_like_a_comment() -> None:
    assert findings("y += 1; s = '# deinplace: ignore[DIP102]'") == [("DIP102", "advised")]

"""Terms: reads look through writes to other parts, and the two sides of a condition stay apart."""

from __future__ import annotations

import pytest

from deinplace.analysis.terms import Terms
from deinplace.analysis.values import Ten, union


def const(terms: Terms, value: int | None) -> int:
    return terms.make("const", type(value).__name__, repr(value))


def test_a_part_reads_what_was_put_there() -> None:
    terms = Terms()
    base, value, path = terms.make("x"), terms.make("v"), (("index", const(terms, 0)),)
    assert terms.get(terms.put(base, path, value), path) == value


@pytest.mark.parametrize(("first", "second", "apart"), [(0, 1, True), (0, 0, False), (0, -1, False)])
def test_constant_indices(first: int, second: int, apart: bool) -> None:
    terms = Terms()
    a, b = (("index", const(terms, first)),), (("index", const(terms, second)),)
    assert terms.disjoint(a, b) is apart


def test_complementary_slices_do_not_overlap() -> None:
    terms = Terms()
    none, middle = const(terms, None), terms.make("n")
    low = (("index", terms.make("slice", none, middle, none)),)
    high = (("index", terms.make("slice", middle, none, none)),)
    other = (("index", terms.make("slice", terms.make("m"), none, none)),)
    assert terms.disjoint(low, high)
    assert not terms.disjoint(low, other)
    base = terms.make("x")
    assert terms.get(terms.put(base, high, terms.make("v")), low) == terms.get(base, low)


def test_choice_between_equal_values_is_no_choice() -> None:
    terms = Terms()
    x, y, c = terms.make("x"), terms.make("y"), terms.make("c")
    assert terms.choose(c, x, x) == x
    assert terms.choose(c, terms.choose(c, x, y), terms.choose(c, y, x)) == x


def test_of_conditions_that_are_not_known_none_is_the_other() -> None:
    terms = Terms()
    x, y, z = (terms.make(name) for name in "xyz")
    assert terms.choose(0, terms.choose(0, x, y), z) != terms.choose(0, x, z)
    assert terms.choose(0, x, x) == x


def test_one_of_three_tensors_may_be_any_of_them() -> None:
    one = union((Ten((1,)), Ten((2,)), Ten((3,))), condition=7)
    assert isinstance(one, Ten) and one.choice is not None
    outer, first, last = one.choice
    assert isinstance(first, Ten) and first.choice is not None
    assert (first.choice, last) == ((7, Ten((1,)), Ten((2,))), Ten((3,)))
    assert outer != 7, "where the first two are told apart, all else is not"

"""New names below one parent: the first are new, the rest is a number."""

from __future__ import annotations

import pytest

from egress.floods import EVERYTHING, Floods, Sort, parent_of


def sorts(floods: Floods, *names: str) -> list[Sort]:
    return [floods.sort(name, parent_of(name)) for name in names]


def test_a_name_is_new_once() -> None:
    assert sorts(Floods(9, 9, 9), "a.evil.test", "a.evil.test") == [Sort.NEW, Sort.KNOWN]


def test_beyond_its_measure_a_parent_has_excess_and_others_do_not() -> None:
    floods = Floods(2, 9, 9)
    found = sorts(floods, "1.evil.test", "2.x.evil.test", "3.evil.test", "1.evil.test", "1.good.test", "3.evil.test")
    assert found == [Sort.NEW, Sort.NEW, Sort.EXCESS, Sort.KNOWN, Sort.NEW, Sort.EXCESS]
    assert floods.turn() == {"evil.test": 2}


def test_a_new_interval_begins_with_nothing_but_what_is_known() -> None:
    floods = Floods(1, 9, 9)
    sorts(floods, "1.evil.test", "2.evil.test")
    floods.turn()
    assert floods.turn() == {}
    assert sorts(floods, "1.evil.test", "2.evil.test", "3.evil.test") == [Sort.KNOWN, Sort.NEW, Sort.EXCESS]


def test_parents_beyond_their_measure_share_one_place() -> None:
    floods = Floods(1, 2, 9)
    found = sorts(floods, "a.one.test", "a.two.test", "a.three.test", "a.four.test", "b.one.test")
    assert found == [Sort.NEW, Sort.NEW, Sort.NEW, Sort.EXCESS, Sort.EXCESS]
    assert floods.turn() == {EVERYTHING: 1, "one.test": 1}


def test_what_is_remembered_is_bounded() -> None:
    floods = Floods(9, 9, 2)
    assert sorts(floods, "1.a.test", "2.a.test", "3.a.test", "3.a.test", "1.a.test") == [
        Sort.NEW, Sort.NEW, Sort.NEW, Sort.KNOWN, Sort.NEW,
    ]  # fmt: skip


def test_what_is_forgotten_is_new_again() -> None:
    floods = Floods(9, 9, 9)
    sorts(floods, "a.test")
    floods.forget()
    assert sorts(floods, "a.test") == [Sort.NEW]


@pytest.mark.parametrize(
    ("name", "parent"),
    [("a.b.evil.test", "evil.test"), ("evil.test", "evil.test"), ("intranet", "intranet"), ("", "")],
)
def test_a_parent_is_the_last_two_labels(name: str, parent: str) -> None:
    assert parent_of(name) == parent

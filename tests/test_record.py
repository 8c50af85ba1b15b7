"""`egress.record.NamedTuple` is typing's, wherever we use it: both are asked the same."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

from egress import record


class Cheap(record.NamedTuple):
    """A word on it."""

    host: str
    port: int = 443
    names: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.shown


class Dear(typing.NamedTuple):
    """A word on it."""

    host: str
    port: int = 443
    names: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.shown


BOTH = pytest.mark.parametrize("kind", [Cheap, Dear])


@BOTH
@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("a",), {}),
        (("a", 1), {}),
        (("a", 1, ("b",)), {}),
        (("a",), {"names": ("b",)}),
        ((), {"names": ("b",), "host": "a"}),
    ],
)
def test_values_are_given_in_order_by_name_or_by_default(kind: type, values: tuple, named: dict) -> None:
    made = kind(*values, **named)
    expected = {"host": "a", "port": 443, "names": ()} | dict(zip(kind._fields, values, strict=False)) | named
    assert made == tuple(expected.values())
    assert (made.host, made.port, made.names) == made
    assert made._asdict() == expected


@BOTH
@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((), {"port": 1}), (("a", 1, (), 2), {}), (("a",), {"host": "b"}), (("a",), {"color": "red"})],
)
def test_too_few_too_many_twice_and_unknown_are_errors(kind: type, values: tuple, named: dict) -> None:
    with pytest.raises(TypeError):
        kind(*values, **named)


def test_a_mistake_is_told_without_the_values_which_may_be_secret() -> None:
    with pytest.raises(
        TypeError, match=r"^Cheap was given 1 values and \['color'\], expected \('host', 'port', 'names'\)$"
    ):
        Cheap("hidden", color="red")


@BOTH
def test_a_value_is_frozen_small_and_a_tuple(kind: type) -> None:
    made = kind("a")
    assert isinstance(made, tuple)
    assert not hasattr(made, "__dict__")
    with pytest.raises(AttributeError):
        made.host = "b"
    with pytest.raises(AttributeError):
        made.color = "red"


@BOTH
def test_methods_and_properties_are_those_of_the_class(kind: type) -> None:
    assert kind("a").shown == str(kind("a")) == "a:443"
    assert kind.__doc__ == "A word on it."
    assert repr(kind("a")) == f"{kind.__name__}(host='a', port=443, names=())"


@BOTH
def test_replacing_keeps_the_rest(kind: type) -> None:
    made = kind("a", 1)._replace(host="b")
    assert made == kind("b", 1)
    assert type(made) is kind
    with pytest.raises((TypeError, ValueError), match="color"):
        made._replace(color="red")


@BOTH
def test_it_survives_copy_pickle_and_match(kind: type) -> None:
    made = kind("a", 1, ("b",))
    assert [type(same) for same in (copy.copy(made), pickle.loads(pickle.dumps(made)))] == [kind, kind]
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == made
    match made:
        case kind(host, port):
            assert (host, port) == ("a", 1)


def test_typing_is_not_needed_for_it() -> None:
    assert record.TYPE_CHECKING is False

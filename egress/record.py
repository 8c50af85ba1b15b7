"""Named tuples that cost nothing to define.

`typing.NamedTuple` compiles a function for every class, and an expression for every annotation in it: 130 µs
for what takes 10 here, and there are fifty such classes on the way to a command. To a reader, to the type
checker and to whoever holds a value, this is NamedTuple; only a value is a little slower to make.
"""

from __future__ import annotations

from operator import itemgetter

__all__ = ["TYPE_CHECKING", "NamedTuple"]

TYPE_CHECKING = False  # known to type checkers by its name; `typing` itself takes 2 ms to load
if TYPE_CHECKING:
    from typing import Any, NamedTuple, Self
else:

    class _Kind(type):
        """Makes the annotated names of a class its fields."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body.pop(field) for field in fields if field in body}
            getters = {field: property(itemgetter(place)) for place, field in enumerate(fields)}
            known = {"__slots__": (), "_fields": fields, "__match_args__": fields, "_field_defaults": defaults}
            return super().__new__(cls, name, bases, {**body, **known, **getters})

    class NamedTuple(tuple, metaclass=_Kind):
        __slots__ = ()

        def __new__(cls, *values: Any, **named: Any) -> Self:
            if named or len(values) != len(cls._fields):
                values = _complete(cls, values, named)
            return tuple.__new__(cls, values)

        def __repr__(self) -> str:
            pairs = zip(self._fields, self, strict=True)
            return f"{type(self).__name__}({', '.join(f'{field}={value!r}' for field, value in pairs)})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **named: Any) -> Self:
            values = tuple(map(named.pop, self._fields, self))
            if named:
                raise TypeError(f"{type(self).__name__} has no {sorted(named)!r}, expected some of {self._fields!r}")
            return tuple.__new__(type(self), values)

    def _complete(kind: type[NamedTuple], values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All values, in the order of the fields."""
        known = {**kind._field_defaults, **named}
        rest = kind._fields[len(values) :]
        if len(values) > len(kind._fields) or not known.keys() >= {*rest} or not named.keys() <= {*rest}:
            given = f"{len(values)} values and {sorted(named)!r}"
            raise TypeError(f"{kind.__name__} was given {given}, expected {kind._fields!r}")
        return (*values, *map(known.__getitem__, rest))

"""A row: a tuple that knows the names of its columns, whatever they are."""

from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from keyword import iskeyword
from typing import Any, ClassVar

from megaphone.dataflow.misfit import Misfit, shown

_value = tuple.__getitem__


class Row(tuple[Any, ...]):
    """One record: `row["a b"]` is the value of the column `a b`, `row.word` that of `word`, `row[0]` the first.

    It equals, sorts and hashes like the tuple of its values. A column hides a method of the same name. Names such as
    `__len__`, which Python itself looks up, are no attributes: `row["__len__"]` is the column.
    """

    __slots__ = ()
    __fields__: ClassVar[tuple[str, ...]] = ()
    __places__: ClassVar[dict[str, int]] = {}

    def __new__(cls, /, *values: Any) -> "Row":
        """A row of these values, in the order of the columns."""
        return make_row(cls.__fields__, values)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> "Row":
        """A row of these values, in the order of the columns."""
        return make_row(cls.__fields__, values)

    def _asdict(self) -> dict[str, Any]:
        """The values by name."""
        return dict(zip(self.__fields__, self, strict=True))

    def _replace(self, /, **values: Any) -> "Row":
        """The row with some values exchanged."""
        unknown = [name for name in values if name not in self.__places__]
        if unknown:
            raise ValueError(_no_column(unknown[0], self.__fields__))
        return make_row(self.__fields__, [values.get(*pair) for pair in zip(self.__fields__, self, strict=True)])

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, str):
            return _value(self, at)
        try:
            return _value(self, self.__places__[at])
        except KeyError:
            raise KeyError(_no_column(at, self.__fields__)) from None

    def __repr__(self) -> str:
        columns = zip(self.__fields__, self, strict=True)
        return f"Row({', '.join(f'{_label(name)}={value!r}' for name, value in columns)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_row, (self.__fields__, tuple(self))


@lru_cache(maxsize=256)
def row_type(fields: tuple[str, ...]) -> type[Row]:
    """The class of rows with these columns.

    >>> row = make_row(("a b", "count"), (1, 2))
    >>> row, row["a b"], row.count, row == (1, 2)
    (Row('a b'=1, count=2), 1, 2, True)
    """
    # A named tuple reads its attributes faster than a property of Python's own would.
    places = namedtuple("Places", [f"at{place}" for place in range(len(fields))])  # type: ignore[misc]
    columns = {name: getattr(places, f"at{place}") for place, name in enumerate(fields) if not _is_special(name)}
    own = {
        "__slots__": (),
        "__fields__": fields,
        "__places__": {name: place for place, name in enumerate(fields)},
        "__match_args__": fields if len(columns) == len(fields) else (),
        "__module__": __name__,
    }
    return type("Row", (Row,), {"_fields": fields, **columns, **own})


def make_rows(fields: tuple[str, ...], values: Iterable[Iterable[Any]]) -> list[Row]:
    """Rows of so many values each: their number is not looked at."""
    return list(map(partial(tuple.__new__, row_type(fields)), values))


def make_row(fields: tuple[str, ...], values: Iterable[Any]) -> Row:
    """One row, by the names of its columns and its values."""
    row = tuple.__new__(row_type(fields), values)
    if len(row) != len(fields):
        raise TypeError(f"{len(row)} values for a row of {len(fields)} columns: {', '.join(fields)}")
    return row


def in_order(row: Any, fields: tuple[str, ...]) -> Sequence[Any]:
    """The values of a tuple, list or dict in the order of some columns.

    What has names of its own, as Rows and named tuples, is taken by name as a dict is; it has to have the same names.

    >>> in_order((1, 2), ("a", "b")), in_order({"b": 2, "a": 1}, ("a", "b"))
    ((1, 2), [1, 2])
    """
    names = tuple(row) if isinstance(row, dict) else names_of(row) if type(row) is not tuple else None
    if names is not None and names != fields:
        if len(names) != len(fields) or set(names) != set(fields):
            raise Misfit(_other_names(row, names, fields))
        by_name = row if isinstance(row, dict) else dict(zip(names, row, strict=True))
        return [by_name[name] for name in fields]
    if len(row) != len(fields):
        raise Misfit(f"{shown(row)} has {len(row)} values for {len(fields)} columns: {', '.join(fields)}")
    return tuple(row.values()) if isinstance(row, dict) else tuple(row)


def _other_names(row: Any, names: tuple[Any, ...], fields: tuple[str, ...]) -> str:
    missing = [name for name in fields if name not in names]
    extra = [name for place, name in enumerate(names) if name not in fields or name in names[:place]]
    parts = [f"{what} {', '.join(map(shown, found))}" for what, found in (("no", missing), ("a", extra)) if found]
    remedy = "name each column" if isinstance(row, dict) else "name each column, or go by position: tuple(row)"
    return f"{shown(row)} has {' and '.join(parts)} for the columns {', '.join(fields)}; {remedy}"


def names_of(value: Any) -> tuple[str, ...] | None:
    """The names in a tuple, if it has any: in a row of ours or of Spark's, or in a named tuple."""
    names = getattr(value, "__fields__", None) or getattr(value, "_fields", None)
    return tuple(names) if isinstance(names, (tuple, list)) else None


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _label(name: str) -> str:
    return name if name.isidentifier() and not iskeyword(name) else repr(name)


def _no_column(name: str, fields: tuple[str, ...]) -> str:
    return f"no column {name!r}; the row has {', '.join(fields)}"

"""The builder of columns from rows: each row as it is at the moment it is given out.

Tuples, lists, Rows and dicts are rows. A tuple of numbers and strings cannot change, so it is kept as it is; only what
can change is copied at once, as its column has it.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import pyarrow as pa

from megaphone.dataflow.kinds import NONE, TEXTS, kind_of
from megaphone.dataflow.misfit import Misfit, shown
from megaphone.dataflow.row import in_order, names_of
from megaphone.dataflow.values import to_array_as_taken

ROWS = (tuple, list, dict)


class Never:
    """A type that no row has."""


class RowBuilder:
    """Rows on their way to be a batch.

    >>> builder, tags = RowBuilder(pa.schema([("word", pa.string()), ("tags", pa.list_(pa.string()))])), ["a"]
    >>> builder.extend([("x", tags), {"tags": tags, "word": "y"}]); tags.append("b"); builder.finish().to_pylist()
    [{'word': 'x', 'tags': ['a']}, {'word': 'y', 'tags': ['a']}]
    """

    __slots__ = ("_changing", "_kinds", "_rows", "_schema", "append", "fields", "usual")

    def __init__(self, schema: pa.Schema) -> None:
        """Begin without rows."""
        self._schema = schema
        self.fields = tuple(schema.names)
        self._kinds = [kind_of(field.type) for field in schema]
        self._changing = [(place, kind) for place, kind in enumerate(self._kinds) if not kind.lasts]
        self.usual: type = Never if self._changing else self._usual()
        """Rows of this type are appended as they are."""
        self._rows: list[Any] = []
        """Tuples; of a schema with one column its values."""
        self.append = self._rows.append

    def _usual(self) -> type:
        if len(self.fields) > 1:
            return tuple
        # Of decimals and floats, which integers are as well, the type that the column was made for.
        return min(self._kinds[0].exact - {NONE}, key=lambda kind: kind is int, default=Never)

    def fresh(self) -> "RowBuilder":
        """Another one, without rows."""
        other = copy(self)
        other._rows = []
        other.append = other._rows.append
        return other

    def __len__(self) -> int:
        return len(self._rows)

    def extend(self, rows: Iterable[Any]) -> None:
        """Take rows, one by one as they come out of a generator."""
        append, usual, take = self.append, self.usual, self.take
        for row in rows:
            append(row if type(row) is usual else take(row))

    def add(self, row: Any) -> None:
        """Take one row, and look at once how many values it has."""
        if type(row) is tuple:
            in_order(row, self.fields)
        self.extend((row,))

    def take(self, row: Any) -> Any:
        """What is to be appended for a row of any type."""
        return self._take_one(row) if len(self.fields) == 1 else self._take_row(row)

    def _take_row(self, row: Any) -> tuple[Any, ...]:
        if not isinstance(row, ROWS):
            raise Misfit.of(
                row, f"row of {self._columns}", "give a list of rows, which are tuples, lists, Rows or dicts"
            )
        values = [*in_order(row, self.fields)]
        try:
            for place, kind in self._changing:
                values[place] = kind.one(values[place])
        except Misfit as error:
            raise self._at(place, row, error) from error
        return tuple(values)

    def _take_one(self, row: Any) -> Any:
        """What could be a row is one; only what cannot be is a bare value."""
        value = row
        if isinstance(row, ROWS):
            try:
                (value,) = in_order(row, self.fields)
            except Misfit as error:
                raise Misfit(f"{error}; a value that is a {type(row).__name__} goes into a tuple: (value,)") from error
        try:
            return self._kinds[0].one(value)
        except Misfit as error:
            raise self._at(0, row, error) from error

    def finish(self) -> pa.RecordBatch:
        """All rows as a batch of exactly this schema."""
        arrays = [self._array(place, values) for place, values in enumerate(self._values())]
        return pa.record_batch(arrays, schema=self._schema)

    def unchanged(self) -> list[tuple[Any, ...]] | None:
        """All rows, if Arrow would give back each value just as it is now; None if that is not known."""
        columns = self._values()
        for kind, values in zip(self._kinds, columns, strict=True):
            if any(value is not None and (kind.returns is None or not kind.returns(value)) for value in values):
                return None
        return list(zip(*columns, strict=True))

    def _values(self) -> list[Sequence[Any]]:
        """The values of each column."""
        rows, width = self._rows, len(self.fields)
        if width == 1:
            return [rows]
        if set(map(len, rows)) - {width}:
            for row in rows:
                in_order(row, self.fields)
        return [[row[place] for row in rows] for place in range(width)]

    def _array(self, place: int, values: Sequence[Any]) -> pa.Array:
        kind, type = self._kinds[place], self._schema.field(place).type
        try:
            taken = not kind.lasts or (len(self.fields) == 1 and kind.fits is None)
            return to_array_as_taken(values if taken else kind.all(values), type)
        except Misfit as error:
            raise self._at(place, self._blamed(place, values), error) from error

    def _blamed(self, place: int, values: Sequence[Any]) -> Any:
        """The first row whose value does not fit."""
        kind, type = self._kinds[place], self._schema.field(place).type
        for row, value in zip(self._rows, values, strict=True):
            try:
                to_array_as_taken([kind.one(value)], type)
            except Misfit:
                return row
        return ()

    def _at(self, place: int, row: Any, error: Misfit) -> Misfit:
        return Misfit(f"column {self.fields[place]} of the row {shown(row)}: {error}")

    @property
    def _columns(self) -> str:
        return ", ".join(f"{field.name} {field.type}" for field in self._schema)


def rows_in(given: Any) -> Iterable[Any]:
    """What a fold gave out, if that is rows one after another; None is none."""
    if given is None or type(given) in (tuple, list):
        return given or ()
    single = isinstance(given, (*TEXTS, Mapping)) or hasattr(given, "__dataframe__")
    if single or not hasattr(given, "__iter__") or (isinstance(given, tuple) and names_of(given)):
        raise Misfit.of(given, "list of rows", "give a list, or yield row after row")
    rows: Iterable[Any] = given
    return rows


def state_and_rows(result: Any) -> tuple[Any, Any]:
    """What a fold per key returned, if that is a state and rows."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Misfit.of(result, "pair of a state and rows", "write: return state, rows")
    return result[0], result[1]

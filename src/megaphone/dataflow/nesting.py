"""Nesting: what is within structs, arrays and maps."""

from collections.abc import Iterator

import pyarrow as pa


def fields_of(type: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, the element of an array, the key and the item of a map; none of another type."""
    if pa.types.is_map(type):
        return [type.key_field, type.item_field]
    return [type.field(place) for place in range(type.num_fields)]


def parts_of(column: pa.Array) -> Iterator[tuple[pa.Field, pa.Array]]:
    """What is within the values of a column that are not null, by field.

    >>> [part.to_pylist() for _, part in parts_of(pa.array([[1, 2], None, [3]]))]
    [[1, 2, 3]]
    """
    present, fields = column.drop_null(), fields_of(column.type)
    if pa.types.is_struct(column.type):
        parts = present.flatten()
    elif pa.types.is_map(column.type):
        # Its keys and items are those of the whole memory, however it was cut.
        start, stop = present.offsets[0].as_py(), present.offsets[-1].as_py()
        parts = [part.slice(start, stop - start) for part in (present.keys, present.items)]
    else:
        parts = [present.flatten()] if fields else []
    yield from zip(fields, parts, strict=True)

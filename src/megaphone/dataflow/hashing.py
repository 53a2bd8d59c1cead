"""The hash that is fixed for ever: Spark's `xxhash64` (seed 42) of the key columns, computed over Arrow.

The same key must fall in the same bin wherever it is hashed: by Spark's SQL engine, here, today and after a restart.
The local engine hashes here; in a query Spark does.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from megaphone.errors import PlanError

SEED = 42

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)

Hashes = npt.NDArray[np.uint64]

MOST_DIGITS_OF_A_LONG = 18
"""Spark keeps a decimal with no more digits in a long."""

_LONGS = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time64)
"""What Spark keeps in a long as Arrow does."""

_BYTES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def hash_columns(columns: list[pa.Array]) -> npt.NDArray[np.int64]:
    """Spark's xxhash64 of each row.

    >>> hash_columns([pa.array([1, 2])]).tolist()
    [-7001672635703045582, -3341702809300393011]
    >>> hash_columns([pa.array(["a"])]).tolist()
    [-8582455328737087284]
    """
    seeds = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        seeds = _hash_column(column, seeds)
    return seeds.view(np.int64)


def _hash_column(column: pa.Array, seeds: Hashes) -> Hashes:
    if not len(column) or column.null_count == len(column):
        return seeds
    hashed = _hash_values(column, seeds)
    if column.null_count:
        # Spark leaves the hash as it was when a value is null.
        return np.where(column.is_null().to_numpy(zero_copy_only=False), seeds, hashed)
    return hashed


def _hash_values(column: pa.Array, seeds: Hashes) -> Hashes:
    kind = column.type
    if pa.types.is_struct(kind):
        for field in column.flatten():
            seeds = _hash_column(field, seeds)
        return seeds
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _hash_lists(column, seeds)
    if pa.types.is_decimal128(kind):
        return _hash_decimals(column, seeds)
    if pa.types.is_int64(kind) or any(test(kind) for test in _LONGS):
        return _hash_long(_integers(column, pa.int64()).view(np.uint64), seeds)
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_boolean(kind):
        return _hash_int(_integers(column, pa.int32()).view(np.uint32), seeds)
    if pa.types.is_float64(kind):
        return _hash_long(_one_zero_one_nan(column).view(np.uint64), seeds)
    if pa.types.is_float32(kind):
        return _hash_int(_one_zero_one_nan(column).view(np.uint32), seeds)
    if any(test(kind) for test in _BYTES):
        return _hash_bytes(column.cast(pa.large_binary()).to_pylist(), seeds)
    raise PlanError(f"a key of type {kind} cannot be hashed: Spark has no such type; cast it")


def _integers(column: pa.Array, kind: pa.DataType) -> npt.NDArray[np.signedinteger]:
    values: npt.NDArray[np.signedinteger] = pc.fill_null(column.cast(kind), 0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values)


def _one_zero_one_nan(column: pa.Array) -> npt.NDArray[np.floating]:
    """Numbers with several patterns of bits in the one that Spark hashes."""
    values: npt.NDArray[np.floating] = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
    values = np.where(values == 0, values.dtype.type(0), values)
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _hash_bytes(values: list[bytes | None], seeds: Hashes) -> Hashes:
    digest = xxhash.xxh64_intdigest
    hashes = (digest(value or b"", seed) for value, seed in zip(values, seeds.tolist(), strict=True))
    return np.fromiter(hashes, np.uint64, len(values))


def _hash_decimals(column: pa.Array, seeds: Hashes) -> Hashes:
    """As Spark: without their points, as longs if all that the type can hold are longs, else as Java's bytes."""
    words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :][: 2 * len(column)].reshape(-1, 2)
    if column.type.precision <= MOST_DIGITS_OF_A_LONG:
        return _hash_long(np.ascontiguousarray(words[:, 0]).view(np.uint64), seeds)
    low, high = words[:, 0].view(np.uint64).tolist(), words[:, 1].tolist()
    return _hash_bytes([_bytes_of((first << 64) | second) for first, second in zip(high, low, strict=True)], seeds)


def _bytes_of(number: int) -> bytes:
    """A number as Java's BigInteger writes it: the highest byte first, and no more of them than it needs."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _hash_lists(column: pa.Array, seeds: Hashes) -> Hashes:
    """Element by element, each hashed with what came out for the one before it."""
    seeds, offsets = seeds.copy(), column.offsets.to_numpy()
    starts, sizes = offsets[:-1], np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    for place in range(sizes.max()):
        longer = np.flatnonzero(sizes > place)
        seeds[longer] = _hash_column(column.values.take(pa.array(starts[longer] + place)), seeds[longer])
    return seeds


def _rotate(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


def _hash_long(values: Hashes, seeds: Hashes) -> Hashes:
    hashes = seeds + _P5 + np.uint64(8)
    hashes = hashes ^ (_rotate(values * _P2, 31) * _P1)
    return _avalanche(_rotate(hashes, 27) * _P1 + _P4)


def _hash_int(values: npt.NDArray[np.uint32], seeds: Hashes) -> Hashes:
    hashes = seeds + _P5 + np.uint64(4)
    hashes = hashes ^ (values.astype(np.uint64) * _P1)
    return _avalanche(_rotate(hashes, 23) * _P2 + _P3)

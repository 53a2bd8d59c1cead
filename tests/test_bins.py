"""Would catch a key that changes its bin: by its sign, by how it was hashed, or by the number of bins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import MAX_SHIFT, Bins
from megaphone.errors import PlanError

hashes = st.integers(-(2**63), 2**63 - 1)
shifts = st.integers(1, MAX_SHIFT)


@given(st.lists(hashes), shifts)
def test_bin_is_the_most_significant_bits(values, shift):
    bins = Bins(shift)
    binary = [format(value % 2**64, "064b") for value in values]
    assert bins.of_hashes(np.array(values, np.int64)).tolist() == [int(bits[:shift], 2) for bits in binary]


@given(st.lists(hashes), st.integers(2, MAX_SHIFT))
def test_doubling_the_bins_splits_each_in_two(values, shift):
    fine, coarse = (Bins(each).of_hashes(np.array(values, np.int64)) for each in (shift, shift - 1))
    assert (fine // 2).tolist() == coarse.tolist()


@given(shifts)
def test_count_and_shift_agree(shift):
    assert Bins.of_count(2**shift) == Bins(shift)
    assert Bins(shift).count == 2**shift


@pytest.mark.parametrize("count", [-4, 0, 1, 3, 255, 2**21])
def test_odd_counts_are_refused(count):
    with pytest.raises(PlanError, match=f"{count} bins asked for; choose a power of two from 2 to 1048576"):
        Bins.of_count(count)


@pytest.mark.parametrize("shift", [0, 21])
def test_odd_shifts_are_refused(shift):
    with pytest.raises(PlanError, match=rf"2\^{shift} bins asked for; choose 2\^1 to 2\^20"):
        Bins(shift)

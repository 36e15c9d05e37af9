"""``BlockShuffle``: a permutation, by blocks within windows, which differs by seed, epoch and rank."""

from itertools import pairwise

import pytest

import accel


@pytest.mark.parametrize("count", [0, 1, 7, 64, 1000])
@pytest.mark.parametrize("block", [1, 3, 64])
@pytest.mark.parametrize("window", [1, 4])
def test_it_permutes(count: int, block: int, window: int) -> None:
    sampler = accel.BlockShuffle(range(count), block, window=window)
    order = [*sampler]
    assert sorted(order) == [*range(count)]
    assert len(sampler) == count
    assert order == [*sampler]
    assert order == [*accel.BlockShuffle(range(count), block, window=window)]
    sampler.set_epoch(1)
    later = [*sampler]
    assert sorted(later) == [*range(count)]
    assert later == [*accel.BlockShuffle(range(count), block, seed=1, window=window)]
    assert later != order or count < 8 or (block >= count and window == 1 and count < 2)


def test_a_window_is_read_in_stretches() -> None:
    count, block, window = 4096, 32, 4
    order = [*accel.BlockShuffle(range(count), block, window=window)]
    for first in range(0, count, block * window):
        read = order[first : first + block * window]
        assert len({index // block for index in read}) == window
        assert read != sorted(read)
    starts = [order[first] // block for first in range(0, count, block * window)]
    assert starts != sorted(starts)
    neighbours = sum(abs(a - b) == 1 for a, b in pairwise(order))
    assert neighbours < 3 * 2 * count / (block * window)  # of a plain shuffle of a window: 2 of its length on average


@pytest.mark.parametrize("count", [0, 200, 1003])
@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_ranks_have_other_samples_and_as_many(count: int, replicas: int) -> None:
    samplers = [
        accel.BlockShuffle(range(count), 10, seed=3, num_replicas=replicas, rank=rank) for rank in range(replicas)
    ]
    orders = [[*sampler] for sampler in samplers]
    drawn = [index for order in orders for index in order]
    assert len({*drawn}) == len(drawn)
    assert {len(order) for order in orders} == {len(samplers[0])}
    assert len(drawn) >= count - 2 * 10 * replicas


@pytest.mark.parametrize("wrong", [{"block": 0}, {"window": 0}, {"num_replicas": 0}, {"rank": 1}, {"rank": -1}])
def test_wrong_numbers(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        accel.BlockShuffle(range(10), **{"block": 2, **wrong})


def test_ranks_without_samples() -> None:
    with pytest.raises(ValueError, match="block=256 is too large"):
        accel.BlockShuffle(range(100), 256, num_replicas=2)

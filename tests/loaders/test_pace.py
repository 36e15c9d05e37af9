"""How fast a cache is filled: a part of an epoch's time at first, what hits have saved later."""

from pathlib import Path

import pytest

from accel.cache.cache import Cache
from accel.runtime import pace
from tests.support.processes import linux

pytestmark = linux
SIZE, HEIGHT, WIDTH = 100_000, 400, 500
BOXES = [(0, 0, 400, 500), (20, 30, 300, 350), (100, 50, 220, 250), (200, 100, 120, 150)]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    found = Cache.open(tmp_path / "cache", 1 << 28, version="test")
    assert found is not None
    return found


def work(box: int, known: bool = False) -> pace.Work:
    return pace.work(SIZE, HEIGHT, WIDTH, BOXES[box % len(BOXES)], known)


def epoch(own: pace.Pace, there: set[int], count: int, slow: float, shift: int) -> tuple[float, float]:
    """What an epoch of so many files takes on a machine that is so slow, and what it would without a cache."""
    spent = without = 0.0
    for number in range(count):
        each = work(number + shift, shift > 0)
        without += slow * each.decoding
        if number in there:
            spent += slow * each.reading
            own.read(each, slow * each.reading, 1)
        elif own.may() and own.allows(each):
            there.add(number)
            spent += slow * each.filling
            own.filled(each, slow * each.filling)
        else:
            spent += slow * each.decoding
            own.decoded(each, slow * each.decoding)
    return spent, without


@pytest.mark.parametrize("slow", [0.3, 1.0, 4.0])
def test_no_epoch_takes_much_longer_and_soon_all_are_there(cache: Cache, slow: float) -> None:
    own, there, total, paid = pace.Pace(cache), set[int](), 0.0, []
    for number in range(12):
        spent, without = epoch(own, there, 1000, slow, number)
        assert spent <= 1.2 * without
        total += without - spent
        paid.append(total)
    assert len(there) == 1000
    assert paid[0] < 0 < paid[-1]
    assert min(paid) >= -2 * pace.SHARE * 1000 * slow * work(0).decoding


def test_files_of_which_much_is_decoded_come_first(cache: Cache) -> None:
    own, filled = pace.Pace(cache), [0] * len(BOXES)
    for number in range(400):
        each = work(number)
        if own.may() and own.allows(each):
            filled[number % len(BOXES)] += 1
            own.filled(each, each.filling)
        else:
            own.decoded(each, each.decoding)
    assert filled[0] > 0 == filled[-1]


def test_nothing_is_paid_before_anything_was_measured(cache: Cache) -> None:
    own = pace.Pace(cache)
    cache.earn(1e9, 1e9)
    assert not own.may()
    assert not own.allows(work(0))
    for number in range(3 * pace._ENOUGH):
        own.decoded(work(number), 300)
    assert own.may()
    assert own.allows(work(0))


def test_a_fill_that_takes_longer_than_was_reckoned_is_paid_for(cache: Cache) -> None:
    own = pace.Pace(cache)
    for number in range(100):
        own.decoded(work(number), work(number).decoding)
    before = cache.balance()
    own.filled(work(0), 50_000)
    assert cache.balance() < before - 49_000
    assert not own.may()

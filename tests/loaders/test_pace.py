"""How fast a cache is filled: a part of an epoch's time at first, and what hits save."""

import pytest

from accel.codec.header import Header
from accel.runtime import pace
from tests.support.processes import in_child, linux

HEADER = Header(500, 400, "RGB", False, scan=600)
BOXES = [(0, 0, 400, 500), (20, 30, 300, 350), (100, 50, 220, 250), (200, 100, 120, 150)]
DECODING, FILLING, READING = (500.0, 450.0, 350.0, 300.0), 1200.0, 150.0


def epoch(own: pace.Pace, there: set[int], count: int, slow: float, shift: int) -> tuple[float, float]:
    """What an epoch of so many files takes on a machine that is so slow, and what it would without a cache."""
    spent = without = 0.0
    for number in range(count):
        turn = (number * 7 + shift + number // 5) % len(BOXES)
        large, decoding = own.is_large(HEADER, BOXES[turn]), slow * DECODING[turn]
        without += decoding
        if number in there:
            spent += slow * READING
            own.read(large, slow * READING)
        elif own.allows(large):
            there.add(number)
            spent += slow * FILLING
            own.filled(large, slow * FILLING)
        else:
            spent += decoding
            own.decoded(large, decoding)
    return spent, without


@pytest.mark.parametrize("slow", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(("count", "processes"), [(2000, 1), (64, 1), (64, 4)])
def test_no_epoch_takes_much_longer_and_soon_all_are_there(slow: float, count: int, processes: int) -> None:
    """Also where each epoch has processes of its own, which know nothing of others."""
    there, shares = [set[int]() for _ in range(processes)], []
    own = [pace.Pace() for _ in range(processes)]
    for number in range(12):
        if processes > 1:
            own = [pace.Pace() for _ in range(processes)]
        found = [epoch(*each, count // processes, slow, number) for each in zip(own, there, strict=True)]
        spent, without = map(sum, zip(*found, strict=True))
        assert spent <= (1.02 + pace.SHARE) * without + 0.5 * processes * slow * FILLING
        shares.append(sum(map(len, there)) / count)
    assert shares[0] > 0.05
    assert shares[6] > 0.45
    assert shares[-1] > (0.95 if processes == 1 else 0.7)  # the same few files each time, of which nothing is measured


def test_files_of_which_much_is_decoded_come_first() -> None:
    own, filled = pace.Pace(), [0] * len(BOXES)
    for number in range(400):
        large = own.is_large(HEADER, BOXES[number % len(BOXES)])
        if own.allows(large):
            filled[number % len(BOXES)] += 1
            own.filled(large, FILLING)
        else:
            own.decoded(large, DECODING[number % len(BOXES)])
    assert filled[0] > 0 == filled[-1]


def test_nothing_is_paid_before_anything_was_measured() -> None:
    own = pace.Pace()
    own.read(True, 100.0)
    assert not own.allows(True)
    own.decoded(True, 1e9)  # the first time is not believed
    assert own.credit == 0
    assert not own.allows(True)
    for _ in range(10):
        own.decoded(True, 300.0)
    assert own.allows(True)


def test_one_long_time_is_no_measure() -> None:
    own = pace.Pace()
    for _ in range(10):
        own.decoded(True, 300.0)
    before = own.credit
    own.decoded(True, 1e9)
    assert own.credit <= before + pace.SHARE * 4 * 300


def test_a_fill_that_takes_longer_than_was_reckoned_is_paid_for() -> None:
    own = pace.Pace()
    for _ in range(100):
        own.decoded(True, 300.0)
    before = own.credit
    for took in (1000.0, 1000.0, 4000.0):
        own.filled(True, took)
    assert own.credit == pytest.approx(before - 300 - 700 - 3700)
    assert not own.allows(True)


@linux
def test_a_child_does_not_spend_what_its_parent_has() -> None:
    own = pace._paces[-1] = pace.Pace()
    try:
        own.credit = 500.0
        assert in_child(lambda: own.credit == 0)()
        assert own.credit == 500
    finally:
        del pace._paces[-1]

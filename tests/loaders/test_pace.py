"""How fast a cache is filled: a very small part of the first epoch's time, and then most of what is saved."""

from collections.abc import Sequence

import numpy as np
import pytest

from accel.cache.entry import PLANES
from accel.cache.worth import Rate, Worth
from accel.codec.engines import Box
from accel.codec.header import Header
from accel.runtime.memo import pace
from tests.support.processes import in_child, linux

HEADER = Header(500, 400, "RGB", False, scan=600)
BOXES: list[Box] = [(0, 0, 400, 500), (20, 30, 300, 350), (100, 50, 220, 250), (200, 100, 120, 150)]
WHOLE, BATCH = 200_000, 32
DECODING, BY_INDEX, FILLING, READING = 1.0, 0.7, 1.5, 0.3  # nanoseconds a pixel
WITHOUT = 0.9  # of decoding, where no stream index is made


def choose(own: pace.Pace, boxes: Sequence[Box], *, indexed: bool) -> list[int]:
    regions = [pace.pixels(HEADER, box) for box in boxes]
    assert pace.pixels_of_all(np.full(len(boxes), HEADER.width), np.array(boxes)) == sum(regions)
    return own.choose(np.array(regions), np.full(len(boxes), WHOLE), indexed=indexed)


def batch(own: pace.Pace, there: set[int], numbers: range, slow: float, number: int) -> tuple[float, float]:
    """What a batch of files takes on a machine that is so slow, and what it would without a cache."""
    spent = without = 0.0
    boxes = {each: BOXES[(each * 7 + number + each // 5) % len(BOXES)] for each in numbers}
    lacking = [each for each in numbers if each not in there]
    regions = [boxes[each] for each in lacking]
    fills = {lacking[each] for each in (choose(own, regions, indexed=number > 0) if lacking else [])}
    worth = own._worth
    for each, box in boxes.items():
        region = pace.pixels(HEADER, box)
        without += slow * WITHOUT * DECODING * region
        took = slow * region * (READING if each in there else BY_INDEX if number else DECODING)
        if each in there:
            worth.add_hits(PLANES, took, region, WHOLE)
            own.add_hits(region, 1)
        elif each in fills:
            took = slow * FILLING * WHOLE
            worth.filling.add(took, WHOLE)
        else:
            (worth.by_index if number else worth.first).add(took, region)
        spent += took
    there |= fills
    return spent, without


def epochs(count: int, processes: int, slow: float, *, own: bool) -> tuple[list[float], list[float]]:
    """Of each epoch, by that without a cache, its time; and what part of the files is there behind it.

    ``own``: each has processes of its own, which know nothing of others.
    """
    there, times, shares = [set[int]() for _ in range(processes)], list[float](), list[float]()
    paces = [pace.Pace(Worth()) for _ in range(processes)]
    for number in range(12):
        if own:
            paces = [pace.Pace(Worth()) for _ in range(processes)]
            for process, each in enumerate(paces):
                each._advance = (process + number * processes) * pace._GOLDEN % 1
        spent = without = 0.0
        for each, known in zip(paces, there, strict=True):
            for first in range(0, count, BATCH):
                one, other = batch(each, known, range(first, min(first + BATCH, count)), slow, number)
                spent, without = spent + one, without + other
        times.append(spent / without)
        shares.append(sum(map(len, there)) / count / processes)
    return times, shares


@pytest.mark.parametrize("slow", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("processes", [1, 4])
def test_two_epochs_take_no_longer_and_soon_all_are_there(slow: float, processes: int) -> None:
    times, shares = epochs(1000, processes, slow, own=processes > 1)
    assert times[0] < (1 + 1.5 * pace.FIRST) / WITHOUT
    assert max(times[1:]) < 1
    assert sum(times[:2]) < (2 if processes == 1 else 2.01), "those that live for an epoch know of no debt"
    assert 0 < shares[0] < shares[4] < shares[7]
    assert shares[-1] > 0.98


@pytest.mark.parametrize("count", [1, 3, 8, 15])
def test_processes_of_few_files_fill_it_too(count: int) -> None:
    """Each lives for an epoch, decodes its few files and measures hardly anything."""
    times, shares = epochs(count, 40, 1.0, own=True)
    assert times[0] < (1 + 8 * pace.FIRST) / WITHOUT
    assert shares[0] > 0.02
    assert shares[-1] > 0.6


def test_files_of_which_much_is_decoded_come_first() -> None:
    own = pace.Pace(Worth())
    own.credit = 1_000_000.0
    chosen = choose(own, [BOXES[-1], BOXES[1], BOXES[0]] * 20, indexed=False)
    assert chosen
    assert {each % 3 for each in chosen} == {2}


def test_files_of_which_none_is_saved_anything_pay_nothing_in() -> None:
    worth = Worth()
    own = pace.Pace(worth)
    for _ in range(10):
        worth.first.add(100.0, WHOLE)
        worth.by_index.add(100.0, WHOLE)
        worth.add_hits(PLANES, 150.0, WHOLE, WHOLE)
    for indexed in (False, True) * 50:
        own.add_hits(WHOLE, 1)
        assert choose(own, [BOXES[0]], indexed=indexed) == []


def test_what_the_first_epoch_takes_longer_is_paid_back_first() -> None:
    own = pace.Pace(Worth())
    own._advance = 0.0
    choose(own, [BOXES[0]] * 10, indexed=False)
    credit = own.credit
    own.add_hits(WHOLE, 1)
    assert own.credit == credit
    own.add_hits(10 * WHOLE, 10)
    assert own.credit > credit


def test_one_long_time_is_no_measure() -> None:
    rate = Rate()
    rate.add(1e9, 100)  # nor is the first one
    for _ in range(10):
        rate.add(300.0, 100)
    rate.add(1e9, 100)
    assert rate.value == pytest.approx((10 * 3 + 12) / 11)


@linux
def test_a_child_does_not_spend_what_its_parent_has() -> None:
    own, paces = pace.Pace(Worth()), pace._paces
    paces[-1] = own
    try:
        own.credit = 500.0
        assert in_child(lambda: own.credit == 0)()
        assert own.credit == 500
    finally:
        del paces[-1]

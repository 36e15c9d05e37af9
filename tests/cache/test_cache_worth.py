"""What gets the budget where it is short: by measured time saved a byte, and nothing is written in vain. The clock is a
made-up one: what is made takes so long by it, and what is read so long."""

import random
import sqlite3
from pathlib import Path
from typing import NamedTuple

import pytest

from accel.cache import folder as folders
from accel.cache.cache import Cache
from accel.cache.entry import INDEX, KINDS, PIXELS, PLANES, RESULT
from accel.cache.faults import SEGMENT
from accel.cache.worth import ASSUMED, Rate, Worth, shelf_of
from tests.cache.kept import changed, fallbacks, filled, opened, put, right
from tests.support import inside
from tests.support.processes import in_child, linux

pytestmark = linux
BUDGET, FILES, EPOCHS = 4_000_000, 400, 10


class Pipeline(NamedTuple):
    """What comes of each file: a kind, its pipeline, its bytes, and the microseconds that it takes to make."""

    kind: int
    size: int
    making: float
    number: int = 0

    @property
    def shelf(self) -> int:
        return shelf_of(self.kind, self.number)

    def name(self, file: int) -> bytes:
        return b"file %d of %d" % (file, self.shelf)


def epoch(cache: Cache, own: Pipeline, drawn: random.Random) -> tuple[int, int]:
    """Take all files once, as a training does; how many were found, and how many written."""
    found = written = 0
    for file in drawn.sample(range(FILES), FILES):
        there = cache.look(own.name(file))
        out = bytearray(own.size)
        if there is not None and cache.read(there.entries[own.kind], 0, 1, out):
            assert out == bytes([file % 256]) * own.size
            found += 1
            continue
        took = own.making * drawn.choice([0.8, 1.0, 1.2, 1.2, 30.0 if drawn.random() < 0.02 else 0.8])
        cache.worth.add_result(own.shelf, took, own.size)
        if cache.room(own.shelf, own.size):
            content = bytes([file % 256]) * own.size
            written += cache.put(own.name(file), b"header", own.shelf, content)
    cache.flush()
    cache._filling._left.clear()  # a second has passed
    return found, written


# a byte of them saves 1, 1, 3 and 9 ns
POOR = Pipeline(RESULT, 20_000, 26.0)
OTHER_POOR = Pipeline(RESULT, 20_000, 28.0, 2)
GOOD = Pipeline(RESULT, 20_000, 66.0, 1)
PLANE = Pipeline(PLANES, 20_000, 66.0)
PICTURE = Pipeline(PIXELS, 20_000, 186.0)
HUGE = Pipeline(RESULT, 20_000, 6646.0, 2)  # 332 ns, as of photos of 12 megapixels at 224 x 224


def trained(cache: Cache, pipelines: list[Pipeline]) -> dict[Pipeline, list[tuple[int, int]]]:
    """Epochs of them in turns."""
    drawn, done = random.Random(3), dict[Pipeline, list[tuple[int, int]]]()
    for _ in range(EPOCHS):
        for own in pipelines:
            done.setdefault(own, []).append(epoch(cache, own, drawn))
    return done


@pytest.mark.parametrize(
    ("better", "worse"),
    [(GOOD, POOR), (PLANE, POOR), (PICTURE, PLANE), (PICTURE, GOOD)],
    ids=["two pipelines", "planes before results", "pictures before planes", "pictures before results"],
)
@pytest.mark.parametrize("turned", [False, True], ids=["the better one first", "the worse one first"])
def test_what_saves_more_a_byte_gets_a_budget_that_is_too_small(
    folder: Path, better: Pipeline, worse: Pipeline, turned: bool
) -> None:
    """Whichever comes first, and whatever kind it is; half of what is needed is half of what is found."""
    cache = opened(folder, BUDGET)  # half of what one of them needs
    done = trained(cache, [worse, better] if turned else [better, worse])
    found = [count for count, _ in done[better]]
    assert 0.4 * FILES < found[-1] < 0.52 * FILES
    assert found[-1] == found[-2], "the same files in every epoch"
    assert done[worse][-1][0] < 0.05 * FILES
    for own in done.values():
        assert sum(count for _, count in own) < 0.55 * FILES, "no more than the budget is written of each"
        assert not any(count for _, count in own[3:]), "then nothing more is written"
    assert cache.used()[0] <= BUDGET


def test_what_saves_about_as_much_takes_nothing_back(folder: Path) -> None:
    cache = opened(folder, BUDGET)
    done = trained(cache, [POOR, OTHER_POOR])
    assert done[POOR][-1][0] > 0.4 * FILES, "the first has what it has"
    assert done[OTHER_POOR][-1][0] < 0.05 * FILES
    assert not any(written for own in done.values() for _, written in own[2:])


def test_two_pipelines_that_both_fit_share_it(folder: Path) -> None:
    done = trained(opened(folder, 5 * BUDGET), [POOR, GOOD])
    assert [own[1:] for own in done.values()] == [[(FILES, 0)] * (EPOCHS - 1)] * 2


def test_what_was_measured_is_there_for_other_processes_and_later_runs(folder: Path) -> None:
    cache = opened(folder, BUDGET)
    trained(cache, [PLANE])
    cache.close()

    def later() -> bool:
        """Nothing was measured yet in this process: results are taken for 4 ns a byte, planes for what was measured."""
        own = opened(folder, BUDGET)
        assert ASSUMED[RESULT] > 2 * ASSUMED[PLANES]
        return not own.room(RESULT, 20_000)

    assert in_child(later)()
    inside.close_caches()
    assert not opened(folder, BUDGET).room(RESULT, 20_000), "nobody uses it: the table alone knows"


@pytest.mark.parametrize("other", [PICTURE, HUGE], ids=["pictures", "results of huge photos"])
def test_indexes_come_first_whatever_is_measured(folder: Path, other: Pipeline) -> None:
    cache = opened(folder, BUDGET)
    assert put(cache, 0, INDEX)
    trained(cache, [other])
    assert put(cache, 1, INDEX)
    cache.flush()
    assert right(cache, 0) == right(cache, 1) == 1


def test_the_first_measure_is_not_believed_and_wild_ones_hardly() -> None:
    own = Worth()
    own.add_result(RESULT, 500_000.0, 1000)
    assert own.of(RESULT) is None
    for _ in range(20):
        own.add_result(RESULT, 5.3, 1000)
    own.add_result(RESULT, 100_000.0, 1000)
    assert own.of(RESULT) is not None
    assert 5000 <= (own.of(RESULT) or 0) < 6000
    own.add_result(PLANES, 0.0, 1000)
    own.add_result(PLANES, 0.0, 1000)
    assert own.of(PLANES) == 0, "what takes longer to read saves nothing"


def test_a_thread_that_came_too_late_for_any_image_measured_nothing() -> None:
    own = Worth()
    for images in (16, 0, 16, 0, 16):
        own.by_index.add(500.0 * images + 1, images)
        own.add_hits(PLANES, 250.0 * images + 1, images, 1000 * images)
    assert own.of(PLANES) is not None
    assert 240_000 <= (own.of(PLANES) or 0) <= 260_000


def test_a_measure_that_another_thread_has_not_added_yet() -> None:
    own = Rate()
    own.add(5.0, 1)
    own.count += 1
    assert own.value == 0.0
    own.add(5.0, 1)
    assert own.value == 5.0


def test_planes_save_what_images_take_without_them_and_no_step_of_theirs() -> None:
    own = Worth()
    for _ in range(3):
        own.add_hits(PLANES, 270.0 * 32, 32, 32 * 250_000)
        assert own.of(PLANES) is None, "nothing to compare it with"
    for _ in range(3):
        own.by_index.add(540.0 * 20, 20)
        own.add_hits(PLANES, 270.0 * 32, 32, 32 * 250_000)
    assert own.of(PLANES) == 1080


# -- damage of what the table says --------------------------------------------------------------------------


@pytest.mark.parametrize("bit", [0, 3, 17, 40, 62])
@pytest.mark.parametrize("column", ["charge", "claimed", "size", "shelf", "sum"])
def test_a_flipped_bit_of_a_segments_row_is_noticed_and_mended(folder: Path, column: str, bit: int) -> None:
    """It would be full for the run, or overwrite what it has."""
    cache = filled(folder, 40)
    used = cache.used()[0]
    cache.close()
    [segment] = _asked(folder, f"SELECT min(id) FROM segments WHERE shelf % {KINDS} = {PLANES}")
    flipped = f"({column} | {1 << bit}) - ({column} & {1 << bit})"
    changed(folder, f"UPDATE segments SET {column} = {flipped} WHERE id = {segment[0]}")
    with fallbacks() as counted:
        cache = opened(folder)
        assert cache.room(PLANES, 10_000)
        assert put(cache, 1000, PLANES)
        cache.flush()
    assert counted == {SEGMENT: 1}
    assert cache.used()[0] - used < 20_000
    assert sum(right(cache, number) for number in range(40)) == 80
    assert right(cache, 1000) == 1
    assert not _asked(folder, "SELECT 1 FROM segments WHERE charge < 0 OR charge > 100000000")


def test_a_segments_row_that_says_nothing_any_more(folder: Path) -> None:
    filled(folder, 40).close()
    changed(folder, "UPDATE segments SET size = NULL, charge = 'x'")
    with fallbacks() as counted:
        cache = opened(folder)
        assert put(cache, 1000, PLANES)
        cache.flush()
    assert counted == {SEGMENT: 1}
    assert sum(right(cache, number) for number in range(40)) == 80


@pytest.mark.parametrize("column", ["worth", "taken"])
def test_a_flipped_bit_of_a_shelfs_row_is_as_if_nothing_was_measured(folder: Path, column: str) -> None:
    trained(opened(folder, BUDGET), [GOOD])
    inside.close_caches()
    changed(folder, f"UPDATE shelves SET {column} = {column} + {1 << 40}")
    cache = opened(folder, 2 * BUDGET)
    assert cache.room(GOOD.shelf, 20_000)
    assert epoch(cache, GOOD, random.Random(1))[1] > 50


def _asked(folder: Path, query: str) -> list[tuple[int, ...]]:
    connection = sqlite3.connect(folder / folders.TABLE)
    found: list[tuple[int, ...]] = connection.execute(query).fetchall()
    connection.close()
    return found

"""Indexes that are damaged, forged, another file's, or lack points: never another pixel, nor foreign memory."""

import itertools
import random
from itertools import count

import numpy as np
import pytest

from accel.codec import jpeg
from accel.codec.engines import Box
from accel.codec.header import claim
from accel.codec.jpeg import index_fields as ix
from bench.fuzz.coder import Coder, random_blocks
from bench.fuzz.files import encode, picture
from tests.support import inside
from tests.support.indexed import Keeper, boxes, noise, padded, plainly, points_of, poison, rows_of
from tests.support.jpeg import damaged, drifting, shape
from tests.support.stream_index import (
    count_of,
    index_size,
    mcu_columns,
    packing,
    placing,
    sealed,
    unpacked,
    with_points,
)


def test_the_checksum_is_the_decoders() -> None:
    for data in (noise(), padded(encode(picture("noise", 90, 90, 1)), 9999)):
        kept = points_of(data).view(np.uint16)
        assert np.array_equal(sealed(data, kept), kept)


def test_parts_that_changed_places() -> None:
    """The checksum has four sums, of every fourth eight bytes each."""
    data = padded(noise(0, (200, 200)), 199999)
    whole, form = points_of(data), packing(data)
    groups, rest = divmod(jpeg.known_points(data, whole), ix.GROUP)
    assert groups > 9
    known = 2 * (groups * form.group + (form.words(rest) if rest else 0))
    for first, second in itertools.combinations(range(4), 2):
        moved = whole.copy()
        parts = moved[2 * ix.POINTS :][: known // 32 * 32].reshape(-1, 4, 8)
        parts[:, [first, second]] = parts[:, [second, first]]
        assert not np.array_equal(moved, whole)
        assert not jpeg.known_points(data, moved)


def test_flipped_bits(thorough: bool) -> None:
    rng = np.random.default_rng(0)
    files = [noise(), noise(1, restart_marker_blocks=5), padded(noise(2, (40, 90)), 50000)]
    for data in files:
        whole = points_of(data)
        keeper = Keeper()
        keeper.decode(data, (0, 0, 40, 60))
        assert keeper.kept is not None
        for kept, known in ((whole, len(whole)), (keeper.kept, 32)):
            assert jpeg.known_points(data, kept)
            places = range(len(kept)) if thorough else range(0, len(kept), 9)
            flips = [(at, 1 << int(rng.integers(8))) for at in places]
            more = 3000 if thorough else 30
            flips += [(int(rng.integers(len(kept))), 1 << int(rng.integers(8))) for _ in range(more)]
            for at, bit in flips:
                changed = kept.copy()
                changed[at] ^= bit
                other = Keeper(changed)
                box = (int(rng.integers(100)) % shape(data)[0], int(rng.integers(30)), 1, 30)
                assert other.decode(data, box) is not None
                if at < known:
                    # spare bytes behind the points are under no checksum
                    spare = at >= len(kept) - 2 * ix.SLACK - 8 and not other.index.dropped
                    assert spare or other.said == (False, True, True)
                assert jpeg.known_points(data, changed) in (0, jpeg.known_points(data, kept))


def test_other_files() -> None:
    """Of the same size, and of others; at the same time as this file's, and in its place."""
    files = [noise(seed) for seed in range(6)]
    size = max(map(len, files)) + 64
    same = [padded(data, size - len(data)) for data in files]
    assert len({len(data) for data in same}) == 1
    kept = [points_of(data) for data in same]
    assert len({len(each) for each in kept}) == 1
    for data in same:
        for other in kept:
            keeper = Keeper(other)
            fits = bool(jpeg.known_points(data, other))
            assert keeper.decode(data, (30, 40, 60, 70)) is not None
            assert keeper.said == (fits, not fits, not fits)
            assert fits == (data is same[next(i for i, each in enumerate(kept) if each is other)])
    strange = [np.zeros(0, np.uint8), np.zeros(8, np.uint8), np.full(4096, 255, np.uint8), np.zeros(4096, np.uint8)]
    for other in [*strange, points_of(noise(9, (300, 300)))]:
        keeper = Keeper(other)
        assert keeper.decode(same[0], (30, 40, 60, 70)) is not None
        assert keeper.said == (False, True, bool(len(other)))


@pytest.mark.parametrize("box", [(0, 0, 30, 9), (0, 0, 120, 200)])
def test_nothing_is_left_of_an_index_that_is_dropped(box: Box) -> None:
    data, fresh = noise(), Keeper()
    fresh.decode(data, box)
    for wrong in (np.full(index_size(data), 0xA5, np.uint8), points_of(data)):
        wrong[2 * ix.POINTS] ^= 1
        keeper = Keeper(wrong)
        keeper.decode(data, box)
        assert keeper.said == (False, True, True)
        assert keeper.kept is not None
        assert np.array_equal(keeper.kept, fresh.kept)  # type: ignore[arg-type]


def test_files_that_changed(thorough: bool) -> None:
    rng = np.random.default_rng(1)
    dropped = 0
    for seed in range(1500 if thorough else 120):
        data = noise(seed % 7, quality=60, restart_marker_blocks=seed % 3 * 4)
        kept = points_of(data)
        match seed % 4:
            case 0:
                changed = data[: int(rng.integers(len(data) // 2, len(data)))]
                changed += b"\xff\xd9" * (seed % 8 > 3)
            case 1:
                changed = data + rng.bytes(int(rng.integers(1, 9)))
            case _:
                changed = damaged(data, rng, header=seed % 8 == 2)
        if changed == data or claim(changed) is None:
            continue
        height, width, _ = shape(changed)
        if height * width > 1 << 16:
            continue
        for box in boxes(changed, random.Random(seed), 3):
            keeper = Keeper(kept)
            found = keeper.decode(changed, box)
            assert not keeper.index.used
            dropped += found is not None
    assert dropped > 50


def test_files_that_go_wrong_below() -> None:
    """Nothing is known of rows that were not walked to their end by a decode that succeeded."""
    data = bytearray(noise(quality=95))
    data[-400:-396] = b"\xff\x00\xff\x00"
    del data[-300:-290]
    keeper = Keeper()
    assert keeper.decode(bytes(data), (0, 0, 30, 200)) is not None
    kept = keeper.kept
    assert kept is not None
    assert rows_of(kept) == 2
    assert keeper.decode(bytes(data), (20, 0, 100, 100)) is None
    keeper.kept = kept
    assert keeper.decode(bytes(data), (20, 10, 10, 100)) is not None
    assert keeper.said == (True, False, False)
    assert Keeper().decode(drifting(), (200, 0, 8, 8)) is None


def test_blocks_that_are_refused() -> None:
    """An overflow is no fault of the index."""
    blocks = random_blocks(9)
    blocks[5, :4] = 1000
    data = padded(Coder().file((160, 160), [(1, 1, 1)], blocks, quant=9), 20000)
    keeper = Keeper()
    refused = [keeper.decode(data, (0, left, 8, 8)) is None for left in range(0, 160, 8)]
    assert 0 < sum(refused) < 20
    assert keeper.kept is not None
    assert jpeg.known_points(data, keeper.kept)


@pytest.mark.parametrize("grey", [False, True])
def test_points_that_are_met_elsewhere(grey: bool) -> None:
    """Each number of a point, in an index that is right by its checksum: a walk over it sees that it is not."""
    data = padded(encode(picture("noise", 150, 420, 1 if grey else 3), quality=70), 40000)
    kept = points_of(data).view(np.uint16)
    points, columns, place = unpacked(data, kept), mcu_columns(data), placing(data)
    side = 8 if grey else 16
    for relative in (False, True):
        met, row = next(
            (number, place.mcu(number) // columns)
            for number, point in enumerate(points)
            if place.mcu(number) % columns > 0 and place.mcu(number) > 3 * columns
            if point is not None and (number % ix.GROUP != 0) == relative
        )
        box = (row * side + 1, 0, side - 2, 420)
        for field in range(2 if grey else 4):
            for change in (1, 2) if relative else (1, 2, 0x4000):
                others, changed = list(points), list(points[met])  # type: ignore[arg-type]
                changed[field] ^= change
                others[met] = tuple(changed)
                words = with_points(data, kept, others)
                assert not np.array_equal(words, kept)
                assert unpacked(data, words)[met] == tuple(changed)
                keeper = Keeper(sealed(data, words).view(np.uint8))
                assert jpeg.known_points(data, keeper.kept)  # type: ignore[arg-type]
                assert keeper.decode(data, box) is not None
                assert keeper.said == (False, True, True), (field, change)
                keeper.decode(data, (0, 0, *shape(data)[:2]))
                assert np.array_equal(keeper.kept, kept.view(np.uint8))  # type: ignore[arg-type]


@pytest.mark.parametrize("grey", [False, True])
def test_points_that_are_left_out(grey: bool) -> None:
    """Any of them but the first of a group: the walk begins at the one before."""
    data = padded(encode(picture("noise", 150, 420, 1 if grey else 3), quality=70), 40000)
    whole, keeper = points_of(data).view(np.uint16), Keeper()
    keeper.decode(data, (0, 0, 90, 20))
    assert keeper.kept is not None
    for kept in (whole, keeper.kept.view(np.uint16)):
        points, rng = unpacked(data, kept), random.Random(grey)
        for share in (0.3, 0.8, 1):
            others = [point if number % ix.GROUP == 0 or rng.random() > share else None
                      for number, point in enumerate(points)]  # fmt: skip
            words = sealed(data, with_points(data, kept, others))
            others = unpacked(data, words)  # those that are too far from the one before are left out as well
            assert others.count(None) > share / 2 * len(points)
            for box in boxes(data, rng, 40):
                keeper = Keeper(words.view(np.uint8))
                assert keeper.decode(data, box) is not None
                assert keeper.index.used
                assert not keeper.index.dropped
                now = unpacked(data, keeper.kept.view(np.uint16))  # type: ignore[union-attr]
                assert now[: len(others)] == others
                assert all(new == point for new, point in zip(now, unpacked(data, whole), strict=False) if new)


def test_differences_that_do_not_fit_are_left_out() -> None:
    """And nothing else: the packing of the known points is that of the plain Python."""
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 2, (20, 30, 3), np.uint8) * 255
    bright = colours.repeat(16, 0).repeat(16, 1) ^ rng.integers(0, 9, (320, 480, 3), np.uint8)
    uneven = np.full((320, 800, 3), 99, np.uint8)
    uneven[160:192] = rng.integers(0, 256, (32, 800, 3))
    even, met = picture("noise", 320, 480), 0
    for pixels, quality, some in (
        (bright, 100, True),
        (uneven, 90, True),
        (even, 50, False),
        (even[..., 0], 50, False),
    ):
        data = encode(pixels, quality=quality, subsampling=2)
        kept = points_of(data).view(np.uint16)
        points = unpacked(data, kept)
        assert np.array_equal(sealed(data, with_points(data, kept, points)), kept)
        left_out = points.count(None) / len(points)
        assert 0.02 < left_out < 0.9 if some else left_out == 0
        whole, place = padded(data, 1 << 22), placing(data)
        every, moved = unpacked(whole, points_of(whole).view(np.uint16)), 8 * (len(whole) - len(data))
        at_mcu = {placing(whole).mcu(number): point for number, point in enumerate(every)}
        assert len(every) > len(points)
        for number, point in enumerate(points):
            there = at_mcu.get(place.mcu(number))
            assert None in (there, point) or there == (point[0] + moved, *point[1:])  # type: ignore[index]
            met += None not in (there, point)
    assert met > 200


def test_positions_outside_the_file() -> None:
    """A checksum may be right where the position is not: no access that is not the file's."""
    data = noise(restart_marker_blocks=7, quality=95)
    kept = points_of(data).view(np.uint16)
    rng = np.random.default_rng(0)
    form, known = packing(data), count_of(data, kept)
    assert known > ix.GROUP
    for number in range(400):
        words = kept.copy()
        for _ in range(1 + number % 3):
            group = int(rng.integers(-(-known // ix.GROUP)))
            at = ix.POINTS + form.group * group
            words[at : at + 2] = rng.integers(0, 1 << 16, 2) if number % 2 else (number, 0)
            words[at + 2 : at + form.words(min(ix.GROUP, known - ix.GROUP * group))] ^= 0x8001 * (number % 7 == 0)
        if number % 5 == 0:
            words[ix.END : ix.END + 2] = rng.integers(0, 1 << 16, 2)
        if number % 11 == 0:
            words[ix.POINTS : -ix.SLACK] = 0xFFFF
        index = jpeg.Index()
        index.room(2 * len(words)).view(np.uint16)[:] = sealed(data, words)
        poison()
        jpeg.decode(data, (int(rng.integers(100)), int(rng.integers(150)), 20, 50), index=index)


def test_a_piece_without_the_marker_that_is_due() -> None:
    """An index whose next point lies in front of it: what is behind the piece in memory is no part of the stream."""
    data = noise(size=(120, 400), restart_marker_blocks=3, quality=25)
    kept = points_of(data).view(np.uint16)
    points, place = unpacked(data, kept), placing(data)
    number = next(number for number in count() if place.mcu(number) == 2 * 25) + 1  # the second one in the third row
    spacing = place.mcu(number + 1) - place.mcu(number)
    assert 5 < spacing < 13
    begin, following = points[number], points[number + 1]
    assert begin is not None
    assert following is not None
    marker = min(at for at in (data.find(bytes((255, code)), begin[0] >> 3) for code in range(0xD0, 0xD8)) if at > 0)
    points[number + 1] = (8 * marker, *following[1:])
    words = with_points(data, kept, points)
    assert unpacked(data, words)[number + 1] == points[number + 1]
    index = jpeg.Index()
    index.room(2 * len(words)).view(np.uint16)[:] = sealed(data, words)
    scratch = inside.scratch()
    scratch.ends[:], scratch.stream[:] = 1 << 40, 0
    box = (34, 16 * (place.mcu(number) - 50) + 2, 8, 16 * (spacing - 2))
    found = jpeg.decode(data, box, index=index)
    assert index.dropped
    assert np.array_equal(found, plainly(data, box))


def test_points_that_go_back() -> None:
    """Whole points of each row, in an index that is right by its checksum, are the file's first one, and those between
    them are far behind: nearly all of the file would be copied for each row."""
    data = encode(picture("noise", 400, 512, 1), quality=100)
    words, form, place = points_of(data).view(np.uint16).copy(), packing(data), placing(data)
    known = count_of(data, words)
    column = place.mcu(place.points // 2)
    met = {(place.points * row + place.points // 2) // ix.GROUP for row in range(50)}
    assert place.line == 64
    assert len(met) == 50
    assert not any(group + 1 in met for group in met)
    for group in range(-(-known // ix.GROUP)):
        at = ix.POINTS + form.group * group
        bit = 8 * (data.rindex(b"\xff\xda") + 10 if group in met else len(data) - 2000)
        words[at : at + 3] = bit & 0xFFFF, bit >> 16, 0
        words[at + 3 : at + form.words(min(ix.GROUP, known - ix.GROUP * group))] = 0xFFFF
    keeper = Keeper(sealed(data, words).view(np.uint8))
    assert jpeg.known_points(data, keeper.kept)  # type: ignore[arg-type]
    assert keeper.decode(data, (0, 8 * column, 400, 4)) is not None
    assert keeper.said == (False, True, True)


@pytest.mark.parametrize(("word", "value"), [(ix.KIND, ix.MAGIC + 1), (ix.IN_LINE, 2), (ix.ROWS, 9), (ix.ROWS, 0xFFFF)])
def test_headers_of_an_index(word: int, value: int) -> None:
    data = noise()
    words = points_of(data).view(np.uint16).copy()
    words[word] = value
    if word != ix.ROWS:
        words = sealed(data, words) if word != ix.IN_LINE else words
    keeper = Keeper(words.view(np.uint8))
    assert keeper.decode(data, (60, 0, 20, 200)) is not None
    assert keeper.said == (False, True, True)

"""Decodes that begin where earlier ones found a file's rows to begin: the same pixels, whatever the index says."""

import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from accel.codec import decode as codec
from accel.codec import jpeg
from accel.codec.engines import Box
from accel.codec.header import Raw, claim
from accel.codec.jpeg import index_fields as ix
from accel.codec.jpeg.scratch import block_order, idct_tables
from bench.fuzz.coder import Coder, random_blocks
from bench.fuzz.files import FACTORS, LENGTHS, encode, picture
from tests.support.jpeg import damaged, drifting, shape
from tests.support.stream_index import count_of, mcu_columns, packing, placing, sealed, unpacked, with_points

KEPT = ("order", "idct")  # of a thread's arrays: what does not change


def poison() -> None:
    """Fill the memory that a thread keeps between pictures."""
    scratch = jpeg._scratch
    for name, array in vars(scratch).items():
        if name not in KEPT and isinstance(array, np.ndarray):
            array.reshape(-1).view(np.uint8)[:] = 0xA5
    assert np.array_equal(scratch.order, block_order())
    assert np.array_equal(scratch.idct, idct_tables())


def plainly(data: bytes, box: Box) -> Any:
    poison()
    return jpeg.decode(data, box)


class Keeper:
    """An index, and the bytes of it that are kept of one file; all decodes are compared with those without one."""

    def __init__(self, kept: np.ndarray | None = None) -> None:
        self.index = jpeg.Index()
        self.kept = kept

    def decode(self, data: bytes, box: Box) -> Any:
        expected = plainly(data, box)
        poison()
        self.index._words[:] = 0xA5A5
        self.index.clear()
        if self.kept is not None:
            self.index.room(len(self.kept))[:] = self.kept
        found = jpeg.decode(data, box, index=self.index)
        assert (found is None) == (expected is None)
        assert found is None or np.array_equal(found, expected)
        if found is None:
            assert self.said == (False, False, False)
            assert not len(self.index.bytes)
        if self.index.grown:
            self.kept = self.index.bytes.copy()
        return found

    @property
    def said(self) -> tuple[bool, bool, bool]:
        return self.index.used, self.index.grown, self.index.dropped


def padded(data: bytes, size: int) -> bytes:
    """The file with comments of about so many bytes: the larger it is, the more points its index may have."""
    comments = b"".join(b"\xff\xfe\x40\x02" + bytes(0x4000) for _ in range(size >> 14))
    rest = size & 0x3FFF
    return data[:2] + comments + b"\xff\xfe" + (rest + 2).to_bytes(2, "big") + bytes(rest) + data[2:]


def intact(seed: int) -> bytes:
    rng = random.Random(seed)
    height, width = rng.choice(
        [
            (rng.randint(1, 90), rng.randint(1, 90)),
            (rng.randint(60, 200), rng.randint(60, 200)),
            (rng.randint(200, 2000), rng.randint(1, 3)),
            (rng.randint(1, 40), rng.randint(600, 1200)),
        ]
    )
    if rng.random() < 0.4:
        factors = rng.choice([*FACTORS, [(1, 1)]])
        components = [(i, *each) for i, each in enumerate(factors, 1)]
        blocks = random_blocks(rng.randint(1, 90), seed, spread=rng.choice([1, 40, 200]), density=rng.random())
        restart = rng.choice([0, 0, rng.randint(1, 9), rng.randint(1, 200)])
        coder = Coder(rng.choice(LENGTHS))
        data = coder.file((min(height, 160), min(width, 320)), components, blocks, restart=restart)
    else:
        channels = rng.choice([1, 3, 3])
        options: dict[str, Any] = {"quality": rng.randint(1, 100), "optimize": max(height, width) < 600}
        if channels == 3:
            options["subsampling"] = rng.randint(0, 2)
        if rng.random() < 0.4:
            options["restart_marker_blocks"] = rng.choice([1, 2, rng.randint(1, 300)])
        kind = rng.choice(["smooth", "noise", "noise", "binary"])
        data = encode(picture(kind, height, width, channels, seed), **options)
    return padded(data, rng.choice([0, rng.randint(6000, 20000), 40000, 300000]))


def boxes(data: bytes, rng: random.Random, count: int) -> Iterator[Box]:
    height, width, _ = shape(data)
    for _ in range(count):
        top, left = rng.randrange(height), rng.randrange(width)
        rows, columns = rng.choice([(1, 1), (height, width), (40, 40), (height, 9), (9, width), (height, width)])
        rows, columns = min(rows, height - top), min(columns, width - left)
        yield top, left, rng.randint(1, rows), rng.randint(1, columns)


def points_of(data: bytes, seed: int = 0) -> np.ndarray:
    """The whole index of a file."""
    index = jpeg.Index()
    assert jpeg.decode(data, index=index) is not None
    assert index.grown
    return index.bytes.copy()


def noise(seed: int = 0, size: tuple[int, int] = (120, 200), **options: Any) -> bytes:
    return encode(picture("noise", *size, seed=seed), **{"quality": 80, "subsampling": 2, **options})


def test_any_boxes_of_any_files(thorough: bool) -> None:
    used = grown = 0
    files = 3000 if thorough else 150
    for seed in range(files):
        data, rng, keeper = intact(seed), random.Random(seed), Keeper()
        known = 0
        for box in boxes(data, rng, 8):
            if keeper.decode(data, box) is None:  # a block that libjpeg's arithmetic may overflow at
                continue
            assert keeper.index.used == (known > 0)
            assert not keeper.index.dropped
            now = 0 if keeper.kept is None else rows_of(keeper.kept)
            assert keeper.index.grown == (now > known)
            known, used, grown = now, used + keeper.index.used, grown + keeper.index.grown
        assert (known > 0) == (keeper.kept is not None and jpeg.known_points(data, keeper.kept) > 0)
    assert used > 2 * files
    assert grown > files / 2


def rows_of(kept: np.ndarray) -> int:
    return int(kept.view(np.uint16)[ix.ROWS])


def test_it_knows_what_was_walked() -> None:
    data, keeper = noise(), Keeper()
    rows = []
    for box in [(0, 50, 10, 10), (40, 3, 20, 150), (20, 3, 9, 9), (0, 0, 120, 200), (119, 199, 1, 1)]:
        keeper.decode(data, box)
        assert keeper.kept is not None
        rows.append((rows_of(keeper.kept), *keeper.said))
    assert rows == [
        (1, False, True, False),
        (4, True, True, False),
        (4, True, False, False),
        (8, True, True, False),
        (8, True, False, False),
    ]
    assert keeper.kept is not None
    assert np.array_equal(keeper.kept, points_of(data))


@pytest.mark.parametrize("restart", [0, 3])
def test_rows_above_are_not_walked(restart: int) -> None:
    """They are damaged here, and the index is made to fit."""
    data = noise(restart_marker_blocks=restart)
    kept = points_of(data).view(np.uint16).copy()
    scan = data.rindex(b"\xff\xda") + 14
    broken = bytearray(data)
    broken[scan + 20 : scan + 26] = bytes(6)
    assert jpeg.decode(bytes(broken), (100, 100, 20, 50)) is None or restart
    index = jpeg.Index()
    index.room(2 * len(kept)).view(np.uint16)[:] = sealed(bytes(broken), kept)
    found = jpeg.decode(bytes(broken), (100, 100, 20, 50), index=index)
    assert (index.used, index.dropped) == (True, False)
    assert np.array_equal(found, jpeg.decode(data, (100, 100, 20, 50)))


# -- an index that does not fit -------------------------------------------------------------------------------


def test_the_checksum_is_the_decoders() -> None:
    for data in (noise(), padded(encode(picture("noise", 90, 90, 1)), 9999)):
        kept = points_of(data).view(np.uint16)
        assert np.array_equal(sealed(data, kept), kept)


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
    for wrong in (np.full(jpeg.index_size(data), 0xA5, np.uint8), points_of(data)):
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
    scratch = jpeg._scratch
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


# -- sizes, digests, and what has none ------------------------------------------------------------------------


def test_sizes(thorough: bool) -> None:
    for seed in range(400 if thorough else 60):
        data = intact(seed)
        size = jpeg.index_size(data)
        assert size % 8 == 0
        assert size == 0 or size + ix.AROUND <= len(data) // ix.SHARE
        index = jpeg.Index()
        if jpeg.decode(data, index=index) is not None:
            assert len(index.bytes) == size
            assert index.grown == (size > 0)
            assert not size or jpeg.known_points(data, index.bytes) > 1


def test_small_files_have_none() -> None:
    data = encode(picture("smooth", 32, 32))
    assert jpeg.index_size(data) == 0
    keeper = Keeper()
    assert keeper.decode(data, (3, 3, 9, 9)) is not None
    assert keeper.said == (False, False, False)
    for other in (encode(picture("noise", 200, 200), progressive=True), b"", b"\xff\xd8\xff\xd9", data[:100]):
        assert jpeg.index_size(other) == 0
        assert jpeg.known_points(other, points_of(noise())) == 0


def test_digests() -> None:
    rng = np.random.default_rng(0)
    seen = set()
    count = 0
    for size in (0, 1, 7, 8, 9, 1023, 1024, 1025, 2047, 2048, 2049, 5000):
        data = rng.bytes(size)
        seen.add(jpeg.digest(data))
        count += 1
        for at in {0, size // 2, *range(max(size - 40, 0), size), *rng.integers(0, size + 1, 200)} - {size}:
            changed = bytearray(data)
            changed[at] ^= 1 << int(rng.integers(8))
            seen.add(jpeg.digest(bytes(changed)))
            count += 1
        for block in range(0, size - 1024, 512):  # what is moved is seen as well
            changed = bytearray(data)
            changed[block : block + 512], changed[block + 512 : block + 1024] = (
                data[block + 512 : block + 1024],
                data[block : block + 512],
            )
            seen.add(jpeg.digest(bytes(changed)))
            count += 1
        seen.add(jpeg.digest(bytes(size)))
        count += size > 0
    assert len(seen) == count
    assert jpeg.digest(memoryview(bytearray(b"abc" * 999))) == jpeg.digest(b"abc" * 999)


def test_room() -> None:
    index = jpeg.Index()
    assert [len(index.room(size)) for size in (0, 8, 9, -8, 1 << 14, (1 << 22) + 8)] == [0, 8, 0, 0, 1 << 14, 0]


def test_the_engine_takes_it() -> None:
    data = noise()
    header = claim(data)
    assert header is not None
    index = jpeg.Index()
    for used in (False, True):
        found = codec.decode(data, header, (20, 20, 50, 50), 3, index=index)
        assert np.array_equal(found, jpeg.decode(data, (20, 20, 50, 50)))
        assert (index.used, index.grown) == (used, not used)
    codec.decode(data, header, (20, 20, 50, 50), 3, "pillow", index=index)
    assert not index.used
    codec.decode(bytes(300), Raw(10, 10, "RGB"), (2, 2, 5, 5), 3, index=index)
    assert not index.used

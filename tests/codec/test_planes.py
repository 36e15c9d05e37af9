"""Pictures as packed planes: the pixels that decoding gives, of any region; and nothing is followed unchecked."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from accel.codec import jpeg
from accel.codec.engines import Box
from accel.codec.header import claim
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import planes
from accel.codec.jpeg import planes_fields as pf
from bench.fuzz.decoder import SIDES, guarded, guarded_copy, guarded_scratch
from bench.fuzz.files import encode, picture
from tests.support import inside
from tests.support.helpers import python
from tests.support.indexed import boxes, intact, poison
from tests.support.jpeg import damaged, shape
from tests.support.planes import cut, grey, some_samples, spoilt


def kept(data: bytes, box: Box | None = None) -> tuple[bytes, list[np.ndarray]] | None:
    """A file's planes, after its decode has been compared with the one that packs nothing."""
    poison()
    whole = jpeg.decode(data)
    poison()
    found = planes.encode(data, box)
    assert (found is None) == (whole is None)
    if found is None or whole is None:
        return None
    top, left, height, width = box or (0, 0, *whole.shape[:2])
    assert np.array_equal(found.pixels, whole[top : top + height, left : left + width])
    return found.meta, cut(found)


def region(meta: bytes, parts: list[np.ndarray], box: Box, channels: int) -> np.ndarray | None:
    first, last = planes.needed(meta, box)
    assert 0 <= first < last <= len(parts)
    poison()
    return planes.region(meta, np.concatenate(parts[first:last]), first, box, channels)


def test_any_boxes_of_any_files(thorough: bool) -> None:
    compared = 0
    for seed in range(3000 if thorough else 200):
        data, rng = intact(seed), random.Random(seed)
        some = list(boxes(data, rng, 8))
        _, _, channels = shape(data)
        packed = kept(data, some[0])
        if packed is None:  # a block that libjpeg's arithmetic may overflow at
            continue
        for box in some:
            for asked in {channels, 3}:
                expected = jpeg.decode(data, box, channels=asked)
                found = region(*packed, box, asked)
                assert expected is not None
                assert found is not None
                assert np.array_equal(found, expected), (seed, box)
                compared += 1
    assert compared > 1000


def test_what_is_asked_wrongly() -> None:
    data = encode(picture("noise", 40, 60))
    packed = kept(data)
    assert packed is not None
    meta, parts = packed
    everything = np.concatenate(parts)
    for box in [(-1, 0, 5, 5), (0, -1, 5, 5), (0, 0, 41, 5), (0, 0, 5, 61), (0, 0, 0, 5), (39, 59, 1, 2)]:
        assert planes.needed(meta, box) == (0, 0)
        assert planes.region(meta, everything, 0, box, 3) is None
        assert planes.encode(data, box) is None
    box = (0, 0, 40, 60)
    assert planes.region(meta, everything, 1, box, 3) is None
    assert planes.region(meta, everything, 0, box, 1) is None
    assert planes.encode(data, box, channels=1) is None
    with pytest.raises(ValueError, match="out"):
        planes.region(meta, everything, 0, box, 3, np.empty((40, 59, 3), np.uint8))
    out = np.empty((40, 60, 3), np.uint8)
    assert planes.region(meta, everything, 0, box, 3, out) is out


def test_what_has_planes() -> None:
    for options, fits in [({}, True), ({"progressive": True}, False)]:
        data = encode(picture("smooth", 33, 50), **options)
        header = claim(data)
        assert header is not None
        assert header.plain is fits
        assert (planes.encode(data) is not None) is fits
    assert planes.encode(data[: len(data) // 2]) is None


def test_an_index_is_made_of_all() -> None:
    data = encode(picture("noise", 120, 200), quality=80)
    whole, other = jpeg.Index(), jpeg.Index()
    jpeg.decode(data, index=whole)
    planes.encode(data, (50, 50, 9, 9), index=other)
    assert other.grown
    assert np.array_equal(whole.bytes, other.bytes)
    assert planes.encode(data, (50, 50, 9, 9), index=other) is not None
    assert other.used
    assert planes.encode(b"", index=other) is None
    assert not other.used


# -- what is in the parts -------------------------------------------------------------------------------------


def codes(parts: list[np.ndarray], blocks: int) -> Iterator[int]:
    """The codes of a grey picture's blocks, `blocks` a row."""
    for part in parts:
        begin = int(part[4:8].view(np.uint32)[0])  # of the first row of blocks: behind all their places
        for start in part[4:begin].view(np.uint32).tolist():
            yield from part[start : start + blocks].tolist()


def test_any_samples() -> None:
    rng, seen = np.random.default_rng(0), set()
    for _ in range(30):
        samples = some_samples(rng, 8 * int(rng.integers(1, 20)), 8 * int(rng.integers(1, 60)))
        height, width = samples.shape
        meta, parts = grey(samples)
        found = region(meta, parts, (0, 0, height, width), 1)
        assert found is not None
        assert np.array_equal(found[:, :, 0], samples)
        seen |= set(codes(parts, width // 8))
        assert sum(map(len, parts)) <= samples.size * 66 // 64 + height // 2 + 12 * len(parts)
    level = set(range(pf.WIDTHS))
    steep = {code for code in range(pf.STEEP, pf.STEEP + pf.WIDTHS**2) if code in seen}
    assert level <= seen
    assert len(steep) > 40


def test_smooth_pictures_are_small() -> None:
    ramp = np.add.outer(np.arange(64) * 2, np.arange(64)).astype(np.uint8)
    for samples, most in [(np.full((64, 64), 77), 0), (ramp % 16, 7 * 5 + 4), (ramp, 7 * 3 + 3)]:
        _, parts = grey(samples.astype(np.uint8))
        assert sum(map(len, parts)) <= 64 * (2 + most) + 8 * 4 + 12 * len(parts)


def test_parts_are_few_and_a_region_needs_its_own() -> None:
    data = encode(picture("noise", 480, 64), subsampling=0)
    packed = kept(data)
    assert packed is not None
    meta, parts = packed
    assert len(parts) == pf.PARTS
    for top, height, span in [(0, 480, (0, 12)), (0, 1, (0, 1)), (479, 1, (11, 12)), (39, 2, (0, 2)), (40, 40, (1, 2))]:
        assert planes.needed(meta, (top, 3, height, 9)) == span
    # what is fancily upsampled needs the row of the neighbours
    meta, parts = kept(encode(picture("noise", 480, 64), subsampling=2)) or (b"", [])
    assert planes.needed(meta, (48, 3, 48, 9)) == (0, 3)


# -- damage ---------------------------------------------------------------------------------------------------


def test_damage_is_never_followed(thorough: bool) -> None:
    """Whatever the bytes say: no access beyond them, or beyond working memory."""
    refused = taken = 0
    for seed in range(400 if thorough else 25):
        data, rng = intact(seed), random.Random(seed)
        _, _, channels = shape(data)
        packed = kept(data)
        if packed is None:
            continue
        for box in boxes(data, rng, 4):
            first, last = planes.needed(packed[0], box)
            for side in SIDES:
                for number in range(12):
                    meta, part = packed[0], np.concatenate(packed[1][first:last])
                    if number:
                        meta, part = spoilt(rng, meta, part)
                    with guarded_scratch(side):
                        out = guarded((*box[2:], channels), np.uint8, side)
                        found = planes.region(meta, guarded_copy(part, side), first, box, channels, out)
                    refused, taken = refused + (found is None), taken + (found is not None)
                    assert found is not None or number
                    assert number or np.array_equal(found, jpeg.decode(data, box))
    assert min(refused, taken) > 300


def test_working_memory_is_large_enough() -> None:
    for seed in range(20):
        data = intact(seed)
        for side in SIDES:
            with guarded_scratch(side):
                planes.encode(data)
    noise = encode(picture("binary", 100, 90), quality=100, subsampling=0)
    for side in SIDES:
        with guarded_scratch(side):
            assert planes.encode(noise) is not None


def test_damaged_files_have_none_or_the_right_ones() -> None:
    rng = np.random.default_rng(0)
    none = 0
    for seed in range(60):
        data = damaged(intact(seed), rng, header=bool(seed % 2))
        packed = kept(data)
        none += packed is None
        if packed is not None:
            height, width, channels = shape(data)
            found = region(*packed, (0, 0, height, width), channels)
            assert np.array_equal(found, jpeg.decode(data))  # type: ignore[arg-type]
    assert none > 20


def test_descriptions_that_there_cannot_be() -> None:
    packed = kept(encode(picture("smooth", 20, 20)))
    assert packed is not None
    meta, _ = packed
    box = (0, 0, 20, 20)
    assert planes.needed(meta, box) != (0, 0)
    assert planes.needed(meta[:-2], box) == (0, 0)
    wrong = {
        pf.FORM: (pf.VERSION - 1, 0),
        pf.WIDTH: (0, 65501),
        pf.HEIGHT: (0, 65501),
        pf.COMPONENTS: (0, 1, 2, 4),
        pf.COLOUR: (hd.GREY, hd.RGB + 1),
        pf.BAND: (0,),
        pf.SAMPLING: (0, 3, 8),  # beside components with half of 2
        pf.SAMPLING + 1: (0, 3, 8),
        pf.SAMPLING + 2: (0, 3),
    }
    for place, values in wrong.items():
        for value in values:
            words = np.frombuffer(meta, np.uint16).copy()
            words[pf.SAMPLING + 4 : pf.SAMPLING + 6] = 2
            assert planes.needed(words.tobytes(), box) != (0, 0)
            words[place] = value
            assert planes.needed(words.tobytes(), box) == (0, 0), (place, value)
    words[pf.WIDTH : pf.HEIGHT + 1] = 65000
    assert hd.MAX_PIXELS < 65000**2
    assert planes.needed(words.tobytes(), (0, 0, 65000, 65000)) == (0, 0)


def test_processors_without_the_instructions(tmp_path: Path) -> None:
    """The same bytes and pixels, by plain vectors."""
    data = encode(picture("smooth", 60, 90), subsampling=2)
    found, arrays = jpeg.decode_whole(data, None, None, None), tmp_path / "arrays.npz"
    assert found is not None
    np.savez(arrays, header=inside.scratch().header, layout=inside.scratch().layout, memory=found[1])
    code = """
import sys
import numpy as np
from accel.codec import jpeg
from accel.codec.jpeg import planes
with np.load(sys.argv[1]) as arrays:
    header, layout, memory = arrays.values()
vars(jpeg._scratch).update(header=header, layout=layout)
jpeg.decode_whole = lambda *_: (None, memory)
found = planes.encode(b"")
parts = found.content
print(found.meta.hex(), parts.tobytes().hex())
print(planes.region(found.meta, parts, 0, (3, 5, 50, 70), 3).tobytes().hex())
"""
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "ACCEL_CACHE_DIR": str(tmp_path)}
    packed, pixels = python(code, str(arrays), environment=plain).splitlines()
    meta, parts = kept(data) or (b"", [])
    assert packed == f"{meta.hex()} {np.concatenate(parts).tobytes().hex()}"
    assert pixels == found[0][3:53, 5:75].tobytes().hex()

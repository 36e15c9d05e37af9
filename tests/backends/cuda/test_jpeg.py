"""The device's JPEG decoder: the pixels are Pillow's, whole or in part, or there are none.

``ACCEL_TEST_PHOTOS=DIR`` also decodes the JPEG files of a folder.
"""

from __future__ import annotations

import itertools
import os
import struct
import warnings
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from PIL import Image

from accel.backends.cuda import backend
from accel.backends.cuda.jpeg import Wanted
from accel.codec.engines import Box
from bench.fuzz.coder import SAMPLINGS, Coder, random_blocks
from bench.fuzz.files import KINDS, encode, picture, pillow
from bench.fuzz.segments import JFIF, adobe
from tests.support.cuda import DEVICE, needs_compiler
from tests.support.jpeg import damaged, files_and_boxes

pytestmark = needs_compiler

PHOTOS = os.environ.get("ACCEL_TEST_PHOTOS")


@cache
def engine() -> Any:
    return backend._Engine(torch.empty(0, device=DEVICE).device)


def decode_all(wanted: Sequence[Wanted]) -> list[np.ndarray | None]:
    """One batch: uint8[height, width, channels] each, or None where the host's decoders are asked."""
    with engine().device.enter():
        decoding = engine().jpeg.decode(wanted)
    flagged = decoding.flagged()
    pixels: list[np.ndarray | None] = []
    for number, each in enumerate(wanted):
        if decoding.addresses[number] is None or number in flagged:
            pixels.append(None)
            continue
        shape = (each.box[2], each.box[3], each.channels)
        pixels.append(decoding.read(number, int(np.prod(shape))).reshape(shape))
    return pixels


def whole(data: bytes, channels: int | None = None) -> Wanted:
    """All of a file, whatever its other decoders think of it."""
    with Image.open(BytesIO(data)) as image:
        width, height = image.size
        return Wanted(data, (0, 0, height, width), channels or len(image.getbands()))


def decode(data: bytes, box: Box | None = None, channels: int | None = None) -> np.ndarray | None:
    wanted = whole(data, channels)
    return decode_all([wanted if box is None else wanted._replace(box=box)])[0]


def assert_same(files: Sequence[bytes]) -> list[np.ndarray]:
    """All of them, in one batch, are Pillow's; returns the pictures."""
    found = decode_all([whole(data) for data in files])
    for pixels, data in zip(found, files, strict=True):
        assert pixels is not None
        np.testing.assert_array_equal(pixels, pillow(data))
    return [pixels for pixels in found if pixels is not None]


def crop(pixels: np.ndarray, box: Box) -> np.ndarray:
    top, left, height, width = box
    return pixels[top : top + height, left : left + width]


def some_box(rng: np.random.Generator, height: int, width: int) -> Box:
    top, left = int(rng.integers(height)), int(rng.integers(width))
    return top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_pillows_files(kind: str) -> None:
    options = itertools.product((1, 30, 75, 95, 100), (0, 1, 2), (False, True))
    pixels = picture(kind, 61, 83)
    assert_same([encode(pixels, quality=q, subsampling=s, optimize=o) for q, s, o in options])


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_every_quality(subsampling: int) -> None:
    pixels = picture("smooth", 33, 47)
    assert_same([encode(pixels, quality=quality, subsampling=subsampling) for quality in range(1, 101)])


def test_grey_in_one_and_three_channels() -> None:
    data = encode(picture("smooth", 45, 70, 1))
    (grey,) = assert_same([data])
    assert grey.shape == (45, 70, 1)
    np.testing.assert_array_equal(decode(data, channels=3), np.repeat(grey, 3, 2))


def file_of(size: tuple[int, int], factors: list[tuple[int, int]], made: dict[int, bytes]) -> bytes:
    """A file of that size; ``made``: one for every number of MCUs, since those with as many have the same scan."""
    height, width = size
    mcus = -(-height // (8 * max(v for _, v in factors))) * -(-width // (8 * max(h for h, _ in factors)))
    if mcus not in made:
        made[mcus] = Coder().file(size, [(1 + c, h, v) for c, (h, v) in enumerate(factors)], random_blocks(97))
    frame = made[mcus].index(b"\xff\xc0") + 5
    return made[mcus][:frame] + struct.pack(">HH", *size) + made[mcus][frame + 4 :]


@pytest.mark.parametrize("factors", SAMPLINGS, ids=str)
def test_every_sampling_and_size(factors: list[tuple[int, int]], thorough: bool) -> None:
    """And regions, which are crops."""
    rng = np.random.default_rng(3)
    sizes = list(itertools.product(range(1, 68), repeat=2))
    chosen = sizes if thorough else [sizes[i] for i in rng.choice(len(sizes), 20, replace=False)]
    chosen += [(67, 83), (40, 5), (3, 90), (1, 1), (16, 33), (33, 4), (131, 7), (9, 257)]
    made: dict[int, bytes] = {}
    for first in range(0, len(chosen), 100):
        files = [file_of(size, factors, made) for size in chosen[first : first + 100]]
        pictures = assert_same(files)
        boxes = [some_box(rng, *pixels.shape[:2]) for pixels in pictures]
        channels = pictures[0].shape[2]
        regions = decode_all([Wanted(data, box, channels) for data, box in zip(files, boxes, strict=True)])
        for pixels, box, region in zip(pictures, boxes, regions, strict=True):
            np.testing.assert_array_equal(region, crop(pixels, box))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_regions_are_crops(subsampling: int) -> None:
    rng = np.random.default_rng(subsampling)
    height, width = 117, 93
    data = encode(picture("smooth", height, width), subsampling=subsampling)
    (pixels,) = assert_same([data])
    boxes = [(0, 0, 1, 1), (0, 0, height, width), (height - 1, width - 1, 1, 1), (0, width - 1, height, 1)]
    boxes += [(16, 16, 16, 16), (15, 15, 2, 2), (height - 1, 0, 1, width)]
    boxes += [some_box(rng, height, width) for _ in range(60)]
    for box, region in zip(boxes, decode_all([Wanted(data, box, 3) for box in boxes]), strict=True):
        np.testing.assert_array_equal(region, crop(pixels, box))


def test_restart_markers() -> None:
    pixels = picture("smooth", 75, 90)
    every: list[dict[str, int]] = [{"restart_marker_blocks": n} for n in (1, 2, 3, 7, 40)]
    every.append({"restart_marker_rows": 1})
    assert_same([encode(pixels, subsampling=s, **each) for s in (0, 1, 2) for each in every])
    data = encode(pixels, restart_marker_blocks=2)
    np.testing.assert_array_equal(decode(data, (30, 40, 11, 12)), crop(pillow(data), (30, 40, 11, 12)))
    first = data.index(b"\xff\xd0")
    assert decode(data[:first] + b"\xff\xd1" + data[first + 2 :]) is None
    assert decode(data[:first] + data[first + 2 :]) is None


@pytest.mark.parametrize("identifiers", [(1, 2, 3), (82, 71, 66), (0, 1, 2)])
def test_colour_space_rules(identifiers: tuple[int, ...]) -> None:
    extras = (b"", JFIF, adobe(0), adobe(1), adobe(2), JFIF + adobe(0))
    components = [(i, 1, 1) for i in identifiers]
    assert_same([Coder().file((20, 21), components, random_blocks(27), extra=extra) for extra in extras])
    assert_same([encode(picture("smooth", 50, 60), keep_rgb=True)])


def test_grey_with_sampling_factors() -> None:
    assert_same([Coder().file((37, 29), [(1, 2, 2)], random_blocks(20))])


LENGTHS = [(8,) * 162, (2, 3, 4, *(16,) * 159), (16,) * 162, (1, *(9,) * 20, *(13,) * 141)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=["even", "short", "long", "mixed"])
def test_long_codes(lengths: tuple[int, ...]) -> None:
    assert_same([Coder(lengths).file((40, 56), [(1, 1, 1)], random_blocks(35, density=0.7))])


def test_large_coefficients_are_pillows_or_refused() -> None:
    coder, seen = Coder(), {1: set[bool](), 16: set[bool](), 64: set[bool]()}
    for quant, density in itertools.product(seen, (0.02, 0.1, 0.5)):
        streams = [random_blocks(4, seed, spread=100, density=density) for seed in range(12)]
        files = [coder.file((16, 16), [(1, 1, 1)], blocks, quant=quant) for blocks in streams]
        for data, pixels in zip(files, decode_all([whole(data) for data in files]), strict=True):
            seen[quant].add(pixels is not None)
            assert pixels is None or np.array_equal(pixels, pillow(data))
    assert seen[1] == {True}
    assert seen[16] == {True, False}


def test_wide_quantisers() -> None:
    assert_same([Coder().file((16, 16), [(1, 1, 1)], np.eye(4, 64, dtype=int), quant=300, wide=True)])
    assert decode(Coder().file((16, 16), [(1, 1, 1)], np.eye(4, 64, dtype=int), quant=9000, wide=True)) is None


def test_quantisation_tables_of_both_widths() -> None:
    """Of any values, also above 255, and of one width for luma and another for chroma."""
    rng, files = np.random.default_rng(4), []
    for n in range(24):
        data = encode(picture("smooth", 45, 52), quality=10 + n, subsampling=n % 3)
        segment = struct.pack(">BBH", 0xFF, 0xDB, 67)
        at = data.index(segment)
        assert data[at + 69 : at + 73] == segment  # one for luma, one for chroma
        tables = b""
        for identity, wide in enumerate(((1, 1), (0, 1), (1, 0))[n % 3]):
            values = rng.integers(1, np.where(np.arange(64) < 6, 20, 900 if wide else 256))
            body = bytes([wide << 4 | identity]) + values.astype(">u2" if wide else "u1").tobytes()
            tables += struct.pack(">BBH", 0xFF, 0xDB, len(body) + 2) + body
        files.append(data[:at] + tables + data[at + 2 * 69 :])
    found = decode_all([whole(data) for data in files])
    for pixels, data in zip(found, files, strict=True):
        assert pixels is None or np.array_equal(pixels, pillow(data))
    assert sum(pixels is not None for pixels in found) > 12  # the others' sums leave 16 bits


def test_segments_of_all_sizes() -> None:
    data = encode(picture("smooth", 20, 30))
    markers = itertools.cycle((*range(0xE0, 0xF0), 0xFE))
    sizes = (*range(140), 255, 256, 4095, 4096, 65533)
    segments = [struct.pack(">BBH", 0xFF, next(markers), size + 2) + b"\xff" * size for size in sizes]
    at = data.index(b"\xff\xc0")
    assert_same([data[:at] + segment + data[at:] for segment in segments])


def test_streams_that_synchronise_late() -> None:
    """Where all blocks look alike, a wrong guess stays wrong for long; many blocks of threads are joined."""
    x = np.arange(700)
    pictures = {
        "flat": np.full((700, 700, 3), 90),
        "squares": np.stack([((x[:, None] // 8 + x // 8) % 2) * 255] * 3, 2),
        "stripes": np.stack([np.tile((x % 2) * 255, (700, 1))] * 3, 2),
        "noise": np.random.default_rng(1).integers(0, 256, (700, 700, 3)),
    }
    for pixels in pictures.values():
        assert_same([encode(pixels.astype(np.uint8), quality=q, subsampling=s) for q in (1, 100) for s in (0, 2)])


def test_markers_around_the_scan() -> None:
    data = encode(picture("smooth", 40, 40))
    segments = (b"\xff\xe5\xff\xff" + bytes(65533), b"\xff\xfe\0\x02", b"\xff\xe1\0\x10" + b"\xff\xd9" * 7, b"\xff\xff")
    trailers = (b"\0", b"garbage" * 99, data)
    assert_same([data[:2] + extra + data[2:] for extra in segments] + [data + garbage for garbage in trailers])
    assert_same([data.replace(b"\xff\xc0", b"\xff\xc1", 1)])  # extended sequential


def test_what_is_left_to_the_host() -> None:
    pixels = picture("smooth", 40, 40)
    cmyk = BytesIO()
    Image.fromarray(pixels).convert("CMYK").save(cmyk, "JPEG")
    data = encode(pixels)
    scan, frame = data.rindex(b"\xff\xda"), data.index(b"\xff\xc0")
    refused = {
        "progressive": encode(pixels, progressive=True),
        "cmyk": cmyk.getvalue(),
        "no EOI": data[:-2],
        "left over": data[:-2] + b"\0" + data[-2:],
        "left over ones": data[:-2] + b"\xff\0" + data[-2:],
        "second scan": data[:-2] + data[scan:],
        "12 bits": data[: frame + 4] + b"\x0c" + data[frame + 5 :],
        "arithmetic": data[: frame + 1] + b"\xc9" + data[frame + 2 :],
        "fractional": Coder().file((40, 40), [(1, 3, 1), (2, 2, 1), (3, 1, 1)], random_blocks(36)),
        "padded with zeros": data[:-3] + bytes([data[-3] & 0xFE]) + data[-2:],
        "empty": b"",
        "not a JPEG": b"\x89PNG" + bytes(100),
    }
    files = [data, *refused.values(), data]
    found = decode_all([Wanted(each, (0, 0, 40, 40), 3) for each in files])
    for pixels in (found[0], found[-1]):
        np.testing.assert_array_equal(pixels, pillow(data))
    for name, pixels in zip(refused, found[1:-1], strict=True):
        if name == "padded with zeros" and pixels is not None:
            continue  # it had no padding
        assert pixels is None, name
    assert decode(data, (0, 0, 41, 40)) is None
    assert decode(data, (0, 0, 40, 40), channels=1) is None


def test_truncations() -> None:
    data = encode(picture("smooth", 24, 24), quality=60)
    start = data.rindex(b"\xff\xda") + 14
    cut = [data[:length] for length in range(start, len(data), 3)]
    assert decode_all([Wanted(each, (0, 0, 24, 24), 3) for each in cut]) == [None] * len(cut)
    ended = [each + b"\xff\xd9" for each in cut]
    for each, pixels in zip(ended, decode_all([whole(each) for each in ended]), strict=True):
        assert pixels is None or np.array_equal(pixels, pillow(each))


def test_damage_is_seen_or_harmless() -> None:
    rng = np.random.default_rng(0)
    sources = [
        encode(picture("smooth", 33, 47), subsampling=2, quality=75),
        encode(picture("smooth", 33, 47), subsampling=0, quality=90, optimize=True),
        encode(picture("noise", 33, 47), subsampling=1, quality=50),
        encode(picture("smooth", 33, 47), subsampling=2, quality=40, restart_marker_blocks=2),
    ]
    files = [damaged(sources[n % 4], rng, header=n % 3 == 0) for n in range(400)]
    found = decode_all([Wanted(each, (0, 0, 33, 47), 3) for each in files])
    accepted = 0
    for data, pixels in zip(files, found, strict=True):
        if pixels is None:
            continue
        accepted += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(pixels, pillow(data)[:33, :47])
    assert 40 < accepted < 360


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=files_and_boxes(90))
def test_any_encoder_setting(drawn: tuple[bytes, Box]) -> None:
    file, box = drawn
    (whole,) = assert_same([file])
    np.testing.assert_array_equal(decode(file, box), crop(whole, box))


def test_no_files() -> None:
    assert decode_all([]) == []


@pytest.mark.skipif(not PHOTOS, reason="ACCEL_TEST_PHOTOS names no folder")
@pytest.mark.parametrize("anew", [False, True], ids=["as they are", "encoded anew"])
def test_photos(anew: bool) -> None:
    assert PHOTOS is not None
    paths = sorted(Path(PHOTOS).rglob("*.jp*g"))

    def file(number: int) -> bytes:
        data = paths[number].read_bytes()
        if not anew:
            return data
        restarts = {"restart_marker_blocks": (0, 1, 5, 1000)[number % 4]}
        options = {"quality": number % 100 + 1, "subsampling": number % 3, "optimize": number % 2 == 0}
        return encode(np.asarray(Image.open(BytesIO(data)).convert("RGB")), **options, **restarts)

    for first in range(0, len(paths), 50):
        assert_same([file(number) for number in range(first, min(first + 50, len(paths)))])

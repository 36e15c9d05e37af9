"""accel's JPEG decoders, the host's and the device's: the pixels are Pillow's, whole or in part, or there are none.

``ACCEL_TEST_PHOTOS=DIR`` also decodes the JPEG files of a folder.
"""

import itertools
import os
import struct
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image

from accel.backends.cuda.jpeg import Request
from accel.codec.engines import Box
from accel.codec.jpeg import decode
from bench.fuzz.coder import SAMPLINGS, Coder, random_blocks
from bench.fuzz.files import KINDS, encode, picture, pillow
from bench.fuzz.segments import JFIF, adobe
from tests.support import inside
from tests.support.cuda import DEVICE, needs_compiler
from tests.support.jpeg import damaged, files_and_boxes

PHOTOS = os.environ.get("ACCEL_TEST_PHOTOS")
Decode = Callable[[Sequence[Request]], list[Any]]


@cache
def engine() -> Any:
    return inside.engine(DEVICE)


def on_the_device(wanted: Sequence[Request]) -> list[Any]:
    """One batch: uint8[height, width, channels] each, or None where the host's decoders are asked."""
    with engine().device.enter():
        decoding = engine().jpeg.decode(wanted)
    flagged = decoding.flagged()
    pixels: list[Any] = []
    for number, each in enumerate(wanted):
        shape = (each.box[2], each.box[3], each.channels)
        given = decoding.addresses[number] is not None and number not in flagged
        pixels.append(decoding.read(number, int(np.prod(shape))).reshape(shape) if given else None)
    return pixels


def on_the_host(wanted: Sequence[Request]) -> list[Any]:
    return [decode(each.data, each.box, channels=each.channels) for each in wanted]


DECODERS = [
    pytest.param(on_the_host, id="host"),
    pytest.param(on_the_device, id="device", marks=needs_compiler),
]


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> Decode:
    return request.param  # type: ignore[no-any-return]


def whole(data: bytes, channels: int | None = None) -> Request:
    """All of a file, whatever its other decoders think of it."""
    with Image.open(BytesIO(data)) as image:
        width, height = image.size
        return Request(data, (0, 0, height, width), channels or len(image.getbands()))


def one(decoder: Decode, data: bytes, box: Box | None = None, channels: int | None = None) -> Any:
    wanted = whole(data, channels)
    return decoder([wanted if box is None else wanted._replace(box=box)])[0]


def assert_same(decoder: Decode, files: Sequence[bytes]) -> list[np.ndarray]:
    """All of them are Pillow's; returns the pictures."""
    found = decoder([whole(data) for data in files])
    for pixels, data in zip(found, files, strict=True):
        assert pixels is not None
        assert pixels.dtype == np.uint8
        assert pixels.flags.c_contiguous
        np.testing.assert_array_equal(pixels, pillow(data))
    return found


def taken(decoder: Decode, files: Sequence[bytes]) -> list[bool]:
    """Which of the files are decoded; those that are, are Pillow's pictures."""
    found = decoder([whole(data) for data in files])
    for pixels, data in zip(found, files, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert pixels is None or np.array_equal(pixels, pillow(data))
    return [pixels is not None for pixels in found]


def crop(pixels: np.ndarray, box: Box) -> np.ndarray:
    top, left, height, width = box
    return pixels[top : top + height, left : left + width]


def some_box(rng: np.random.Generator, height: int, width: int) -> Box:
    top, left = int(rng.integers(height)), int(rng.integers(width))
    return top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_pillows_files(kind: str, decoder: Decode) -> None:
    options = itertools.product((1, 30, 75, 95, 100), (0, 1, 2), (False, True))
    pixels = picture(kind, 61, 83)
    assert_same(decoder, [encode(pixels, quality=q, subsampling=s, optimize=o) for q, s, o in options])


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_every_quality(subsampling: int, decoder: Decode) -> None:
    pixels = picture("smooth", 33, 47)
    assert_same(decoder, [encode(pixels, quality=quality, subsampling=subsampling) for quality in range(1, 101)])


@pytest.mark.parametrize("kind", KINDS)
def test_grey_in_one_and_three_channels(kind: str, decoder: Decode) -> None:
    for quality in (1, 50, 95, 100):
        data = encode(picture(kind, 45, 70, 1), quality=quality)
        (grey,) = assert_same(decoder, [data])
        assert grey.shape == (45, 70, 1)
        np.testing.assert_array_equal(one(decoder, data, channels=3), np.repeat(grey, 3, 2))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_every_small_size(subsampling: int) -> None:
    sizes = {(n, m) for n in range(1, 41) for m in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 40, n)}
    assert_same(on_the_host, [encode(picture("smooth", *size), subsampling=subsampling, quality=90) for size in sizes])


def file_of(size: tuple[int, int], factors: list[tuple[int, int]], made: dict[int, bytes]) -> bytes:
    """A file of that size; ``made``: one for every number of MCUs, since those with as many have the same scan."""
    height, width = size
    mcus = -(-height // (8 * max(v for _, v in factors))) * -(-width // (8 * max(h for h, _ in factors)))
    if mcus not in made:
        made[mcus] = Coder().file(size, [(1 + c, h, v) for c, (h, v) in enumerate(factors)], random_blocks(97))
    frame = made[mcus].index(b"\xff\xc0") + 5
    return made[mcus][:frame] + struct.pack(">HH", *size) + made[mcus][frame + 4 :]


@pytest.mark.parametrize("factors", SAMPLINGS, ids=str)
def test_every_sampling_and_size(factors: list[tuple[int, int]], thorough: bool, decoder: Decode) -> None:
    """And regions, which are crops."""
    rng = np.random.default_rng(3)
    sizes = list(itertools.product(range(1, 68), repeat=2))
    chosen = sizes if thorough else [sizes[i] for i in rng.choice(len(sizes), 20, replace=False)]
    chosen += [(67, 83), (40, 5), (3, 90), (1, 1), (16, 33), (33, 4), (131, 7), (9, 257)]
    made: dict[int, bytes] = {}
    for first in range(0, len(chosen), 100):
        files = [file_of(size, factors, made) for size in chosen[first : first + 100]]
        pictures = assert_same(decoder, files)
        boxes = [some_box(rng, *pixels.shape[:2]) for pixels in pictures]
        channels = pictures[0].shape[2]
        regions = decoder([Request(data, box, channels) for data, box in zip(files, boxes, strict=True)])
        for pixels, box, region in zip(pictures, boxes, regions, strict=True):
            np.testing.assert_array_equal(region, crop(pixels, box))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_regions_are_crops(subsampling: int, decoder: Decode) -> None:
    rng = np.random.default_rng(subsampling)
    height, width = 117, 93
    data = encode(picture("smooth", height, width), subsampling=subsampling)
    (pixels,) = assert_same(decoder, [data])
    boxes = [(0, 0, 1, 1), (0, 0, height, width), (height - 1, width - 1, 1, 1), (0, width - 1, height, 1)]
    boxes += [(16, 16, 16, 16), (15, 15, 2, 2), (height - 1, 0, 1, width)]
    boxes += [some_box(rng, height, width) for _ in range(100)]
    for box, region in zip(boxes, decoder([Request(data, box, 3) for box in boxes]), strict=True):
        np.testing.assert_array_equal(region, crop(pixels, box))


def test_restart_markers(decoder: Decode) -> None:
    pixels = picture("smooth", 75, 90)
    every: list[dict[str, int]] = [{"restart_marker_blocks": n} for n in (1, 2, 3, 7, 40)]
    every.append({"restart_marker_rows": 1})
    for each in every:
        for subsampling in (0, 1, 2):
            data = encode(pixels, subsampling=subsampling, **each)
            (found,) = assert_same(decoder, [data])
            box = (30, 40, 11, 12)
            np.testing.assert_array_equal(one(decoder, data, box), crop(found, box))
            if b"\xff\xd0" in data:
                first = data.index(b"\xff\xd0")
                wrong = [data[:first] + b"\xff\xd1" + data[first + 2 :], data[:first] + data[first + 2 :]]
                assert decoder([whole(each) for each in wrong]) == [None, None]


@pytest.mark.parametrize("identifiers", [(1, 2, 3), (82, 71, 66), (0, 1, 2), (7, 9, 8)])
def test_colour_space_rules(identifiers: tuple[int, ...], decoder: Decode) -> None:
    extras = (b"", JFIF, adobe(0), adobe(1), adobe(2), JFIF + adobe(0))
    components = [(i, 1, 1) for i in identifiers]
    assert_same(decoder, [Coder().file((20, 21), components, random_blocks(27), extra=extra) for extra in extras])


def test_rgb_files(decoder: Decode) -> None:
    data = encode(picture("smooth", 50, 60), keep_rgb=True)
    (pixels,) = assert_same(decoder, [data])
    np.testing.assert_array_equal(pixels[7:20, 3:50], one(decoder, data, (7, 3, 13, 47)))


def test_ratios_that_are_not_whole_are_left_to_pillow(decoder: Decode) -> None:
    data = Coder().file((20, 20), [(1, 3, 1), (2, 2, 1), (3, 1, 1)], random_blocks(36))
    assert decoder([Request(data, (0, 0, 20, 20), 3)]) == [None]


def test_grey_with_sampling_factors(decoder: Decode) -> None:
    assert_same(decoder, [Coder().file((37, 29), [(1, 2, 2)], random_blocks(20))])


def test_chroma_is_interpolated_as_libjpeg_does(decoder: Decode) -> None:
    """Flat blocks of known chroma: the samples are libjpeg's 3:1 mixture, not the nearer sample."""
    blocks = np.zeros((8, 64), int)
    blocks[2::4, 0] = (-40, 52)  # Cb of two 4:2:2 MCUs, in eighths around 128
    data = Coder().file((8, 32), [(1, 2, 1), (2, 1, 1), (3, 1, 1)], blocks, quant=8)
    cb = 128 + np.repeat([-40, 52], 8)
    before, after = np.pad(cb, 1, "edge")[:-2], np.pad(cb, 1, "edge")[2:]
    fancy = np.stack([3 * cb + before + 1 >> 2, 3 * cb + after + 2 >> 2], 1).reshape(-1)
    blue = [np.clip(128 + (116130 * (chroma - 128) + 32768 >> 16), 0, 255) for chroma in (fancy, np.repeat(cb, 2))]
    (pixels,) = assert_same(decoder, [data])
    np.testing.assert_array_equal(pixels[0, :, 2], blue[0])
    assert not np.array_equal(pixels[0, :, 2], blue[1])


LENGTHS = [(8,) * 162, (2, 3, 4, *(16,) * 159), (16,) * 162, (1, *(9,) * 20, *(13,) * 141)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=["even", "short", "long", "mixed"])
def test_long_codes(lengths: tuple[int, ...], decoder: Decode) -> None:
    data = Coder(lengths).file((40, 56), [(1, 1, 1)], random_blocks(35, density=0.7))
    assert_same(decoder, [data])
    assert one(decoder, data, (39, 55, 1, 1)) is not None


def test_tables_that_the_picture_before_had_in_part() -> None:
    """One file's tables may differ from those of the file before in a symbol only, and those of a refused file too."""
    pixels = picture("noise", 40, 56)
    plain = encode(pixels, quality=80)
    files = [plain, encode(pixels, quality=80, optimize=True), encode(pixels, quality=30, optimize=True)]
    for table in (0x00, 0x10, 0x01, 0x11):
        at = next(at for at in range(len(plain)) if plain[at : at + 2] == b"\xff\xc4" and plain[at + 4] == table) + 5
        for first, second in ((18, 19), (16, 17)):  # symbols, which change places
            symbols = bytearray(plain)
            symbols[at + first], symbols[at + second] = symbols[at + second], symbols[at + first]
            files.append(bytes(symbols))
        invalid = bytearray(plain)
        invalid[at], invalid[at + 1] = plain[at] + 2, 0  # two codes of one bit
        files.append(bytes(invalid))
    alone = taken(on_the_host, files)
    assert alone[:3] == [True] * 3
    assert not all(alone)
    for first in range(len(files)):
        order = [each for second in range(len(files)) for each in (first, second)]
        assert taken(on_the_host, [files[each] for each in order]) == [alone[each] for each in order]


def test_blocks_that_end_anywhere(decoder: Decode) -> None:
    """Around the sparse kernel's limit, and with or without an end of block."""
    files = []
    for last in (1, 5, 9, 10, 11, 62, 63):
        blocks = random_blocks(30, density=0.6)
        blocks[:, last + 1 :] = 0
        blocks[:, last] = 5
        files.append(Coder().file((37, 43), [(1, 1, 1)], blocks))
    assert_same(decoder, files)


def test_blocks_of_one_colour(decoder: Decode) -> None:
    """Of a DC coefficient only: up to both ends of what a sample may be, and as large as is not refused."""
    blocks = np.zeros((64, 64), int)
    blocks[:, 0] = np.arange(-32, 32) * 40
    assert_same(decoder, [Coder().file((64, 64), [(1, 1, 1)], blocks, quant=quant) for quant in (1, 2, 3)])
    blocks = np.zeros((4, 64), int)
    for value, good in ((59, True), (-59, True), (60, False), (-60, False)):
        blocks[1, 0] = value
        assert (one(decoder, Coder().file((16, 16), [(1, 1, 1)], blocks, quant=100)) is not None) == good


def test_large_coefficients_are_pillows_or_refused(decoder: Decode) -> None:
    """libjpeg-turbo's SIMD code keeps 16 bits in places; what could leave them is refused, what could not is not."""
    coder, seen = Coder(), {1: set[bool](), 4: set[bool](), 16: set[bool](), 64: set[bool]()}
    for quant, density in itertools.product(seen, (0.02, 0.1, 0.5)):
        streams = [random_blocks(4, seed, spread=100, density=density) for seed in range(12)]
        seen[quant] |= set(taken(decoder, [coder.file((16, 16), [(1, 1, 1)], each, quant=quant) for each in streams]))
    assert seen[1] == {True}
    assert seen[16] == {True, False}


def test_wide_quantisers(decoder: Decode) -> None:
    assert_same(decoder, [Coder().file((16, 16), [(1, 1, 1)], np.eye(4, 64, dtype=int), quant=300, wide=True)])
    assert one(decoder, Coder().file((16, 16), [(1, 1, 1)], np.eye(4, 64, dtype=int), quant=9000, wide=True)) is None


def test_quantisation_tables_of_both_widths(decoder: Decode) -> None:
    """Tables of any values, also above 255, and of one width for luma and another for chroma."""
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
    assert sum(taken(decoder, files)) > 12  # the others' sums leave 16 bits


def test_segments_of_all_sizes(decoder: Decode) -> None:
    data = encode(picture("smooth", 20, 30))
    markers = itertools.cycle((*range(0xE0, 0xF0), 0xFE))
    sizes = (*range(140), 255, 256, 4095, 4096, 65533)
    segments = [struct.pack(">BBH", 0xFF, next(markers), size + 2) + b"\xff" * size for size in sizes]
    at = data.index(b"\xff\xc0")
    assert_same(decoder, [data[:at] + segment + data[at:] for segment in segments])


def test_streams_that_synchronise_late(decoder: Decode) -> None:
    """Where all blocks look alike, a wrong guess stays wrong for long; many blocks of threads are joined."""
    x = np.arange(700)
    pictures = {
        "flat": np.full((700, 700, 3), 90),
        "squares": np.stack([((x[:, None] // 8 + x // 8) % 2) * 255] * 3, 2),
        "stripes": np.stack([np.tile((x % 2) * 255, (700, 1))] * 3, 2),
        "noise": np.random.default_rng(1).integers(0, 256, (700, 700, 3)),
    }
    for pixels in pictures.values():
        assert_same(
            decoder, [encode(pixels.astype(np.uint8), quality=q, subsampling=s) for q in (1, 100) for s in (0, 2)]
        )


def test_markers_around_the_scan(decoder: Decode) -> None:
    data = encode(picture("smooth", 40, 40))
    segments = (b"\xff\xe5\xff\xff" + bytes(65533), b"\xff\xfe\0\x02", b"\xff\xe1\0\x10" + b"\xff\xd9" * 7, b"\xff\xff")
    trailers = (b"\0", b"garbage" * 99, data)
    assert_same(decoder, [data[:2] + extra + data[2:] for extra in segments] + [data + garbage for garbage in trailers])
    assert_same(decoder, [data.replace(b"\xff\xc0", b"\xff\xc1", 1)])  # extended sequential


def test_what_is_left_to_pillow(decoder: Decode) -> None:
    pixels = picture("smooth", 40, 40)
    cmyk = BytesIO()
    Image.fromarray(pixels).convert("CMYK").save(cmyk, "JPEG")
    data = encode(pixels)
    scan, frame = data.rindex(b"\xff\xda"), data.index(b"\xff\xc0")
    refused = {
        "progressive": encode(pixels, progressive=True),
        "progressive grey": encode(pixels[..., 0], progressive=True),
        "cmyk": cmyk.getvalue(),
        "no EOI": data[:-2],
        "left over": data[:-2] + b"\0" + data[-2:],
        "left over ones": data[:-2] + b"\xff\0" + data[-2:],
        "second scan": data[:-2] + data[scan:],
        "12 bits": data[: frame + 4] + b"\x0c" + data[frame + 5 :],
        "arithmetic": data[: frame + 1] + b"\xc9" + data[frame + 2 :],
        "two frames": data[:frame] + data[frame : frame + 19] + data[frame:],
        "no height": data[: frame + 5] + b"\0\0" + data[frame + 7 :],
        "huge": data[: frame + 5] + b"\xff\xff\xff\xff" + data[frame + 9 :],
        "junk before a marker": data[:2] + b"\0" + data[2:],
        "short JFIF": data[:2] + b"\xff\xe0\0\x07JFIF\0" + data[2:],
        "short Adobe": data[:2] + adobe(0)[:2] + b"\0\x07Adobe" + data[2:],
        "empty": b"",
        "not a JPEG": b"\x89PNG" + bytes(100),
    }
    files = [data, *refused.values(), data]
    found = decoder([Request(each, (0, 0, 40, 40), 3) for each in files])
    for pixels in (found[0], found[-1]):
        np.testing.assert_array_equal(pixels, pillow(data))
    for name, pixels in zip(refused, found[1:-1], strict=True):
        assert pixels is None, name
    assert one(decoder, data, channels=1) is None


def test_boxes_outside_the_picture(decoder: Decode) -> None:
    data = encode(picture("flat", 20, 30))
    boxes = [(0, 0, 21, 1), (0, 0, 1, 31), (-1, 0, 5, 5), (0, -1, 5, 5), (19, 0, 2, 1)]
    assert decoder([Request(data, box, 3) for box in boxes]) == [None] * len(boxes)


def test_boxes_that_are_none() -> None:
    data = encode(picture("flat", 20, 30))
    for box in [(5, 5, 0, 3), (5, 5, 3, -1), (2**62, 2**62, 2**62, 2**62)]:
        assert decode(data, box) is None


def test_a_region_does_not_need_the_rest_of_the_scan() -> None:
    pixels = picture("noise", 160, 40)
    data = encode(pixels)
    expected = decode(data, (0, 0, 16, 40))
    assert expected is not None
    np.testing.assert_array_equal(decode(data[: 3 * len(data) // 4] + b"\xff\xd9", (0, 0, 16, 40)), expected)


def test_truncations(decoder: Decode, thorough: bool) -> None:
    data = encode(picture("smooth", 24, 24), quality=60)
    start = data.rindex(b"\xff\xda") + 14
    cut = [data[:length] for length in range(0, len(data), 1 if thorough else 3)]
    assert decoder([Request(each, (0, 0, 24, 24), 3) for each in cut]) == [None] * len(cut)
    taken(decoder, [each + b"\xff\xd9" for each in cut if len(each) > start])


def test_damage_is_seen_or_harmless(decoder: Decode) -> None:
    """Damage to scan and header."""
    rng = np.random.default_rng(0)
    sources = [
        encode(picture("smooth", 33, 47), subsampling=2, quality=75),
        encode(picture("smooth", 33, 47), subsampling=0, quality=90, optimize=True),
        encode(picture("noise", 33, 47), subsampling=1, quality=50),
        encode(picture("smooth", 33, 47), subsampling=2, quality=40, restart_marker_blocks=2),
    ]
    files = [damaged(sources[n % 4], rng, header=n % 3 == 0) for n in range(400)]
    found = decoder([Request(each, (0, 0, 33, 47), 3) for each in files])
    accepted = [(data, pixels) for data, pixels in zip(files, found, strict=True) if pixels is not None]
    for data, pixels in accepted:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(pixels, pillow(data)[:33, :47])
    assert 40 < len(accepted) < 360


@pytest.mark.parametrize("decoder", DECODERS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=files_and_boxes(80))
def test_any_encoder_setting(decoder: Decode, drawn: tuple[bytes, Box]) -> None:
    file, box = drawn
    (whole,) = assert_same(decoder, [file])
    np.testing.assert_array_equal(one(decoder, file, box), crop(whole, box))


@needs_compiler
def test_no_files() -> None:
    assert on_the_device([]) == []


def test_out_and_channels() -> None:
    data = encode(picture("smooth", 30, 40))
    expected = assert_same(on_the_host, [data])[0]
    batch = np.zeros((2, 30, 40, 3), np.uint8)
    assert decode(data, out=batch[1]) is not None
    np.testing.assert_array_equal(batch[1], expected)
    assert not batch[0].any()
    np.testing.assert_array_equal(decode(memoryview(data), channels=3), expected)
    np.testing.assert_array_equal(decode(memoryview(bytearray(data))), expected)
    assert decode(data, channels=1) is None
    with pytest.raises(ValueError, match="channels"):
        decode(data, channels=4)
    for wrong in (batch, batch[0, ::-1], batch[0].astype(np.int8), np.zeros((30, 41, 3), np.uint8)):
        with pytest.raises(ValueError, match="out"):
            decode(data, out=wrong)


@pytest.mark.parametrize("width", [1, 31, 32, 33, 65])
def test_nothing_is_written_beyond_out(width: int) -> None:
    memory = np.full(3 * 9 * width + 400, 77, np.uint8)
    out = memory[200 : 200 + 27 * width].reshape(9, width, 3)
    for subsampling in (0, 2):
        data = encode(picture("smooth", 40, 70), subsampling=subsampling)
        assert decode(data, (20, 3, 9, width), out=out) is not None
        assert (memory[:200] == 77).all()
        assert (memory[200 + 27 * width :] == 77).all()


def test_threads() -> None:
    files = [encode(picture("smooth", 100 + n, 150 - n, seed=n), subsampling=n % 3) for n in range(8)] * 8
    expected = [pillow(file) for file in files]
    with ThreadPoolExecutor(4) as pool:
        for pixels, reference in zip(pool.map(decode, files), expected, strict=True):
            np.testing.assert_array_equal(pixels, reference)


@pytest.mark.skipif(not PHOTOS, reason="ACCEL_TEST_PHOTOS names no folder")
@pytest.mark.parametrize("anew", [False, True], ids=["as they are", "encoded anew"])
def test_photos(anew: bool, decoder: Decode) -> None:
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
        assert_same(decoder, [file(number) for number in range(first, min(first + 50, len(paths)))])

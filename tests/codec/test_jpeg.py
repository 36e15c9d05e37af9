"""accel.codec.jpeg: the pixels are Pillow's, whole or in part, or there are none."""

from __future__ import annotations

import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image

from accel.codec.engines import Box
from accel.codec.jpeg import decode
from bench.fuzz.coder import SAMPLINGS, Coder, random_blocks
from bench.fuzz.files import KINDS, encode, picture, pillow
from bench.fuzz.segments import JFIF, adobe
from tests.support.jpeg import damaged, files_and_boxes


def assert_same(data: bytes, **options: Any) -> np.ndarray:
    """The picture, which is there and is Pillow's."""
    pixels = decode(data, **options)
    assert pixels is not None
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, pillow(data))
    return pixels


def assert_same_or_none(data: bytes) -> bool:
    """Whether there is a picture; if so it is Pillow's."""
    pixels = decode(data)
    if pixels is None:
        return False
    np.testing.assert_array_equal(pixels, pillow(data))
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_pillows_files(kind: str, subsampling: int) -> None:
    for quality, optimize in itertools.product((1, 30, 75, 95, 100), (False, True)):
        pixels = picture(kind, 61, 83)
        assert_same(encode(pixels, quality=quality, subsampling=subsampling, optimize=optimize))


@pytest.mark.parametrize("kind", KINDS)
def test_grey(kind: str) -> None:
    for quality in (1, 50, 95, 100):
        data = encode(picture(kind, 45, 70, 1), quality=quality)
        grey = assert_same(data)
        assert grey.shape == (45, 70, 1)
        np.testing.assert_array_equal(decode(data, channels=3), np.repeat(grey, 3, 2))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_every_small_size(subsampling: int) -> None:
    for height, width in {(n, m) for n in range(1, 41) for m in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 40, n)}:
        assert_same(encode(picture("smooth", height, width), subsampling=subsampling, quality=90))


@pytest.mark.parametrize("options", [{"restart_marker_blocks": n} for n in (1, 2, 3, 7)] + [{"restart_marker_rows": 1}])
def test_restart_markers(options: dict[str, int]) -> None:
    for subsampling in (0, 2):
        data = encode(picture("smooth", 75, 90), subsampling=subsampling, **options)
        pixels = assert_same(data)
        np.testing.assert_array_equal(decode(data, (30, 40, 11, 12)), pixels[30:41, 40:52])
        first = data.index(b"\xff\xd0")
        assert decode(data[:first] + b"\xff\xd1" + data[first + 2 :]) is None
        assert decode(data[:first] + data[first + 2 :]) is None


def test_rgb_files() -> None:
    data = encode(picture("smooth", 50, 60), keep_rgb=True)
    np.testing.assert_array_equal(assert_same(data)[7:20, 3:50], decode(data, (7, 3, 13, 47)))


@pytest.mark.parametrize("identifiers", [(1, 2, 3), (82, 71, 66), (0, 1, 2), (7, 9, 8)])
@pytest.mark.parametrize("extra", [b"", JFIF, adobe(0), adobe(1), adobe(2), JFIF + adobe(0)])
def test_colour_space_rules(identifiers: tuple[int, ...], extra: bytes) -> None:
    assert_same(Coder().file((20, 21), [(i, 1, 1) for i in identifiers], random_blocks(27), extra=extra))


@pytest.mark.parametrize("factors", SAMPLINGS, ids=str)
def test_every_sampling(factors: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(3)
    for height, width in ((67, 83), (40, 5), (3, 90), (1, 1), (16, 33), (33, 4)):
        components = [(1 + c, h, v) for c, (h, v) in enumerate(factors)]
        pixels = assert_same(data := Coder().file((height, width), components, random_blocks(97)))
        for _ in range(5):
            top, left = int(rng.integers(height)), int(rng.integers(width))
            box = (top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1)))
            np.testing.assert_array_equal(decode(data, box), pixels[top : top + box[2], left : left + box[3]])


def test_ratios_that_are_not_whole_are_left_to_pillow() -> None:
    assert decode(Coder().file((20, 20), [(1, 3, 1), (2, 2, 1), (3, 1, 1)], random_blocks(36))) is None


def test_grey_with_sampling_factors() -> None:
    assert_same(Coder().file((37, 29), [(1, 2, 2)], random_blocks(20)))


def test_chroma_is_interpolated_as_libjpeg_does() -> None:
    """Flat blocks of known chroma: the samples are libjpeg's 3:1 mixture, not the nearer sample."""
    blocks = np.zeros((8, 64), int)
    blocks[2::4, 0] = (-40, 52)  # Cb of two 4:2:2 MCUs, in eighths around 128
    data = Coder().file((8, 32), [(1, 2, 1), (2, 1, 1), (3, 1, 1)], blocks, quant=8)
    cb = 128 + np.repeat([-40, 52], 8)
    before, after = np.pad(cb, 1, "edge")[:-2], np.pad(cb, 1, "edge")[2:]
    fancy = np.stack([3 * cb + before + 1 >> 2, 3 * cb + after + 2 >> 2], 1).reshape(-1)
    blue = [np.clip(128 + (116130 * (chroma - 128) + 32768 >> 16), 0, 255) for chroma in (fancy, np.repeat(cb, 2))]
    pixels = assert_same(data)
    np.testing.assert_array_equal(pixels[0, :, 2], blue[0])
    assert not np.array_equal(pixels[0, :, 2], blue[1])


@pytest.mark.parametrize("lengths", [(8,) * 162, (2, 3, 4, *(16,) * 159), (16,) * 162, (1, *(9,) * 20, *(13,) * 141)])
def test_long_codes(lengths: tuple[int, ...]) -> None:
    data = Coder(lengths).file((40, 56), [(1, 1, 1)], random_blocks(35, density=0.7))
    assert_same(data)
    assert decode(data, (39, 55, 1, 1)) is not None


@pytest.mark.parametrize("last", [1, 5, 9, 10, 11, 62, 63])
def test_blocks_that_end_anywhere(last: int) -> None:
    """Around the sparse kernel's limit, and with or without an end of block."""
    blocks = random_blocks(30, density=0.6)
    blocks[:, last + 1 :] = 0
    blocks[:, last] = 5
    assert_same(Coder().file((37, 43), [(1, 1, 1)], blocks))


def test_large_coefficients_are_pillows_or_refused() -> None:
    """libjpeg-turbo's SIMD code keeps 16 bits in places; what could leave them is refused, what could not is not."""
    coder, seen = Coder(), {1: set(), 4: set(), 16: set(), 64: set()}
    for quant, seed, density in itertools.product(seen, range(20), (0.02, 0.1, 0.5)):
        blocks = random_blocks(4, seed, spread=100, density=density)
        seen[quant].add(assert_same_or_none(coder.file((16, 16), [(1, 1, 1)], blocks, quant=quant)))
    assert seen[1] == {True}
    assert seen[16] == {True, False}


def test_wide_quantisers() -> None:
    assert_same(Coder().file((16, 16), [(1, 1, 1)], np.eye(4, 64, dtype=int), quant=300, wide=True))
    assert decode(Coder().file((16, 16), [(1, 1, 1)], np.eye(4, 64, dtype=int), quant=9000, wide=True)) is None


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_regions_are_crops(subsampling: int) -> None:
    rng = np.random.default_rng(subsampling)
    height, width = 117, 93
    data = encode(picture("smooth", height, width), subsampling=subsampling)
    pixels = assert_same(data)
    boxes = [(0, 0, 1, 1), (0, 0, height, width), (height - 1, width - 1, 1, 1), (0, width - 1, height, 1)]
    boxes += [(16, 16, 16, 16), (15, 15, 2, 2), (height - 1, 0, 1, width)]
    for _ in range(150):
        top, left = int(rng.integers(height)), int(rng.integers(width))
        boxes.append((top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))))
    for top, left, h, w in boxes:
        region = decode(data, (top, left, h, w))
        np.testing.assert_array_equal(region, pixels[top : top + h, left : left + w])


def test_boxes_outside_the_picture() -> None:
    data = encode(picture("flat", 20, 30))
    for box in [(0, 0, 21, 1), (0, 0, 1, 31), (-1, 0, 5, 5), (0, -1, 5, 5), (5, 5, 0, 3), (5, 5, 3, -1), (19, 0, 2, 1)]:
        assert decode(data, box) is None
    assert decode(data, (2**62, 2**62, 2**62, 2**62)) is None


def test_a_region_does_not_need_the_rest_of_the_scan() -> None:
    pixels = picture("noise", 160, 40)
    data = encode(pixels)
    expected = decode(data, (0, 0, 16, 40))
    assert expected is not None
    np.testing.assert_array_equal(decode(data[: 3 * len(data) // 4] + b"\xff\xd9", (0, 0, 16, 40)), expected)


def test_markers_around_the_scan() -> None:
    data = encode(picture("smooth", 40, 40))
    expected = assert_same(data)
    for extra in (
        b"\xff\xe5\xff\xff" + bytes(65533),
        b"\xff\xfe\0\x02",
        b"\xff\xe1\0\x10" + b"\xff\xd9" * 7,
        b"\xff\xff",
    ):
        changed = data[:2] + extra + data[2:]
        np.testing.assert_array_equal(decode(changed), expected)
        np.testing.assert_array_equal(pillow(changed), expected)
    for garbage in (b"\0", b"garbage" * 99, data):
        np.testing.assert_array_equal(decode(data + garbage), expected)


def test_extended_sequential() -> None:
    data = encode(picture("smooth", 40, 40)).replace(b"\xff\xc0", b"\xff\xc1", 1)
    assert_same(data)


def test_what_is_left_to_pillow() -> None:
    pixels = picture("smooth", 40, 40)
    cmyk = BytesIO()
    Image.fromarray(pixels).convert("CMYK").save(cmyk, "JPEG")
    data = encode(pixels)
    scan = data.rindex(b"\xff\xda")
    frame = data.index(b"\xff\xc0")
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
    assert decode(data) is not None
    for name, stream in refused.items():
        assert decode(stream) is None, name


def test_truncations() -> None:
    data = encode(picture("smooth", 24, 24), quality=60)
    for length in range(len(data)):
        assert decode(data[:length]) is None
        if length > data.rindex(b"\xff\xda") + 14:
            assert_same_or_none(data[:length] + b"\xff\xd9")


def test_mutations_are_pillows_or_refused() -> None:
    """Damage to scan and header: what is accepted equals Pillow's picture."""
    rng = np.random.default_rng(0)
    sources = [
        encode(picture(kind, 33, 47), subsampling=subsampling, quality=quality, **options)
        for kind, subsampling, quality, options in [
            ("smooth", 2, 75, {}),
            ("smooth", 0, 90, {"optimize": True}),
            ("noise", 1, 50, {}),
            ("smooth", 2, 40, {"restart_marker_blocks": 2}),
        ]
    ]
    accepted = 0
    for round_ in range(600):
        data = damaged(sources[round_ % len(sources)], rng, header=round_ % 3 == 0)
        pixels = decode(data)
        if pixels is not None:
            accepted += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                np.testing.assert_array_equal(pixels, pillow(data))
    assert 60 < accepted < 540


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=files_and_boxes(70))
def test_any_encoder_setting(drawn: tuple[bytes, Box]) -> None:
    file, box = drawn
    top, left, height, width = box
    np.testing.assert_array_equal(decode(file, box), assert_same(file)[top : top + height, left : left + width])


def test_out_and_channels() -> None:
    data = encode(picture("smooth", 30, 40))
    expected = assert_same(data)
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

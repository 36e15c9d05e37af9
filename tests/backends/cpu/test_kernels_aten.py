"""torch's dialect of the resize, bit for bit: the compiled kernel against ``interpolate`` and torchvision."""

from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision.transforms.functional as v1
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as v2

from accel.backends.cpu.passes import Axis
from accel.ops.resample import Aten, nearest, nearest_exact, rows_first, taps
from tests.support.kernels import (
    Array,
    axis,
    codes,
    emitted,
    no_fills,
    picture,
    random_table,
    walled,
    whole,
    windowed,
)

MODES = {
    Aten.LANCZOS: ("lanczos", True),
    Aten.BILINEAR: ("bilinear", True),
    Aten.BICUBIC: ("bicubic", True),
    Aten.BILINEAR_POINT: ("bilinear", False),
    Aten.BICUBIC_POINT: ("bicubic", False),
}
if "lanczos" not in (F.interpolate.__doc__ or ""):
    del MODES[Aten.LANCZOS]  # older torch
VECTORISED = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def tensor(image: Array, *, planar: bool = False) -> torch.Tensor:
    """[C, H, W], strided as the image's pixels are or contiguous."""
    view = torch.from_numpy(image).permute(2, 0, 1)
    return view.contiguous() if planar else view


def interpolated(image: Array, height: int, width: int, code: Aten, *, planar: bool = False) -> Array:
    """torch's own resize of an interleaved image."""
    mode, antialias = MODES[code]
    batch = tensor(image, planar=planar)[None]
    result = F.interpolate(batch, (height, width), mode=mode, antialias=antialias, align_corners=False)
    return result[0].permute(1, 2, 0).numpy()


def resized(image: Array, height: int, width: int, code: int) -> Array:
    """The kernel's resize."""
    return emitted(image, *scaled(image, height, width), code, no_fills(image.shape[2]), levels(image.shape[2]))


def scaled(image: Array, height: int, width: int) -> tuple[Axis, Axis]:
    return axis(image.shape[0], height), axis(image.shape[1], width)


def levels(channels: int) -> Array:
    return np.tile(np.arange(256, dtype=np.uint8), (channels, 1))


def torch_manages(height: int, width: int) -> bool:
    """torch 2.15 refuses some results of a single pixel; without AVX2 it gets results of one column wrong."""
    return (height, width) != (1, 1) and (width > 1 or VECTORISED)


def sizes(count: int, largest: int, seed: int) -> list[tuple[int, int]]:
    """(length, size) of an axis, from tiny to ``largest``, up and down."""
    rng = np.random.default_rng(seed)
    limits = rng.choice([3, 12, 60, largest], count)
    return [(int(a), int(b)) for a, b in rng.integers(1, limits[:, None], (count, 2), endpoint=True)]


def resizes(count: int, largest: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(height, width) before and after."""
    for rows, cols in zip(sizes(count, largest, seed=1), sizes(count, largest, seed=2), strict=True):
        if torch_manages(rows[1], cols[1]):
            yield (rows[0], cols[0]), (rows[1], cols[1])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("code", MODES)
def test_weights_of_thousands_of_axes(code: Aten, channels: int) -> None:
    """Either axis alone, so that nothing hides a weight; saturated noise, so that overshoot shows."""
    noise = np.random.default_rng(code).choice(np.array([0, 255], np.uint8), (600, 600, channels))
    for length, size in sizes(500, 600, seed=channels):
        wide = np.ascontiguousarray(noise[:2, :length])
        np.testing.assert_array_equal(resized(wide, 2, size, code), interpolated(wide, 2, size, code))
        high = np.ascontiguousarray(noise[:length, :2])
        np.testing.assert_array_equal(resized(high, size, 2, code), interpolated(high, size, 2, code))


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("code", MODES)
def test_resize_is_torchs(code: Aten, channels: int, planar: bool) -> None:
    for i, (before, after) in enumerate(resizes(80, 300)):
        image = picture(*before, channels, seed=i)
        np.testing.assert_array_equal(resized(image, *after, code), interpolated(image, *after, code, planar=planar))


@pytest.mark.parametrize("code", MODES)
@pytest.mark.parametrize(("length", "size"), [(29420, 15701), (32612, 26097), (18027, 11704), (9001, 30011)])
def test_long_axes(length: int, size: int, code: Aten) -> None:
    """So long that a float32 position shows: torch finds the pixel in float32, the weights in float64."""
    image = np.random.default_rng(0).choice(np.array([0, 255], np.uint8), (2, length, 1))
    np.testing.assert_array_equal(resized(image, 2, size, code), interpolated(image, 2, size, code))


EXTREMES = [
    *(((3000, 4000), (224, 224)), ((2, 6000), (2, 1)), ((6000, 2), (2, 5)), ((5000, 3), (1, 700))),
    *(((1, 1), (500, 500)), ((1, 1), (2, 3)), ((2, 3), (900, 1)), ((1, 333), (2000, 4)), ((64, 48), (64, 31))),
    *(((64, 48), (37, 48)), ((17, 23), (17, 23)), ((256, 256), (512, 512)), ((512, 512), (256, 256))),
]


@pytest.mark.parametrize("code", MODES)
def test_extreme_ratios(code: Aten) -> None:
    for before, after in (each for each in EXTREMES if torch_manages(*each[1])):
        image = picture(*before, 3)
        np.testing.assert_array_equal(resized(image, *after, code), interpolated(image, *after, code))


@pytest.mark.parametrize("dtype", ["uint8", "uint32"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("code", MODES)
def test_views_and_windows(code: Aten, channels: int, dtype: str) -> None:
    """A crop (mirrored or not), resized as an image of its own, seen through a window; only what it needs is there."""
    rng = np.random.default_rng(code)
    canvas, table = picture(120, 110, channels), random_table(channels, dtype)
    fills = picture(2, 1, channels, seed=5)[:, 0]
    for i, (before, after) in enumerate(resizes(60, 90)):
        axes = [view_and_window(rng, *sizes) for sizes in zip(before, after, canvas.shape, strict=False)]
        y, x = (a.start + a.step * np.arange(a.length) for a in axes)
        pixels = interpolated(np.ascontiguousarray(canvas[y[:, None], x]), *after, code)
        want = table[np.arange(channels), windowed(pixels, axes[0].window, axes[1].window, fills)]
        (top, bottom), (left, right) = (needed(a, code) for a in axes)
        region = np.ascontiguousarray(canvas[top:bottom, left:right])
        rows, cols = axes[0]._replace(start=axes[0].start - top), axes[1]._replace(start=axes[1].start - left)
        for at_end in (False, True):
            got = emitted(walled(region, at_end=at_end), rows, cols, code, fills, table, planar=bool(i % 2))
            np.testing.assert_array_equal(got, want)


def view_and_window(rng: np.random.Generator, length: int, size: int, extent: int) -> Axis:
    first = int(rng.integers(0, size))
    window = whole(size)[first : int(rng.integers(first, size)) + 1]
    window = window[:: int(rng.choice([1, -1]))]
    if rng.integers(2):
        window = np.concatenate([codes(-1), window, codes(-2)])
    start, step = int(rng.integers(0, extent - length + 1)), int(rng.choice([1, -1]))
    start += 0 if step > 0 else length - 1
    return axis(length, size, np.ascontiguousarray(window), start, step)


def needed(axis: Axis, code: int) -> tuple[int, int]:
    """The half-open range of source positions, by ``taps``."""
    shown = axis.window[axis.window >= 0]
    first, stop = int(shown.min()), int(shown.max()) + 1
    if axis.size != axis.length:
        first, stop = taps(code, axis.length, axis.size, first, stop)
    ends = axis.start + axis.step * first, axis.start + axis.step * (stop - 1)
    return min(ends), max(ends) + 1


@pytest.mark.parametrize("code", MODES)
def test_taps_are_what_the_kernel_asks_for(code: Aten) -> None:
    """Exactly the range of ``taps`` will do: the kernel refuses a source that is shorter at either end."""
    rng = np.random.default_rng(code)
    for length, size in sizes(400, 600, seed=9):
        if length == size:
            continue
        first = int(rng.integers(0, size))
        window = whole(size)[first : int(rng.integers(first, size)) + 1].copy()
        low, high = taps(code, length, size, first, first + len(window))
        for missing in ((0, 0), (1, 0), (0, 1)):
            row = np.zeros((1, high - low - sum(missing), 1), np.uint8)
            cols = axis(length, size, window, start=-low - missing[0])
            with pytest.raises(ValueError, match="fit") if any(missing) else nullcontext():
                emitted(row, axis(1), cols, code, no_fills(1), levels(1))


def test_columns_come_first() -> None:
    assert rows_first(2, 400, 300, 224, 224, pillow=(13, 0))
    assert not any(rows_first(code, 400, 300, 224, 224, pillow=(13, 0)) for code in Aten)


def test_wrong_arithmetic_would_be_seen() -> None:
    """The comparison tells every filter, both dialects, antialiasing and the order of the axes apart."""
    image = picture(90, 70, 3)
    got = {code: resized(image, 41, 45, code) for code in (*MODES, 1, 2, 3)}
    for code in MODES:
        for other in got:
            if other != code:
                assert not np.array_equal(interpolated(image, 41, 45, code), got[other]), (code, other)
        rows_first = interpolated(interpolated(image, 41, 70, code), 41, 45, code)
        assert not np.array_equal(got[code], rows_first)


def test_unknown_codes_are_refused() -> None:
    for code in set(range(-1, 40)) - {*Aten, 1, 2, 3, 4, 5}:
        with pytest.raises(ValueError, match="fit"):
            resized(picture(20, 21, 1), 10, 9, code)


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("code", MODES)
def test_torchvision_v2_resizes_uint8(code: Aten, channels: int, planar: bool) -> None:
    if not VECTORISED and MODES[code][0] == "bilinear":
        pytest.skip("v2 resizes in float32 here")
    mode, antialias = MODES[code]
    image = picture(75, 63, channels)
    for size in ((41, 52), (90, 31), (120, 140), (75, 20)):
        got = v2.resize(tensor(image, planar=planar), list(size), InterpolationMode(mode), antialias=antialias)
        np.testing.assert_array_equal(resized(image, *size, code), got.permute(1, 2, 0).numpy())


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_torchvision_v1_resizes_float32(mode: str, antialias: bool) -> None:
    """Which is not this kernel's arithmetic: float32 sums whose rounding depends on how torch was compiled."""
    image = picture(75, 63, 3)
    code = next(code for code in MODES if MODES[code] == (mode, antialias))
    exact = F.interpolate(tensor(image)[None].float(), (41, 52), mode=mode, antialias=antialias, align_corners=False)
    got = v1.resize(tensor(image), [41, 52], InterpolationMode(mode), antialias=antialias)
    assert torch.equal(got, exact[0].clamp(0, 255).round().to(torch.uint8))
    assert not np.array_equal(resized(image, 41, 52, code), got.permute(1, 2, 0).numpy())


def positions(mode: str, length: int, size: int, other: int) -> Array:
    """The input positions of torch's nearest maps, by resizing an image of positions in two bytes."""
    place = torch.arange(length)
    image = torch.stack([place & 255, place >> 8]).to(torch.uint8)[None, :, None]
    low, high = F.interpolate(image, (other, size), mode=mode)[0, :, 0].to(torch.int32)
    return (low + 256 * high).numpy()


@pytest.mark.parametrize("other", [1, 128])
def test_nearest_positions(other: int, thorough: bool) -> None:
    """Both of torch's kernels: the sides of the result sum up to no more than 128, or to more."""
    pairs = [(length, size) for length in range(1, 131, 3 if thorough else 7) for size in range(1, 131, 2)]
    pairs += [(2, 41), (2, 47), (4, 282), (14, 385), *sizes(3000 if thorough else 500, 5000, seed=7)]
    for length, size in pairs:
        for mode, found in (
            ("nearest", nearest(length, size)),
            ("nearest-exact", nearest_exact(length, size, other)),
        ):
            assert (found.dtype, found.shape) == (np.int32, (size,))
            np.testing.assert_array_equal(found, positions(mode, length, size, other))


def test_the_nearest_maps_differ() -> None:
    assert not np.array_equal(nearest(10, 7), nearest_exact(10, 7, 1))
    assert not np.array_equal(nearest_exact(2, 41, 1), nearest_exact(2, 41, 128))


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(90, 41), (41, 47), (130, 41), (7, 9)])
def test_nearest_in_torchvision(size: tuple[int, int], channels: int, planar: bool) -> None:
    image = picture(50, 2, channels)
    for mode in InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT:
        if mode is InterpolationMode.NEAREST:
            rows, cols = nearest(50, size[0]), nearest(2, size[1])
        else:
            rows, cols = nearest_exact(50, size[0], size[1]), nearest_exact(2, size[1], size[0])
        for version in (v1, v2):
            got = version.resize(tensor(image, planar=planar), list(size), mode)
            np.testing.assert_array_equal(got.permute(1, 2, 0).numpy(), image[rows[:, None], cols])

"""The compiled CPU kernel against Pillow and plain NumPy indexing, bit for bit."""

import itertools
import multiprocessing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from accel.backends.cpu import pass_columns, passes
from accel.backends.cpu.passes import NO_FACTORS, Axis, find_factors
from accel.ops.resample import rows_first
from tests.backends.cpu.kernels import BICUBIC, BILINEAR, BOX, FILTERS, LANCZOS, check, expected, pillow
from tests.support.helpers import python
from tests.support.kernels import (
    POISON,
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
from tests.support.processes import in_threads

DTYPES = ("uint8", "uint16", "uint32", "uint64")


SIZES = [  # (height, width) to (height, width)
    *(((300, 340), (224, 224)), ((64, 48), (64, 31)), ((64, 48), (37, 48)), ((17, 23), (17, 23))),  # one axis, none
    *(((1, 1), (1, 1)), ((1, 1), (500, 500)), ((1, 1), (7, 3)), ((5, 4), (131, 97)), ((2, 3), (1, 1))),
    *(((16, 16), (15, 17)), ((15, 5), (33, 6)), ((1, 333), (9, 20)), ((333, 1), (20, 9)), ((1, 200), (1, 700))),
    *(((200, 1), (700, 1)), ((97, 1003), (3, 1001)), ((1003, 97), (1001, 3)), ((701, 523), (1, 1))),
]


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("resample", FILTERS)
def test_resize_is_pillows(resample: int, channels: int) -> None:
    for before, after in SIZES:
        check(picture(*before, channels), axis(before[0], after[0]), axis(before[1], after[1]), resample)


AROUND_THE_LIMITS = [  # where Pillow 13 and Pillow 12.2 turn to resampling the rows first
    *(((60, 40), (40, 30)), ((61, 40), (40, 30)), ((40, 40), (40, 41)), ((40, 40), (39, 41)), ((300, 3), (290, 4))),
    *(((301, 3), (290, 4)), ((301, 3), (299, 2)), ((20, 17), (3, 40)), ((20, 3), (3, 4))),
]


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize(("before", "after"), AROUND_THE_LIMITS)
def test_either_order_of_the_axes(before: tuple[int, int], after: tuple[int, int], resample: int) -> None:
    for channels in (1, 3, 4):
        image = picture(*before, channels)
        check(image, axis(before[0], after[0]), axis(before[1], after[1]), resample)
        for rows in (whole(after[0])[1:][:2].copy(), whole(after[0])[::-1].copy()):
            check(image, axis(before[0], after[0], rows), axis(before[1], after[1], codes(1)), resample)


def test_order_of_the_axes_by_version() -> None:
    assert not rows_first(BILINEAR, 1000, 3, 10, 3, pillow=(12, 1))
    assert rows_first(BILINEAR, 1000, 3, 10, 3, pillow=(12, 3))
    assert not rows_first(BILINEAR, 300, 3, 10, 3, pillow=(12, 2))
    assert not rows_first(BILINEAR, 400, 300, 224, 224, pillow=(12, 3))
    assert rows_first(BILINEAR, 400, 300, 224, 224, pillow=(13, 0))
    assert not rows_first(BILINEAR, 300, 400, 224, 224, pillow=(13, 0))
    assert not rows_first(BILINEAR, 200, 150, 224, 224, pillow=(14, 1))
    assert rows_first(BILINEAR, 40, 40, 39, 41, pillow=(14, 1))


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize(
    "after", [(224, 224), *(pytest.param(s, marks=pytest.mark.sweep) for s in ((1, 1), (3000, 7), (5, 4000)))]
)
def test_photograph_sizes(resample: int, after: tuple[int, int]) -> None:
    check(picture(3000, 4000, 3), axis(3000, after[0]), axis(4000, after[1]), resample, planar=True)


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_every_dtype_and_layout(channels: int, dtype: str, planar: bool) -> None:
    image, fills = picture(41, 57, channels), picture(2, 1, channels, seed=5)[:, 0]
    mirrored = whole(33)[::-1].copy()
    padded = np.concatenate([codes(-1), whole(33), codes(-2, -2)])
    for window in (whole(33), mirrored, padded, whole(33)[4:21].copy(), whole(33)[20:4:-1].copy()):
        rows, cols = axis(41, 29, np.append(whole(29), codes(-1))), axis(57, 33, window)
        check(image, rows, cols, BICUBIC, fills, dtype, planar)


WINDOWS = {
    "mirrored": whole(24)[::-1].copy(),
    "crop": whole(24)[3:19].copy(),
    "mirrored crop": whole(24)[19:3:-1].copy(),
    "one": codes(11),
    "ends": codes(0, 23),
    "reflected": np.pad(whole(24), 5, mode="reflect"),
    "edge": np.pad(whole(24), 5, mode="edge"),
    "nearest": (np.arange(50) * 24 // 50).astype(np.int32),
    "any": np.random.default_rng(3).integers(0, 24, 61).astype(np.int32),
    "pad": np.pad(whole(24), 3, constant_values=-1),
    "pads": np.pad(np.pad(whole(24), 2, constant_values=-1), (3, 1), constant_values=-2),
    "pad inside": np.insert(whole(24), 9, [-2, -1, -2]).astype(np.int32),
    "all fill": codes(-2, -1, -1),
    "empty": codes(),
}


@pytest.mark.parametrize("size", [24, 31], ids=["plain", "resampled"])
@pytest.mark.parametrize("rows", WINDOWS)
def test_windows(rows: str, size: int) -> None:
    image, fills = picture(size, size, 3), np.array([[1, 2, 3], [250, 251, 252]], np.uint8)
    for columns in WINDOWS.values():
        check(image, axis(size, 24, WINDOWS[rows]), axis(size, 24, columns), BILINEAR, fills)


def test_the_later_pad_wins_where_two_overlap() -> None:
    fills = np.array([[10], [20]], np.uint8)
    table = np.arange(256, dtype=np.uint8)[None]
    rows, cols = axis(1, 1, codes(-1, 0, -2)), axis(1, 1, codes(-2, 0, -1))
    got = emitted(np.full((1, 1, 1), 99, np.uint8), rows, cols, BILINEAR, fills, table)
    np.testing.assert_array_equal(got[..., 0], [[20, 10, 10], [20, 99, 10], [20, 20, 20]])


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("factor", [3.1, 4, 11.3])
def test_shrinking(channels: int, factor: float) -> None:
    """Rows that end anywhere in a vector, from either side, to columns of many taps."""
    for width in range(17, 130, 3):
        canvas, size = picture(16 + width % 5, width, channels), max(round(width / factor), 1)
        for start, step in ((0, 1), (width - 1, -1)):
            columns = axis(width, size, whole(size), start, step)
            check(canvas, axis(len(canvas)), columns, FILTERS[width % len(FILTERS)])


def test_shrinking_on_any_processor(tmp_path: Path) -> None:
    """Without the instructions that take four bytes at once, the same."""
    code = """
import sys
import numpy as np
from accel.backends.cpu import passes
from accel.backends.cpu.passes import Axis
image, out = np.load(sys.argv[1]), np.empty((9, 31, 3), np.uint8)
rows, columns = (Axis(0, 1, n, 0.0, n, size, np.arange(size, dtype=np.int32)) for n, size in ((50, 9), (333, 31)))
table = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
passes.run(image, rows, columns, 2, np.zeros((0, 3), np.uint8), table, out, False)
print(out.tobytes().hex())
"""
    image = picture(50, 333, 3)
    np.save(tmp_path / "image.npy", image)
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "ACCEL_CACHE_DIR": str(tmp_path)}
    found = python(code, str(tmp_path / "image.npy"), environment=plain)
    assert found.strip() == pillow(image, 9, 31, BILINEAR).tobytes().hex()


def test_weights_are_whole_in_their_digits() -> None:
    """Of any coefficients that a filter has; larger ones are refused."""
    for largest, fits in ((2**23 - 2**16, True), (2**31 - 1, False)):
        coefficients = np.array([[-largest, 1, -1, 127, 128, largest], [32767, 32768, 2**22, -128, -129, 0]], np.int32)
        bounds = np.array([[1, 6], [3, 5]], np.int32)
        for first, step in ((0, 1), (9, -1)):
            memory = np.full((2, 3, pass_columns.QUAD_WEIGHTS), POISON, np.uint8)
            assert pass_columns.weigh(bounds, coefficients, first, step, memory.ctypes.data) == 3 * fits
            if not fits:
                continue
            digits = (
                memory.view(f"i{pass_columns.DIGIT_BITS // 8}").reshape(2, 3, pass_columns.DIGITS, 4).astype(np.int64)
            )
            weights = (
                (digits << pass_columns.DIGIT_BITS * np.arange(pass_columns.DIGITS)[:, None]).sum(2).reshape(2, 12)
            )
            for found, (begin, taps), wanted in zip(weights, bounds, coefficients, strict=True):
                leftmost = first + step * (begin if step > 0 else begin + taps - 1)
                place = leftmost % 4
                np.testing.assert_array_equal(found[place : place + taps], wanted[:taps][::step])
                assert not found[:place].any()
                assert not found[place + taps :].any()


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("after", [(20, 30), (50, 30), (20, 45), (50, 45)])
def test_views(resample: int, after: tuple[int, int]) -> None:
    """A cropped and mirrored view, resampled; ``check`` hands the kernel only the region it needs."""
    canvas = picture(90, 80, 3)
    for row_step, col_step in itertools.product((1, -1), repeat=2):
        rows = axis(50, after[0], whole(after[0])[5:17].copy(), 25 if row_step > 0 else 74, row_step)
        cols = axis(45, after[1], whole(after[1])[22:9:-1].copy(), 20 if col_step > 0 else 64, col_step)
        check(canvas, rows, cols, resample)


@st.composite
def axes(draw: st.DrawFn) -> tuple[Axis, int]:
    """An axis with two fill colours, and a canvas it fits on."""
    length, size = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    size = length if draw(st.booleans()) else size
    margin, step = draw(st.integers(0, 4)), draw(st.sampled_from([1, -1]))
    first = draw(st.integers(0, size - 1))
    last = draw(st.integers(first, size - 1))
    window = whole(size)[first : last + 1]
    if draw(st.booleans()):
        window = window[::-1]
    if draw(st.booleans()):
        window = np.array(draw(st.lists(st.integers(-2, size - 1), min_size=1, max_size=80)))
    window = np.ascontiguousarray(window, np.int32)
    start = margin if step > 0 else margin + length - 1
    return Axis(start, step, length, 0.0, float(length), size, window), length + 2 * margin


@settings(max_examples=300, deadline=None)
@given(
    axes(), axes(), st.sampled_from(FILTERS), st.sampled_from([1, 3, 4]), st.sampled_from(DTYPES), st.booleans(),
    st.integers(0, 9),
)  # fmt: skip
def test_any_geometry(
    rows: tuple[Axis, int], cols: tuple[Axis, int], resample: int, channels: int, dtype: str, planar: bool, seed: int
) -> None:
    canvas, fills = picture(rows[1], cols[1], channels, seed), picture(2, 1, channels, seed + 1)[:, 0]
    check(canvas, rows[0], cols[0], resample, fills, dtype, planar)


def test_wrong_arithmetic_would_be_seen() -> None:
    """The comparison tells filters apart, and Pillow's two rounded passes from one pass in floating point."""
    image, table = picture(60, 70, 3), np.tile(np.arange(256, dtype=np.uint8), (3, 1))
    got = {f: emitted(image, axis(60, 41), axis(70, 45), f, no_fills(3), table) for f in FILTERS}
    for resample in FILTERS:
        for other in set(FILTERS) - {resample}:
            assert not np.array_equal(got[resample], pillow(image, 41, 45, other))

    planes = (Image.fromarray(image[..., c].astype(np.float32)).resize((45, 41), BILINEAR) for c in range(3))
    unrounded = np.stack([np.asarray(plane) for plane in planes], axis=2)
    assert not np.array_equal(got[BILINEAR], np.clip(np.rint(unrounded), 0, 255).astype(np.uint8))
    rows_first = pillow(pillow(image, 41, 70, BILINEAR), 41, 45, BILINEAR)
    assert not np.array_equal(got[BILINEAR], rows_first)


IMAGENET = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)]
COMMON = [
    *IMAGENET,
    (0.48145466, 0.26862954), (0.4578275, 0.26130258), (0.40821073, 0.27577711),  # CLIP
    (0.4914, 0.2023), (0.4822, 0.1994), (0.4465, 0.2010),  # CIFAR
    (0.1307, 0.3081), (0.5, 0.5), (0.0, 1.0), (0.0, 1 / 255),
]  # fmt: skip


def normalisation(mean: float, std: float, *, v2: bool = False) -> Array:
    """ToTensor (or v2's ToDtype) and Normalize of every byte, float32 as torchvision computes it."""
    levels = np.arange(256, dtype=np.float32)
    scaled = levels * np.float32(1 / 255) if v2 else levels / np.float32(255)
    return (scaled - np.float32(mean)) / np.float32(std)


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_tables_that_arithmetic_stands_in_for(planar: bool, channels: int) -> None:
    """The identity and ToTensor with Normalize, and the same with a single bit wrong, which must be obeyed."""
    image, fills = picture(40, 31, channels), picture(2, 1, channels, seed=5)[:, 0]
    identity = np.tile(np.arange(256, dtype=np.uint8), (channels, 1))
    normal = np.stack([normalisation(*COMMON[c]) for c in range(channels)]).view(np.uint32)
    for table, flaw in itertools.product((identity, normal), (0, 1)):
        table[-1, 77] ^= flaw
        for name, window in WINDOWS.items():
            rows, columns = axis(40, 33), axis(31, 24, window)
            want = expected(image, rows, columns, BILINEAR, fills, table)
            np.testing.assert_array_equal(emitted(image, rows, columns, BILINEAR, fills, table, planar), want, name)


def all_bytes(table: Array) -> Array:
    """A float32 table [3, 256] as ``run`` applies it to an image of all bytes."""
    image = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
    bits = emitted(image, axis(1), axis(256), BILINEAR, no_fills(3), table.view(np.uint32), planar=True)
    return np.ascontiguousarray(bits[0].T)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize(("mean", "std"), COMMON)
def test_common_normalisations_are_recognised(mean: float, std: float, v2: bool) -> None:
    table = np.stack([normalisation(mean, std, v2=v2)] * 3)
    assert find_factors(table.tobytes(), 3) is not NO_FACTORS
    np.testing.assert_array_equal(all_bytes(table), table.view(np.uint32))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-2, 2, width=32), st.floats(0.001953125, 8, width=32)), min_size=3, max_size=3))
def test_any_normalisation(parameters: list[tuple[float, float]]) -> None:
    table = np.stack([normalisation(mean, std) for mean, std in parameters])
    np.testing.assert_array_equal(all_bytes(table), table.view(np.uint32))


def test_odd_float_tables() -> None:
    """Infinities, NaN with a payload, constants, negative zero: looked up as they are."""
    for value in (np.inf, np.nan, 0.0, -0.0, 1e38, 1e-45):
        table = np.full((3, 256), value, np.float32)
        np.testing.assert_array_equal(all_bytes(table), table.view(np.uint32))
        table[1] = np.linspace(-1, 1, 256)
        np.testing.assert_array_equal(all_bytes(table), table.view(np.uint32))
    payloads = np.arange(0x7FC00000, 0x7FC00000 + 768, dtype=np.uint32).reshape(3, 256)
    np.testing.assert_array_equal(all_bytes(payloads), payloads)


@pytest.mark.parametrize("rows", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_windows_of_a_picture_as_it_is(rows: Array, channels: int) -> None:
    image, fills = picture(24, 24, channels), picture(2, 1, channels, seed=5)[:, 0]
    levels = np.tile(np.arange(256, dtype=np.uint8), (channels, 1))
    for name, cols in WINDOWS.items():
        shape = (len(rows), len(cols), channels)
        memory = np.full(int(np.prod(shape)) + 128, POISON, np.uint8)
        out = memory[64:-64].reshape(shape)
        for at_end in (False, True):
            out[:] = POISON
            axes = axis(24, 24, rows), axis(24, 24, cols)
            passes.run(walled(image, at_end=at_end), *axes, 0, fills, levels, out, False)
            np.testing.assert_array_equal(out, windowed(image, rows, cols, fills), name)
            assert (memory[:64] == POISON).all()
            assert (memory[-64:] == POISON).all()


def test_read_only_input_is_accepted() -> None:
    image, table, window = picture(20, 21, 3), random_table(3), whole(18)
    for array in (image, table, window):
        array.flags.writeable = False
    check(image, axis(20, 18, window), axis(21, 18, window), BOX)
    out = np.empty((18, 18, 3), np.uint8)
    passes.run(image, axis(20, 18, window), axis(21, 18, window), BOX, no_fills(3), table, out, False)


MISFITS = [
    *((axis(20, 20, codes(20)), axis(21)), (axis(20), axis(21, 30, codes(30)))),  # a position past the view
    *((axis(20, 20, codes(-2)), axis(21)), (axis(20), axis(21, 21, codes(0, -2)))),  # a colour there is not
    *((axis(21), axis(21)), (axis(20, start=1), axis(21)), (axis(20), axis(21, start=-1))),  # a view past the source
    *((axis(20, start=18, step=-1), axis(21)), (axis(20, 10, start=-1), axis(21)), (axis(20), axis(22, 11))),
    (axis(4, step=2), axis(21)),
]


@pytest.mark.parametrize(("rows", "cols"), MISFITS)
def test_misfits_are_refused_and_nothing_is_written(rows: Axis, cols: Axis) -> None:
    image, fills = picture(20, 21, 3), np.zeros((1, 3), np.uint8)
    out = np.full((len(rows.window), len(cols.window), 3), POISON, np.uint8)
    with pytest.raises(ValueError, match="fit"):
        passes.run(image, rows, cols, BILINEAR, fills, random_table(3), out, False)
    assert (out == POISON).all()


def test_an_unknown_filter_is_refused() -> None:
    image, table, out = picture(20, 21, 3), random_table(3), np.empty((10, 21, 3), np.uint8)
    for resample in (-1, 0, 6):
        with pytest.raises(ValueError, match="fit"):
            passes.run(image, axis(20, 10), axis(21), resample, no_fills(3), table, out, False)


def test_wrong_shapes_are_refused() -> None:
    image, rows, cols, fills, table = picture(20, 21, 3), axis(20), axis(21), no_fills(3), random_table(3)
    wrong: list[tuple[Array, Array, tuple[int, ...], bool]] = [
        (fills, table, (20, 20, 3), False),
        (fills, table, (20, 21, 3), True),
        (fills, table, (3, 20, 21), False),
        (fills, random_table(1), (20, 21, 3), False),
        (no_fills(1), table, (20, 21, 3), False),
        (fills, table[:, :128].copy(), (20, 21, 3), False),
    ]
    for some_fills, some_table, shape, planar in wrong:
        with pytest.raises(ValueError, match="fit"):
            passes.run(image, rows, cols, BILINEAR, some_fills, some_table, np.empty(shape, np.uint8), planar)
    with pytest.raises(TypeError):
        passes.run(image[:, ::2], rows, axis(11), BILINEAR, fills, table, np.empty((20, 11, 3), np.uint8), False)


def test_threads_do_not_share_workspace() -> None:
    jobs = [(picture(60 + 7 * i, 50 + 9 * i, 3, seed=i), 20 + 11 * i) for i in range(4)]
    table, wrong = random_table(3), []

    def work(image: Array, size: int) -> None:
        rows, cols = axis(image.shape[0], size), axis(image.shape[1], size)
        want = expected(image, rows, cols, LANCZOS, no_fills(3), table)
        for _ in range(50):
            if not np.array_equal(emitted(image, rows, cols, LANCZOS, no_fills(3), table), want):
                wrong.append(size)

    in_threads([partial(work, *job) for job in jobs * 2])
    assert not wrong


def _in_child() -> None:
    check(picture(60, 50, 3), axis(60, 31), axis(50, 40), BICUBIC)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_goes_on() -> None:
    _in_child()
    child = multiprocessing.get_context("fork").Process(target=_in_child)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_large_workspace_is_not_kept() -> None:
    check(picture(2, 3, 1), axis(2, 9), axis(3, 9), BILINEAR)
    kept = passes.workspace.memory
    check(picture(5000, 3, 1), axis(5000, 7), axis(3, 5000), BILINEAR)
    assert passes.workspace.memory is kept
    assert kept.nbytes <= passes.MOST_RETAINED

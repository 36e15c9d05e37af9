"""The interpreter of PTX (rig/ptx) itself: its arithmetic is exact, and what a kernel must not do is found."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.cuda import host_only

pytest.importorskip("cuda.bindings", reason="NVRTC compiles the kernels")

from rig.ptx import arithmetic
from rig.ptx.device import PtxDevice, ptx_of_source
from rig.ptx.machine import Program
from rig.ptx.memory import Fault
from rig.ptx.parse import parse

pytestmark = host_only

Array = Any

SOURCE = """
#include "shim.h"
struct Item { u64 given, made; };
FUNCTION void body(int block, const Item& item) {
    const u32* given = reinterpret_cast<const u32*>(item.given);
    u32* made = reinterpret_cast<u32*>(item.made) + THREADS * block;
    const u8* bytes = reinterpret_cast<const u8*>(item.given);
    SHARED(u32, kept[THREADS]);
    SHARED(u32, other[THREADS]);
    %s
}
KERNEL(tried, Item, body)
"""


def program(body: str, **changed: Any) -> Program:
    return Program(parse(ptx_of_source(SOURCE % body, "tried.cu", **{"lineinfo": True, **changed})), "tried")


def run(made: Program | str, given: Array, blocks: int = 1, made_count: int | None = None, **options: Any) -> Array:
    """Run ``tried`` on uint32 values: 256 for each block."""
    device = PtxDevice(**options)
    made = program(made) if isinstance(made, str) else made
    count = 256 * blocks if made_count is None else made_count
    memory = [device.allocate(size) for size in (given.nbytes, 4 * count, 16, 4 * blocks)]
    memory[0].copy_(torch.from_numpy(given.view(np.uint8)))
    memory[1].fill_(0xA5)
    memory[2].view(torch.int64).copy_(torch.tensor([memory[0].data_ptr(), memory[1].data_ptr()]))
    memory[3].zero_()
    device.run(made, blocks, memory[2].data_ptr(), memory[3].data_ptr())
    return memory[1].numpy().view(np.uint32).copy()


def words(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


SOUND = """
    PHASE(t) { kept[t] = given[t]; }
    PHASE(t) { made[t] = kept[t ^ 37] + byte_of(kept[t ^ 2], t & 3); }
"""


def test_a_sound_kernel_runs() -> None:
    given, threads = words(256), np.arange(256)
    found = run(SOUND, given, blocks=3)
    expected = given[threads ^ 37] + given.view(np.uint8).reshape(256, 4)[threads ^ 2, threads & 3]
    np.testing.assert_array_equal(found, np.tile(expected, 3))


MISTAKES = {
    "reads beyond its memory": ("PHASE(t) { made[t] = given[t + 1]; }", "thread 255 of block 0, .* leaves its alloc"),
    "reads before its memory": ("PHASE(t) { made[t] = bytes[t - 1]; }", "ld.global.u8 .* thread 0 of .* leaves its"),
    "writes beyond its memory": ("PHASE(t) { made[t + (t == 100) * 900] = 1; }", "st.* thread 100 .* leaves its alloc"),
    "a null pointer": ("PHASE(t) { made[t] = *reinterpret_cast<const u32*>(item.given - item.given + t * 4); }", "0x0"),
    "a misaligned load": (
        "PHASE(t) { made[t] = *reinterpret_cast<const u32*>(bytes + t); }",
        "ld.global.u32 .*thread 1 of block 0, .* is not aligned to 4 bytes; so do 192 threads",
    ),
    "a misaligned pair": (
        "PHASE(t) { const uint2 two = *reinterpret_cast<const uint2*>(given + t / 2); made[t] = two.x + two.y; }",
        "v2.u32 .*thread 2 of block 0, .* is not aligned to 8 bytes",
    ),
    "a misaligned store": ("PHASE(t) { *reinterpret_cast<u16*>(item.made + 3 * t) = 1; }", "st.* thread 1 .* aligned"),
    "beyond a shared variable": (
        "PHASE(t) { kept[t] = other[t] = t; } PHASE(t) { made[t] = kept[t + (given[t] | 1)]; }",
        "leaves its shared variable",
    ),
    "no barrier": (
        "PHASE(t) { kept[t] = given[t]; made[t] = kept[t ^ 37]; }",
        "reads what another thread writes in the same phase",
    ),
    "no barrier before it is written again": (
        "PHASE(t) { kept[t] = given[t]; } PHASE(t) { made[t] = kept[t ^ 9]; kept[t] = 0; } PHASE(t) { *made = *kept; }",
        "writes what another thread uses in the same phase",
    ),
    "no barrier before an atomic": (
        "PHASE(t) { kept[t] = 0; atomicAdd(&kept[given[t] & 255], 1u); }",
        "atom.* changes what another thread uses in the same phase",
    ),
    "no barrier behind an atomic": (
        "PHASE(t) { kept[t] = 0; } PHASE(t) { atomicAdd(&kept[t / 2], 1u); made[t] = kept[t ^ 9]; }",
        "reads what another thread writes in the same phase",
    ),
    "two write": ("PHASE(t) { kept[t / 2] = t; } PHASE(t) { made[t] = kept[t / 2]; }", "writes what another thread"),
    "nobody wrote it": ("PHASE(t) { if (t != 9) kept[t] = t; } PHASE(t) { made[t] = kept[t]; }", "nobody has written"),
    "barriers apart": (
        "if (threadIdx.x < 100) { *made = 1; __syncthreads(); made[1] = 2; } else { __syncthreads(); *made = *given; }",
        "stand at two barriers",
    ),
    "division by zero": ("PHASE(t) { made[t] = 7 / (given[0] - given[0] + t); }", "PTX lines .* division by zero"),
    "no end": ("PHASE(t) { while (*reinterpret_cast<volatile u32*>(made) != 7) {} }", "does not end"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.ptx.machine._MOST_STEPS", 10_000)
    body, reason = MISTAKES[name]
    with pytest.raises(Fault, match=reason):
        run(body, words(256))


def test_a_fault_says_where() -> None:
    with pytest.raises(Fault, match=r"tried: ld\S+ .* \(PTX line \d+, tried\.cu:10 < tried\.cu:12\): thread 255"):
        run("PHASE(t) { made[t] = given[t + 1]; }", words(256))


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("PHASE(t) { made[t] = 3.0 * given[t] + 1.0 / given[t + 1]; }", {"fma": True}),
        ("PHASE(t) { made[t] = 1.f / given[t]; }", {"prec_div": False}),
        ("PHASE(t) { made[t] = __float_as_uint(__uint_as_float(given[t]) + 1.f); }", {"ftz": True}),
        ("PHASE(t) { made[t] = __float_as_uint(__sinf(given[t])); }", {}),
        ("PHASE(t) { made[t] = __dp4a(given[t], given[t], 0u); }", {}),
    ],
)
def test_what_is_not_known_or_not_exact_is_refused(body: str, changed: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match=r"tried: \w+\."):
        run(program(body, **changed), words(512))


def test_atomics_run_one_after_another_in_any_order() -> None:
    body = """
    PHASE(t) { if (t < 4) kept[t] = t == 2 ? 1000000 : 0; }
    PHASE(t) {
        made[t] = atomicAdd(&kept[0], 1u);
        atomicMax(reinterpret_cast<int*>(&kept[1]), static_cast<int>(given[t]));
        atomicMin(reinterpret_cast<int*>(&kept[2]), static_cast<int>(given[t]));
        other[t] = atomicExch(&kept[3], t + 1);
    }
    PHASE(t) { made[THREADS + t] = t < 4 ? kept[t] : other[t]; }
    """
    given = words(256)
    orders = []
    for seed in range(2):
        found = run(body, given, made_count=512, seed=seed)
        assert sorted(found[:256].tolist()) == list(range(256))
        signed = given.view(np.int32)
        assert found[256:260].view(np.int32).tolist()[:3] == [256, max(signed.max(), 0), min(signed.min(), 1000000)]
        assert found[259] not in found[260:]  # who came last was seen by nobody
        assert len(set(found[260:].tolist())) == 252
        orders.append(found[:256].tolist())
    assert orders[0] != orders[1] != list(range(256))


def test_warps_run_in_shifts() -> None:
    """Code that is right only because all warps go in step has other results."""
    given, threads = words(256), np.arange(256)
    body = "PHASE(t) { made[t] = given[t]; made[t + 256] = *static_cast<volatile u32*>(made + (t ^ 37)); }"
    found = [run(body, given, made_count=512, shifts=shifts)[256:] for shifts in (False, True)]
    assert np.array_equal(found[0], given[threads ^ 37]) != np.array_equal(found[1], given[threads ^ 37])
    for seed in range(3):
        assert np.array_equal(run(SOUND, given, shifts=True, seed=seed), run(SOUND, given))


def test_threads_that_part_meet_again() -> None:
    """A warp runs what is behind a branch once, for both sides; so often is it counted."""
    made = program(
        "PHASE(t) { u32 sum = 0; for (u32 i = 0; i < (t & 7); ++i) sum += given[t] ^ i; made[t] = sum * 3; }"
    )
    given, threads = words(256), np.arange(256, dtype=np.uint32)
    expected = sum((np.where(i < threads & 7, given ^ np.uint32(i), 0) for i in range(8)), np.zeros(256, np.uint32)) * 3
    np.testing.assert_array_equal(run(made, given), expected.astype(np.uint32))
    stores = [number for number, each in enumerate(made.kernel.code) if each.parts[0] == "st"]
    assert made.ran[stores].tolist() == [8] * len(stores)
    assert made.ran.max() <= 8 * 8


def floats(rng: np.random.Generator, count: int) -> Array:
    values = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    values[::5] = rng.normal(0, 1, len(values[::5]))
    return values[np.isfinite(values)]


def test_fma_rounds_once() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (floats(rng, 4000)[:3000] for _ in range(3))
    with np.errstate(all="ignore"):
        near = rng.choice([1, 1 + 2**-24, 2**-24, 2**25], 1500)  # sums of which much, or almost nothing, is left
        c[::2] = (-a[::2].astype(np.float64) * b[::2] * near).astype(np.float32)
        found = arithmetic.fused(a, b, c)
        twice = a * b + c
    different = 0
    for x, y, z, got, other in zip(a, b, c, found, twice, strict=True):
        if not (np.isfinite(z) and np.isfinite(got)):
            continue
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        steps = [np.nextafter(got, np.float32(way)) for way in (-np.inf, np.inf)]
        best = abs(Fraction(float(got)) - exact)
        for step in steps:
            away = abs(Fraction(float(step)) - exact) if np.isfinite(step) else best + 1
            assert best < away or (best == away and got.view(np.uint32) % 2 == 0), (x, y, z)
        different += got != other
    assert different > 100


WIDTHS: dict[str, tuple[Callable[..., Array], Callable[..., int], Any]] = {
    "divided": (arithmetic.divided, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), np.int32),
    "remainder": (arithmetic.remainder, lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1), np.int64),
    "high": (arithmetic.high, lambda a, b: a * b >> 32, np.int32),
    "high of 64 bits": (arithmetic.high, lambda a, b: a * b >> 64, np.int64),
    "high, unsigned": (arithmetic.high, lambda a, b: a * b >> 32, np.uint32),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_integers(name: str) -> None:
    function, exact, dtype = WIDTHS[name]
    limits, rng = np.iinfo(dtype), np.random.default_rng(0)
    a, b = (rng.integers(limits.min, limits.max, 500, dtype=dtype, endpoint=True) for _ in range(2))
    a[::7], b[::11] = limits.min, 1
    b[::13] = rng.integers(1, 9, len(b[::13]))
    found = function(a, b)
    assert found.dtype == dtype
    assert found.tolist() == [exact(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_shifts_beyond_the_width() -> None:
    a = np.array([0x80000001, 0x40000000], np.uint32)
    by = np.array([33, 2], np.uint32)
    assert arithmetic.left(a, by).tolist() == [0, 0]
    assert arithmetic.right(a, by).tolist() == [0, 0x10000000]
    assert arithmetic.right(a.view(np.int32), by).tolist() == [-1, 0x10000000]
    assert [arithmetic.left(a, n).tolist() for n in (1, 31, 32)] == [[2, 0x80000000], [0x80000000, 0], [0, 0]]


def test_bytes_and_fields() -> None:
    a, b = np.array([0x83020180], np.uint32), np.array([0x07860504], np.uint32)
    assert [hex(arithmetic.permuted(a, b, n)[0]) for n in (0x7654, 0x0123, 0xB908)] == [
        *("0x7860504", "0x80010283", "0xff0080ff"),
    ]
    assert arithmetic.permuted(a, b, np.array([0x0003], np.uint32)).tolist() == [0x80808083]
    assert hex(arithmetic.inserted(a, b, 8, 12)[0]) == "0x7818004"
    assert arithmetic.inserted(a.astype(np.uint64), b.astype(np.uint64), 32, 32).tolist() == [0x8302018007860504]


def test_floats_to_integers_saturate() -> None:
    values = np.array([3e9, -3e9, np.nan, -1, 2147483520], np.float32)
    assert arithmetic.to_integer(values, np.int32).tolist() == [2147483647, -2147483648, 0, -1, 2147483520]
    assert arithmetic.to_integer(values.astype(np.float64), np.int32)[2] == -2147483648
    assert arithmetic.to_integer(values, np.uint32).tolist() == [3000000000, 0, 0, 0, 2147483520]
    large = np.array([1e19, -1e19, np.nan])
    assert arithmetic.to_integer(large, np.int64).tolist() == [(1 << 63) - 1, -(1 << 63), -(1 << 63)]

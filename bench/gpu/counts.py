"""Counts, without a GPU, what the JPEG decoder's kernels would do on one (``predict.py``).

Instructions are those that NVRTC makes of the kernels for sm_90 (``sass.py``), times how often warps run them: known
from the files' headers, or, for the loops over symbols, counted by the kernels' own code on the host (``trips.cu``).
Bytes are those of the decoder's layout. What turns them into time are the assumptions below, and nothing else.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda import backend, host
from accel.backends.cuda.jpeg import Decoder, Wanted
from accel.backends.cuda.jpeg.layout import KERNELS, SUBSEQUENCE, TABLE_SIZE
from bench.gpu import sass

MULTIPROCESSORS, SCHEDULERS, HERTZ = 132, 4, 1.755e9  # an H200
ISSUED = 0.4  # of the instructions that its schedulers could issue
STEP = 100  # cycles of a symbol: a look-up in shared memory, and a dozen instructions that wait for each other
SUM = 2500  # cycles of a block's prefix sum over DC coefficients: two trips to memory, eight barriers
LAUNCH = 3e-6  # seconds from a kernel's end to the next one's start, with the ramp up and down
BANDWIDTH = 4e12  # bytes a second
WARPS = 8  # of a block

STEPS = np.dtype(
    [(name, np.int64) for name in ("warps", "symbols", "steps", "searched", "blocks", "mcus", "intervals", "longest")]
)
TRIPS = np.dtype(
    [(name, STEPS) for name in ("first", "second", "later", "joining", "keeping")]
    + [(name, np.int64) for name in ("rounds", "longest")]
)


class Costs(NamedTuple):
    """Instructions of a loop over symbols: of a walk, of a step, and of what may happen in a step."""

    walk: float
    step: float
    searched: float
    block: float
    mcu: float
    interval: float

    def of(self, steps: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Warp instructions."""
        names = ("warps", "steps", "searched", "blocks", "mcus", "intervals")
        return np.asarray(sum(cost * steps[name] for cost, name in zip(self, names, strict=True)), np.float64)


def costs(code: sass.Code, calls: Sequence[str]) -> Costs:
    """The costs of a kernel's loops over symbols, on average over the places where it is called."""

    def lines(first: str, last: str | None = None) -> tuple[str, range]:
        return sass.lines("jpeg/symbols.h", first, last)

    flagged = sass.lines("jpeg/picture.h", "FUNCTION void flag(")  # which sound files never do
    walks = code.only(*(sass.lines("jpeg/entropy.cu", call) for call in calls)).but(flagged)
    searched = lines("for (int length = LOOK + 1;", "return NO_CODE")
    mcu = lines("if (slot == 0) {", "clean = ")
    next_mcu = sass.lines("jpeg/entropy.cu", "if (++slot < picture.slots) return;", "aim();")
    block = lines("visit.block_done();", "table = tables + (dc_tables >> slot & 7);")
    interval = lines("visit.edge(interval, clean);", "reader = reader_at(stream, bit);")
    step = lines("while (bit < end) {", "return {bit, slot / 3 << 8 | index};")
    counts = [
        walks.but(step).all,
        walks.only(step).but(searched, block, interval).all,
        walks.within(searched),
        walks.only(block).but(mcu, next_mcu).all,
        walks.within(mcu, next_mcu),
        walks.within(interval),
    ]
    return Costs(*(count / len(calls) for count in counts))


class Counted(NamedTuple):
    """A batch that the kernels have decoded on the host."""

    batch: Any
    memory: torch.Tensor
    files: torch.Tensor


def decoded(wanted: Sequence[Wanted]) -> Counted:
    """Decode a batch on the host, and keep what lies in its memory.

    Raises:
        ValueError: the decoder does not take one of the files.
    """
    engine, seen = backend._Engine(torch.device("cpu")), list[Counted]()
    queue = Decoder._queue

    def kept(self: Decoder, batch: Any, decoding: Any, files: torch.Tensor) -> None:
        queue(self, batch, decoding, files)
        seen.append(Counted(batch, decoding._memory, files))

    Decoder._queue = kept  # type: ignore[method-assign]
    try:
        decoding = engine.jpeg.decode(wanted)
    finally:
        Decoder._queue = queue  # type: ignore[method-assign]
    if None in decoding.addresses or decoding.flagged():
        raise ValueError("a file is not for the decoder")
    return seen[0]


def trips(counted: Counted) -> npt.NDArray[Any]:
    """TRIPS of every picture."""
    found = np.zeros(len(counted.batch.pictures), TRIPS)
    items = ctypes.c_void_p(counted.batch.pictures.ctypes.data)
    _counter()(len(found), items, SUBSEQUENCE, ctypes.c_void_p(found.ctypes.data))
    return found


@cache
def _counter() -> Any:
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / "trips.so"
        library.write_bytes(host._compile(Path(__file__).with_name("trips.cu"), host.FLAGS))
        return ctypes.CDLL(str(library)).count_trips


def instructions(counted: Counted, found: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """Warp instructions of every kernel, for every picture."""
    code = {name: each for unit in ("stream", "tables", "entropy", "pixels") for name, each in _unit(unit).items()}
    blocks, pictures = counted.batch.blocks, counted.batch.pictures
    tables = (pictures["huffman"] > 0).sum(1)
    loading = sass.lines(
        "jpeg/entropy.cu", "for (int number = 0; number < TABLES; ++number) {", "target[i] = source[i]"
    )
    rounds = sass.lines("jpeg/entropy.cu", "for (int now = 0;; now ^= 1) {", "blocks[i] = counting.blocks;")

    def outside(kernel: str, *walks: str) -> npt.NDArray[np.float64]:
        """Instructions of a kernel's block without its walks and rounds, with its tables loaded."""
        rest = code[kernel].but(*(sass.lines("jpeg/entropy.cu", walk) for walk in walks), rounds)
        return np.asarray(rest.but(loading).all + rest.within(loading) * tables, np.float64)

    redone = code["jpeg_synchronise"].only(rounds).but(sass.lines("jpeg/entropy.cu", _WALKS[1])).all
    synchronise = costs(code["jpeg_synchronise"], _WALKS[:2])
    spans, chunks = blocks["jpeg_synchronise"], -(-dc_blocks(pictures) // 1024)
    every = {
        "jpeg_count": WARPS * blocks["jpeg_count"] * code["jpeg_count"].all,
        "jpeg_offsets": WARPS * -(-blocks["jpeg_count"] // 256) * code["jpeg_offsets"].all,
        "jpeg_unstuff": WARPS * blocks["jpeg_unstuff"] * code["jpeg_unstuff"].all,
        "jpeg_tables": WARPS * tables * code["jpeg_tables"].all,
        "jpeg_synchronise": WARPS * (spans * outside("jpeg_synchronise", *_WALKS[:2]) + found["rounds"] * redone)
        + sum(synchronise.of(found[name]) for name in ("first", "second", "later")),
        "jpeg_join": WARPS * outside("jpeg_join", _WALKS[2]) * spans
        + costs(code["jpeg_join"], _WALKS[2:3]).of(found["joining"]),
        "jpeg_coefficients": WARPS * spans * outside("jpeg_coefficients", _WALKS[3])
        + costs(code["jpeg_coefficients"], _WALKS[3:]).of(found["keeping"]),
        "jpeg_dc": WARPS * chunks.sum(1) * code["jpeg_dc"].all,
        "jpeg_transform": blocks["jpeg_transform"] * _transform_instructions(code["jpeg_transform"]),
        "jpeg_pixels": WARPS * blocks["jpeg_pixels"] * _pixel_instructions(code["jpeg_pixels"], pictures),
    }
    return {name: np.broadcast_to(np.asarray(each, np.float64), len(found)) for name, each in every.items()}


_WALKS = ("ends[t] = walk(", "ends[i] = walk(", "place = walk(", "        walk(")


@cache
def _unit(name: str) -> dict[str, sass.Code]:
    return sass.kernels(f"jpeg/{name}")


def dc_blocks(pictures: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """int64[n, 3]: blocks whose DC coefficients are summed up."""
    mcus = np.minimum(pictures["mcu_bottom"] * pictures["mcu_columns"], pictures["mcus"]).astype(np.int64)
    in_mcu = pictures["components"]["h"] * pictures["components"]["v"]
    counts: npt.NDArray[np.int64] = mcus[:, None] * in_mcu
    return counts


def _transform_instructions(code: sass.Code) -> int:
    """Instructions of a block: one warp finds the blocks, two read the quantisation table."""
    finding = sass.lines("jpeg/pixels.cu", "blocks[t] = block_at(")
    reading = sass.lines("jpeg/pixels.cu", "= quantiser(picture, component, t")
    return WARPS * code.but(finding, reading).all + code.within(finding) + 2 * code.within(reading)


def _pixel_instructions(code: sass.Code, pictures: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Instructions of a warp: upsampling has a case for every kind of component."""
    starts = [f"case {kind}" for kind in ("PLAIN", "H2V1", "H1V2", "H2V2")] + ["default: return sample_at"]
    ends = (None, "}", "}", "}", None)
    kinds = [sass.lines("jpeg/pixels.cu", start, end) for start, end in zip(starts, ends, strict=True)]
    luma = sass.lines("jpeg/pixels.cu", "const int first = upsampled(")
    chroma = sass.lines("jpeg/pixels.cu", "const int second = upsampled(")
    per_kind = np.array([[code.only(luma).within(kind), code.only(chroma).within(kind) / 2] for kind in kinds])
    kind, used = pictures["components"]["upsampling"], pictures["components"]["h"] > 0
    found: npt.NDArray[np.float64] = code.but(*kinds).all + per_kind[kind[:, 0], 0]
    found += (per_kind[kind[:, 1:], 1] * used[:, 1:]).sum(1)
    return found


def traffic(counted: Counted) -> dict[str, npt.NDArray[np.int64]]:
    """Bytes that every kernel reads and writes in the device's memory, for every picture, from the layout."""
    batch, pictures = counted.batch, counted.batch.pictures
    size = {name: sizes for name, (_, sizes) in batch.pieces.items()}
    scan = (pictures["size"] - pictures["scan"]).astype(np.int64)
    planes = size["plane0"] + size["plane1"] + size["plane2"]
    tables = (pictures["huffman"] > 0).sum(1) * TABLE_SIZE
    spans = batch.blocks["jpeg_synchronise"]
    return {
        "jpeg_count": scan + size["tiles"],
        "jpeg_offsets": 2 * size["tiles"],
        "jpeg_unstuff": 2 * scan + size["tiles"] + size["edges"],
        "jpeg_tables": tables,
        "jpeg_synchronise": scan + spans * tables + size["spans"],
        "jpeg_join": tables + 2 * size["spans"],
        "jpeg_coefficients": scan
        + spans * tables
        + size["spans"]
        + 2 * size["coefficients"]
        + size["dc"],  # and zeroed
        "jpeg_dc": 2 * size["dc"],
        "jpeg_transform": size["coefficients"] + size["dc"] + planes,
        "jpeg_pixels": planes + size["pixels"],
    }


def seconds(counted: Counted, found: npt.NDArray[Any], work: dict[str, npt.NDArray[np.float64]]) -> dict[str, float]:
    """Seconds of every kernel for the whole batch: by its instructions, bytes or longest chain, whichever is most."""
    rate = MULTIPROCESSORS * SCHEDULERS * HERTZ * ISSUED
    chunks = -(-dc_blocks(counted.batch.pictures) // 1024)
    chains = {
        "jpeg_synchronise": found["longest"].max() * STEP,
        "jpeg_join": found["joining"]["longest"].max() * STEP,
        "jpeg_coefficients": found["keeping"]["longest"].max() * STEP,
        "jpeg_dc": chunks.max() * SUM,
    }
    moved = traffic(counted)
    return {
        name: LAUNCH + max(work[name].sum() / rate, moved[name].sum() / BANDWIDTH, chains.get(name, 0) / HERTZ)
        for name in KERNELS
    }

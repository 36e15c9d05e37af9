"""Counting, without a GPU, the work of the JPEG decoder's kernels on one (``predict.py``).

Instructions are those that NVRTC makes of the kernels for sm_90 (``sass.py``), times the number of times that warps run
them: known from the files' headers or, for the loops over symbols, counted by the kernels' own code on the host
(``trips.cu``). Bytes are those of the decoder's layout. ``gpus.py`` turns them into time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda import backend
from accel.backends.cuda.declarations import constant, enumerators, structure
from accel.backends.cuda.jpeg import Request
from accel.backends.cuda.jpeg.index import COUNT, SEGMENT
from accel.backends.cuda.jpeg.layout import COMPONENTS, TABLES
from bench.gpu import gpus, sass
from bench.gpu.gpus import WARPS, Floats

PLAIN, H2V1, H2V2 = (enumerators("jpeg/picture.h", "Upsampling")[name] for name in ("PLAIN", "H2V1", "H2V2"))

CASES = (
    *("walks", "markers", "squeezed", "ends", "runs", "halved", "looked"),
    *("steps", "searched", "blocks", "mcus", "stops", "intervals", "begun", "filled", "stuffed", "stuffed again"),
)
"""The cases of ``trips.cu``, for each of which it counts how often warps meet it."""
STEPS = np.dtype([("warps", np.int64, (len(CASES),)), ("symbols", np.int64), ("longest", np.int64)])
_WATCHED = ("unstuffing", "colouring", "first", "later", "joining", "keeping", "segments", "seeking")
TRIPS = np.dtype([(name, STEPS) for name in _WATCHED] + [("rounds", np.int64)])


def costs(code: sass.Code, call: str, file: str = "jpeg/entropy.cu") -> Floats:
    """Instructions of a loop over symbols at one of its calls, for each case that may occur in it, by kind."""

    def lines(first: str, last: str | None = None) -> tuple[str, range]:
        return sass.lines("jpeg/symbols.h", first, last)

    flagged = sass.lines("jpeg/picture.h", "FUNCTION void flag(")  # which sound files never do
    walk = code.only(sass.lines(file, call)).but(flagged)
    step = lines("while (true) {", "return {base + (at >> TAKEN), slot << 8 | (at & INDEX)};")
    searched = lines("MET(SEARCHED)", "entry = entry_of(search(")
    mcu = lines("MET(MCU_ENDS)", "at = edge;")
    next_mcu = sass.lines("jpeg/entropy.cu", "if (++slot < picture.slots) return;", "aim();")
    block = lines("MET(BLOCK_ENDS)", "ac = tables.aims[slot].ac;")
    stop = lines("MET(STOPS)", "stop = lesser(mark, stop);")
    interval = lines("MET(INTERVAL_ENDS)", "edge = place_of(edges + interval, base);")
    counts = [
        walk.but(step).all,
        *np.zeros((6, len(gpus.KINDS))),
        walk.only(step).but(searched, block, stop).all,
        walk.within(searched),
        walk.only(block).but(mcu, next_mcu).all,
        walk.within(mcu, next_mcu),
        walk.only(stop).but(interval).all,
        walk.within(interval),
        *np.zeros((4, len(gpus.KINDS))),
    ]
    return np.array(counts)


def segment_costs(code: sass.Code) -> Floats:
    """The same for the loop over the symbols of a segment."""

    def lines(first: str, last: str | None = None) -> tuple[str, range]:
        return sass.lines("jpeg/segments.cu", first, last)

    flagged = sass.lines("jpeg/picture.h", "FUNCTION void flag(")
    walk = code.only(lines(_SEGMENT)).but(flagged)
    step = lines("while (true) {", "aim = tables.aims[slot].dc;")
    searched = lines("MET(SEARCHED)", "entry = entry_of(search(")
    begun = lines("MET(BLOCK_BEGINS)", "out_of_range |=")
    block = lines("MET(BLOCK_ENDS)", "aim = tables.aims[slot].dc;")
    mcu = lines("MET(MCU_ENDS)", "block = room_for(picture, row, column);")
    interval = lines("MET(INTERVAL_ENDS)", "left = lesser(picture.restart, picture.mcus - mcu);")
    filled, stuffed = lines("MET(FILLED)", "while (bits < 32);"), lines("MET(STUFFED)", "while (bits < 32);")
    nothing = np.zeros((1, len(gpus.KINDS)))
    steps = walk.only(step)
    fills = steps.but(interval).only(filled)
    counts = [
        walk.but(step).all,
        *nothing.repeat(6, 0),
        steps.but(searched, begun, block, filled).all,
        steps.within(searched),
        steps.only(block).but(mcu).all,
        steps.only(mcu).but(interval).all,
        *nothing,
        steps.within(interval),
        steps.within(begun),
        fills.but(stuffed).all,
        fills.within(stuffed),
        fills.within(stuffed),
    ]
    return np.array(counts)


class Counted(NamedTuple):
    """A batch that the kernels have decoded on the host."""

    batch: Any
    memory: torch.Tensor


def decoded(wanted: Sequence[Request]) -> Counted:
    """Decode a batch on the host, and keep the content of its memory.

    Raises:
        ValueError: the decoder does not take one of the files.
    """
    execution = backend._Engine(torch.device("cpu")).jpeg.run(wanted)
    decoding, made, memory = execution.decoding, execution.finished, execution.work.memory
    batch, (_, known, _) = made.batch, decoding._indexing.made()
    if batch is None or None in decoding.addresses or decoding.flagged():
        raise ValueError("a file is not for the decoder")
    at = int(execution.work.launches[0, 2]) - memory.data_ptr()
    bound = memory.numpy()[at : at + batch.pictures.nbytes].view(batch.pictures.dtype)
    bound["segments"][known[:, COUNT] == 0] = 0
    return Counted(batch._replace(pictures=bound), memory)


def trips(counted: Counted) -> npt.NDArray[Any]:
    """TRIPS of every picture."""
    found = np.zeros(len(counted.batch.pictures), TRIPS)
    items = ctypes.c_void_p(counted.batch.pictures.ctypes.data)
    gpus.library("trips.cu").count_trips(len(found), items, ctypes.c_void_p(found.ctypes.data))
    return found


def instructions(counted: Counted, found: npt.NDArray[Any]) -> dict[str, Floats]:
    """Warp instructions of every kernel, for every picture, by kind."""
    code, pictures = _code(), counted.batch.pictures
    blocks = {name: each[:, None] for name, each in counted.batch.blocks.items()}
    tables = _tables(pictures)
    loading = sass.lines("jpeg/symbols.h", "for (int number = 0; number < TABLES; ++number) {", "copy<sizeof(Codes)")
    copies = [
        sass.lines("jpeg/symbols.h", line) for line in ("copy<1 << DC_LOOK>", "copy<1 << AC_LOOK>", "copy<sizeof")
    ]
    rounds = sass.lines("jpeg/entropy.cu", "for (int round = 0, now = 0;", "now = next;")
    taking_part = sass.lines("jpeg/entropy.cu", "const int i = list[round & 1][t]", "= static_cast<u16>(i + 1);")

    def outside(kernel: str, *walks: str | tuple[str, range]) -> Floats:
        """Instructions of a kernel's block without its walks and rounds, with its tables loaded."""
        loops = (sass.lines("jpeg/entropy.cu", walk) if isinstance(walk, str) else walk for walk in walks)
        rest = code[kernel].but(*loops, rounds)
        loop = rest.only(loading).but(*copies).all * TABLES
        return np.asarray(rest.but(loading).all + loop + tables @ [rest.within(copy) for copy in copies])

    first, later, joining, keeping = _WALKS
    again = code["jpeg_synchronise"].only(rounds).but(sass.lines("jpeg/entropy.cu", later))
    flagged = sass.lines("jpeg/picture.h", "FUNCTION void flag(")
    rare = [
        sass.lines("jpeg/stream.cu", "const int i = lowest_bit(rest), after", "++restart;"),
        sass.lines("jpeg/stream.cu", "MET(SQUEEZED)", "rest ^= "),
        sass.lines("jpeg/stream.cu", "MET(ENDS)", "stream[swapped(bytes + i)] = "),
    ]
    marked = sass.lines("jpeg/stream.cu", "const int position = start + lowest_bit", "else atomicMin(&stop, position)")
    seeking, segment = sass.lines("jpeg/points.cu", _SEEKING), sass.lines("jpeg/segments.cu", _SEGMENT)
    looked = sass.lines("jpeg/points.cu", "for (at = greater(at, picture.scan)", "--left < 0) break;")
    halved = [
        sass.lines("jpeg/points.cu", f"while (low < high) {{  // the {what}", "else ")
        for what in ("last subsequence", "last tile", "first span")
    ]
    longest = max((code["jpeg_points"].within(each) for each in halved), key=np.sum)
    spans, chunks = blocks["jpeg_synchronise"], -(-dc_blocks(pictures) // 1024)
    every = {
        "jpeg_count": WARPS * blocks["jpeg_count"] * code["jpeg_count"].but(marked).all
        + (found["unstuffing"]["warps"][:, 1:2] + 1) * code["jpeg_count"].within(marked),  # and the end
        "jpeg_offsets": WARPS * -(-blocks["jpeg_count"] // 256) * code["jpeg_offsets"].all,
        "jpeg_unstuff": WARPS * blocks["jpeg_unstuff"] * code["jpeg_unstuff"].but(flagged, *rare).all
        + found["unstuffing"]["warps"][:, 1:4] @ [code["jpeg_unstuff"].but(flagged).within(case) for case in rare],
        "jpeg_tables": WARPS * tables[:, 2:] * code["jpeg_tables"].all,
        "jpeg_synchronise": WARPS
        * (spans * outside("jpeg_synchronise", first) + found["rounds"][:, None] * again.but(taking_part).all)
        + found["later"]["warps"][:, :1] * again.within(taking_part)
        + sum(
            found[name]["warps"] @ costs(code["jpeg_synchronise"], call)
            for name, call in (("first", first), ("later", later))
        ),
        "jpeg_join": WARPS * outside("jpeg_join", joining) * spans
        + found["joining"]["warps"] @ costs(code["jpeg_join"], joining),
        "jpeg_coefficients": WARPS * spans * outside("jpeg_coefficients", keeping)
        + found["keeping"]["warps"] @ costs(code["jpeg_coefficients"], keeping),
        "jpeg_dc": WARPS * chunks.sum(1, keepdims=True) * code["jpeg_dc"].all,
        "jpeg_points": WARPS * blocks["jpeg_points"] * outside("jpeg_points", seeking, looked, *halved)
        + found["seeking"]["warps"] @ costs(code["jpeg_points"], _SEEKING, "jpeg/points.cu")
        + found["seeking"]["warps"][:, CASES.index("halved"), None] * longest
        + found["seeking"]["warps"][:, CASES.index("looked"), None] * code["jpeg_points"].within(looked),
        "jpeg_segments": WARPS * blocks["jpeg_segments"] * outside("jpeg_segments", segment)
        + found["segments"]["warps"] @ segment_costs(code["jpeg_segments"]),
        "jpeg_transform": blocks["jpeg_transform"] * _transform_instructions(code["jpeg_transform"], pictures),
        "jpeg_pixels": WARPS
        * blocks["jpeg_pixels"]
        * code["jpeg_pixels"].but(sass.lines("jpeg/pixels.cu", "make_run(picture, run, pixels);")).all
        + found["colouring"]["warps"][:, CASES.index("runs"), None] * _run_instructions(code["jpeg_pixels"], pictures),
    }
    return {name: np.broadcast_to(each, (len(found), len(gpus.KINDS))) for name, each in every.items()}


_WALKS = (
    "const Place end = walk(",
    "const Place place = walk(",
    " place = walk(picture, tables, place",
    "        walk(",
)
"""The calls of ``walk``: from a guess, in a round, in ``join``, to keep."""
_SEEKING, _SEGMENT = "= walk(picture, tables, from", "decode_segment(picture, tables, reinterpret_cast"


@cache
def _code() -> dict[str, sass.Code]:
    units = ("stream", "tables", "entropy", "points", "segments", "pixels")
    return {name: code for unit in units for name, code in sass.kernels(f"jpeg/{unit}").items()}


def _tables(pictures: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The numbers of DC look-ups, AC look-ups and lists of codes of each picture."""
    used = pictures["huffman"] > 0
    dc, ac = used[:, :COMPONENTS].sum(1), used[:, COMPONENTS:].sum(1)
    return np.stack([dc, ac, dc + ac], 1)


def dc_blocks(pictures: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The numbers of blocks whose DC coefficients are summed up: int64[n, 3]."""
    mcus = np.where(pictures["segment_count"] > 0, 0, pictures["walked"]).astype(np.int64)
    in_mcu = pictures["components"]["h"] * pictures["components"]["v"]
    counts: npt.NDArray[np.int64] = mcus[:, None] * in_mcu
    return counts


def _transform_instructions(code: sass.Code, pictures: npt.NDArray[Any]) -> Floats:
    """Instructions of a block: one warp finds the blocks, two read the quantisation table."""
    summed = sass.lines("jpeg/pixels.cu", ": dc_value(picture, component, row")
    unknown = pictures["segment_count"][:, None] == 0
    finding = sass.lines("jpeg/pixels.cu", "blocks[t] = block_at(")
    reading = sass.lines("jpeg/pixels.cu", "= quantiser(picture, component, t")
    found = code.only(finding)
    values = found.but(summed).all + unknown * found.within(summed)
    return np.asarray(WARPS * code.but(finding, reading).all + values + 2 * code.within(reading))


def _run_instructions(code: sass.Code, pictures: npt.NDArray[Any]) -> Floats:
    """Instructions of a warp for a run of pixels, with a case for every kind of component."""
    run = code.only(sass.lines("jpeg/pixels.cu", "make_run(picture, run, pixels);"))
    plain = sass.lines(
        "jpeg/pixels.cu", "if (component.upsampling == PLAIN) {", "values[i] = run.has(i) ? read(row + i)"
    )
    other = sass.lines("jpeg/pixels.cu", "values[i] = run.has(i) ? upsampled(")
    calls = [
        sass.lines("jpeg/pixels.cu", call)
        for call in ("run, values[0]);", "values_at(second, run, values[1]);", "values_at(third, run, values[2]);")
    ]
    halved = sass.lines("jpeg/pixels.cu", "halved_at(second, third, run, both);", "values[1][i] = both[i]")
    grey = sass.lines("jpeg/pixels.cu", "const u32 copies", "return;")
    kind, used = pictures["components"]["upsampling"], pictures["components"]["h"] > 0
    found = np.tile(run.but(*calls, halved, grey).all, (len(pictures), 1))
    both = used[:, 1] & np.isin(kind[:, 1], (H2V1, H2V2)) & (kind[:, 1] == kind[:, 2])
    found += both[:, None] * run.within(halved)
    for number, call in enumerate(calls):
        called = run.only(call)
        each = np.where(kind[:, number, None] == PLAIN, called.but(other).all, called.but(plain).all)
        found += each * (used[:, number] & (~both | (number == 0)))[:, None]
    return found


def traffic(counted: Counted) -> dict[str, npt.NDArray[np.int64]]:
    """Bytes that every kernel reads and writes in the device's memory, for every picture, from the layout."""
    batch, pictures = counted.batch, counted.batch.pictures
    size = {name: sizes for name, (_, sizes) in batch.pieces.items()}
    scan = (pictures["size"] - pictures["scan"]).astype(np.int64)
    planes = size["plane0"] + size["plane1"] + size["plane2"]
    look_ups = [4 << constant("jpeg/symbols.h", name) for name in ("DC_LOOK", "AC_LOOK")]
    tables = _tables(pictures) @ [*look_ups, structure("jpeg/symbols.h", "Codes").itemsize]
    spans, indexed = batch.blocks["jpeg_synchronise"], pictures["segment_count"] > 0
    scan, behind = scan * ~indexed, scan * indexed  # with an index at most this much is needed
    segments = pictures["segment_count"] * SEGMENT.itemsize
    return {
        "jpeg_count": scan + size["tiles"],
        "jpeg_offsets": 2 * size["tiles"],
        "jpeg_unstuff": 2 * scan + size["tiles"] + size["edges"] + size["kept"],
        "jpeg_tables": tables,
        "jpeg_synchronise": scan + spans * tables + size["spans"],
        "jpeg_join": tables * ~indexed + 2 * size["spans"],
        "jpeg_coefficients": scan
        + spans * tables
        + size["spans"]
        + 2 * ~indexed * size["coefficients"]
        + size["dc"],  # and zeroed
        "jpeg_dc": 2 * size["dc"],
        "jpeg_points": tables * (size["points"] > 0) + size["points"],
        "jpeg_segments": behind
        + batch.blocks["jpeg_segments"] * tables
        + segments
        + 2 * indexed * size["coefficients"],
        "jpeg_transform": size["coefficients"] + size["dc"] + planes,
        "jpeg_pixels": planes + size["pixels"],
    }


def chains(counted: Counted, found: npt.NDArray[Any]) -> dict[str, Floats]:
    """Instructions of the longest chain of symbols, or of sums, of a kernel."""
    code, steps = _code(), CASES.index("steps")

    def walked(name: str, cost: Floats) -> Floats:
        warps = found[name]["warps"].sum(0)
        return np.asarray(found[name]["longest"].max() * (warps @ cost / max(warps[steps], 1)))

    _, later, joining, keeping = _WALKS
    return {
        "jpeg_synchronise": walked("later", costs(code["jpeg_synchronise"], later)),
        "jpeg_join": walked("joining", costs(code["jpeg_join"], joining)),
        "jpeg_coefficients": walked("keeping", costs(code["jpeg_coefficients"], keeping)),
        "jpeg_points": walked("seeking", costs(code["jpeg_points"], _SEEKING, "jpeg/points.cu")),
        "jpeg_segments": walked("segments", segment_costs(code["jpeg_segments"])),
        "jpeg_dc": -(-dc_blocks(counted.batch.pictures) // 1024).max() * code["jpeg_dc"].all,
    }

"""How accel decodes a JPEG file on a device, as an executable specification in NumPy: what every kernel must compute.

Slow and plain, for whole pictures, one thing after the other; the kernels' own names are used (backends/cuda/jpeg).
Section numbers are those of ITU-T T.81. Files are taken to be intact.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

ZIGZAG = np.array(
    [
        *(0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48),
        *(41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23),
        *(30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63),
    ]
)
"""The place in its block, row by row, of every coefficient in the stream's order (figure A.6)."""

# -- the header (annex B) -----------------------------------------------------------------------------------


class Component(NamedTuple):
    h: int
    v: int
    quant: np.ndarray
    """int[64], in the stream's order"""
    dc: dict[str, int]
    """Symbols by their codes, which are strings of 0 and 1."""
    ac: dict[str, int]


class File(NamedTuple):
    width: int
    height: int
    components: list[Component]
    colour: str
    """grey, ycc or rgb"""
    restart: int
    """MCUs of a restart interval; all of them, where there are no intervals"""
    scan: bytes
    """what follows the scan's header"""

    @property
    def mcu_size(self) -> tuple[int, int]:
        """Rows and columns of pixels."""
        return 8 * max(c.v for c in self.components), 8 * max(c.h for c in self.components)

    @property
    def mcus(self) -> tuple[int, int]:
        """Rows and columns of MCUs (A.2.4)."""
        rows, columns = self.mcu_size
        return -(-self.height // rows), -(-self.width // columns)

    @property
    def slots(self) -> list[int]:
        """The components of an MCU's blocks (A.2.3)."""
        return [c for c, component in enumerate(self.components) for _ in range(component.h * component.v)]

    @property
    def period(self) -> list[int]:
        """Components whose tables the blocks have in turn: a single one, where all share theirs."""
        first = self.components[0]
        shared = all(c.dc is first.dc and c.ac is first.ac for c in self.components)
        return self.slots[:1] if shared else self.slots


def read_header(data: bytes) -> File:
    quant: dict[int, np.ndarray] = {}
    codes: dict[int, dict[str, int]] = {}
    restart, jfif, adobe, frame, at = 0, False, -1, b"", 2
    while True:
        while data[at + 1] == 0xFF:  # fill bytes (B.1.1.2)
            at += 1
        marker, end = data[at + 1], at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        segment, at = data[at + 4 : end], end
        if marker == 0xDB:
            while segment:
                kind = ">u2" if segment[0] >> 4 else "u1"
                size = 64 * np.dtype(kind).itemsize
                quant[segment[0] & 15] = np.frombuffer(segment[1 : 1 + size], kind).astype(int)
                segment = segment[1 + size :]
        elif marker == 0xC4:
            while segment:
                count = sum(segment[1:17])
                codes[segment[0]] = huffman_codes(segment[1:17], segment[17 : 17 + count])
                segment = segment[17 + count :]
        elif marker in (0xC0, 0xC1):
            frame = segment
        elif marker == 0xDD:
            restart = int.from_bytes(segment, "big")
        elif marker == 0xE0 and segment.startswith(b"JFIF\0"):
            jfif = True
        elif marker == 0xEE and segment.startswith(b"Adobe"):
            adobe = segment[11]
        elif marker == 0xDA:
            break
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    components = []
    for (_, factors, table), (_, tables) in zip(_runs(frame[6:], 3), _runs(segment[1:-3], 2), strict=True):
        h, v = (factors >> 4, factors & 15) if frame[5] > 1 else (1, 1)  # not interleaved (A.2.2)
        components.append(Component(h, v, quant[table], codes[tables >> 4], codes[0x10 | tables & 15]))
    colour = "grey"
    if len(components) == 3:  # libjpeg's rules (jdapimin.c)
        told = adobe == 0 if adobe >= 0 else frame[6::3] == b"RGB"
        colour = "rgb" if told and not jfif else "ycc"
    file = File(width, height, components, colour, restart, data[at:])
    return file if restart else file._replace(restart=file.mcus[0] * file.mcus[1])


def _runs(values: bytes, length: int) -> Iterator[tuple[int, ...]]:
    for at in range(0, len(values), length):
        yield tuple(values[at : at + length])


def huffman_codes(counts: bytes, symbols: bytes) -> dict[str, int]:
    """Canonical codes: ascending numbers, each length's behind the shorter ones (C.2)."""
    codes, code, rest = {}, 0, list(symbols)
    for length, count in enumerate(counts, 1):
        for _ in range(count):
            codes[f"{code:0{length}b}"] = rest.pop(0)
            code += 1
        code <<= 1
    return codes


# -- the stream (jpeg_count, jpeg_offsets, jpeg_unstuff) ----------------------------------------------------


def unstuff(scan: bytes) -> tuple[bytes, list[int]]:
    """The scan's bytes without stuffing and markers, and the bits at which its restart intervals end (B.1.1.5)."""
    stream, edges, at = bytearray(), [], 0
    while True:
        byte, after = scan[at], scan[at + 1]
        if byte != 0xFF:
            stream.append(byte)
            at += 1
            continue
        if after == 0:
            stream.append(byte)
        else:
            edges.append(8 * len(stream))
            if after == 0xD9:
                return bytes(stream), edges
        at += 2


# -- entropy decoding (jpeg_synchronise, jpeg_join, jpeg_coefficients) --------------------------------------


class Place(NamedTuple):
    """Between two symbols: a bit of the stream, a block of the period, the index of the coefficient that comes next."""

    bit: int
    slot: int
    index: int


Keep = Callable[[int, int], None]
"""Called with every (index, value); index -1 at the end of a block."""


class Decoder(NamedTuple):
    file: File
    bits: str
    edges: list[int]

    def walk(self, place: Place, end: int, keep: Keep) -> Place:
        """Decode from a place until bit ``end`` is reached, as if that place were right (F.2.2)."""
        bit, slot, index = place
        slots = self.file.period
        while bit < end:
            edge = next(edge for edge in self.edges if edge > bit)
            component = self.file.components[slots[slot]]
            codes = component.ac if index else component.dc
            lengths = [n for n in range(1, 17) if self.bits[bit : bit + n] in codes]
            symbol, length = (codes[self.bits[bit : bit + lengths[0]]], lengths[0]) if lengths else (-1, 16)
            size = symbol & 15  # of what is no code: 15, so that it takes as much as a symbol may
            magnitude = self.bits[bit + length : bit + length + size]
            bit += length + size
            if symbol < 0 or (index and symbol == 0x00):  # not in step yet; or an end of block
                index = 64
            else:
                index += symbol >> 4 if index else 0
                if magnitude:
                    keep(index, extend(magnitude))
                index += 1
            if index >= 64:
                keep(-1, 0)
                slot, index = (slot + 1) % len(slots), 0
            left = edge - bit
            padded = slot == index == 0 and 0 <= left < 8 and "0" not in self.bits[bit:edge]
            if padded or left <= 0:  # to the next interval, where every decoder is in step
                bit, slot, index = edge, 0, 0
        return Place(bit, slot, index)


def extend(magnitude: str) -> int:
    """The value that these bits stand for (F.2.2.1, table F.1)."""
    value = int(magnitude, 2)
    return value if magnitude[0] == "1" else value - (1 << len(magnitude)) + 1


def _ignore(index: int, value: int) -> None:
    pass


def synchronised(decoder: Decoder, subsequence: int) -> tuple[list[Place], int]:
    """Where every subsequence's first symbol is, found as the kernels do, and how many rounds that takes.

    In the first, each is decoded from a guess; then again, from where the one before ended, as long as that changes.
    """
    count = -(-len(decoder.bits) // subsequence)
    starts = [Place(i * subsequence, 0, 0) for i in range(count)]
    stops = [min((i + 1) * subsequence, len(decoder.bits)) for i in range(count)]
    ends = [decoder.walk(start, stop, _ignore) for start, stop in zip(starts, stops, strict=True)]
    rounds = 1
    while starts[1:] != ends[:-1]:
        changed = [i for i in range(1, count) if starts[i] != ends[i - 1]]
        for i in changed:
            starts[i] = ends[i - 1]
        for i in changed:
            ends[i] = decoder.walk(starts[i], stops[i], _ignore)
        rounds += 1
    return starts, rounds


def coefficients(file: File) -> np.ndarray:
    """int[blocks, 64], in the stream's order of both; the first of each as the difference that is coded."""
    stream, edges = unstuff(file.scan)
    decoder = Decoder(file, "".join(f"{byte:08b}" for byte in stream), edges)
    found = np.zeros((file.mcus[0] * file.mcus[1] * len(file.slots), 64), int)
    block = 0

    def keep(index: int, value: int) -> None:
        nonlocal block
        if index < 0:
            block += 1
        else:
            found[block, index] = value

    decoder.walk(Place(0, 0, 0), edges[-1], keep)
    assert block == len(found)
    return found


# -- DC prediction (jpeg_dc) --------------------------------------------------------------------------------


def sum_differences(file: File, found: np.ndarray) -> None:
    """Differences to values: sums over each component's blocks, anew in every restart interval (F.2.1.3.1)."""
    slots = np.array(file.slots)
    for first in range(0, file.mcus[0] * file.mcus[1], file.restart):
        interval = found.reshape(-1, len(slots), 64)[first : first + file.restart, :, 0]
        for c in range(len(file.components)):
            own = interval[:, slots == c]
            interval[:, slots == c] = np.cumsum(own).reshape(own.shape)


# -- samples (jpeg_transform) -------------------------------------------------------------------------------


def inverse_dct(x: np.ndarray, shift: int) -> np.ndarray:
    """The one-dimensional "islow" inverse DCT of int[8, ...] along its first axis (jidctint.c)."""
    x0, x1, x2, x3, x4, x5, x6, x7 = x
    even = (x2 + x6) * 4433
    e2, e3 = even - x6 * 15137, even + x2 * 6270
    a0, a3 = ((x0 + x4) << 13) + e3, ((x0 + x4) << 13) - e3
    a1, a2 = ((x0 - x4) << 13) + e2, ((x0 - x4) << 13) - e2
    z1, z2, z5 = (x7 + x1) * -7373, (x5 + x3) * -20995, (x7 + x3 + x5 + x1) * 9633
    z3, z4 = z5 - (x7 + x3) * 16069, z5 - (x5 + x1) * 3196
    b0, b1 = x7 * 2446 + z1 + z3, x5 * 16819 + z2 + z4
    b2, b3 = x3 * 25172 + z2 + z3, x1 * 12299 + z1 + z4
    sums = np.stack([a0 + b3, a1 + b2, a2 + b1, a3 + b0, a3 - b0, a2 - b1, a1 - b2, a0 - b3])
    return (sums + (1 << shift - 1)) >> shift


def planes(file: File, found: np.ndarray) -> list[np.ndarray]:
    """The components' samples, int[rows, columns], with all of their blocks."""
    slots, made = np.array(file.slots), []
    mcu_rows, mcu_columns = file.mcus
    for c, (h, v, quant, *_) in enumerate(file.components):
        blocks = found.reshape(-1, len(slots), 64)[:, slots == c].reshape(-1, 64)
        natural = np.zeros_like(blocks)
        natural[:, ZIGZAG] = blocks * quant
        lines = inverse_dct(natural.reshape(-1, 8, 8).transpose(1, 2, 0), 11)  # columns; then rows
        samples = np.clip(inverse_dct(lines.transpose(1, 0, 2), 18) + 128, 0, 255).transpose(2, 1, 0)
        square = samples.reshape(mcu_rows, mcu_columns, v, h, 8, 8).transpose(0, 2, 4, 1, 3, 5)
        made.append(square.reshape(mcu_rows * v * 8, mcu_columns * h * 8))
    return made


# -- pixels (jpeg_pixels) -----------------------------------------------------------------------------------


def upsampled(plane: np.ndarray, h_ratio: int, v_ratio: int) -> np.ndarray:
    """A component's values at the pixels, from its true samples alone (jdsample.c)."""
    narrow = plane.shape[1] <= 2
    if (h_ratio, v_ratio) not in ((2, 1), (1, 2), (2, 2)) or (h_ratio == 2 and narrow):
        return plane.repeat(v_ratio, 0).repeat(h_ratio, 1)
    if v_ratio == 2:
        padded = np.pad(plane, ((1, 1), (0, 0)), "edge")
        near_and_far = (3 * plane + padded[:-2], 3 * plane + padded[2:])
        plane = np.stack(near_and_far, 1).reshape(-1, plane.shape[1])
        if h_ratio == 1:
            return (plane + np.array([[1], [2]] * (len(plane) // 2))) >> 2
    before, after, shift = 8, 7, 4
    if v_ratio == 1:
        before, after, shift = 1, 2, 2
    padded = np.pad(plane, ((0, 0), (1, 1)), "edge")
    left, right = 3 * plane + padded[:, :-2] + before, 3 * plane + padded[:, 2:] + after
    return np.stack([left, right], 2).reshape(len(plane), -1) >> shift


def decode(data: bytes) -> np.ndarray:
    """The pixels, uint8[height, width, 1 or 3]."""
    file = read_header(data)
    found = coefficients(file)
    sum_differences(file, found)
    rows, columns = file.mcu_size
    values = []
    for component, plane in zip(file.components, planes(file, found), strict=True):
        h_ratio, v_ratio = columns // 8 // component.h, rows // 8 // component.v
        true = plane[: -(-file.height // v_ratio), : -(-file.width // h_ratio)]
        values.append(upsampled(true, h_ratio, v_ratio)[: file.height, : file.width])
    if file.colour == "ycc":
        y, cb, cr = values[0], values[1] - 128, values[2] - 128
        values = [
            y + ((91881 * cr + 32768) >> 16),
            y + ((-22554 * cb - 46802 * cr + 32768) >> 16),
            y + ((116130 * cb + 32768) >> 16),
        ]
    return np.clip(np.stack(values, 2), 0, 255).astype(np.uint8)

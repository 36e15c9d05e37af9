"""A JPEG encoder of given coefficients with any script of scans (ITU T.81), for files that Pillow does not write."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.fuzz.segments import DHT, DQT, DRI, EOI, SOI, SOS, segment

Blocks = npt.NDArray[np.int64]
Components = Sequence[tuple[int, int, int]]


def _factors(text: str) -> list[list[tuple[int, int]]]:
    """For each word, the (h, v) of its components."""
    return [[(int(pair[0]), int(pair[1])) for pair in word.split(",")] for word in text.split()]


SAMPLINGS = _factors(
    "11 11,11,11 22,11,11 21,11,11 12,11,11 41,11,11 14,11,11 42,11,11 22,21,12 22,12,21 11,22,21 31,11,11 13,11,11 "
    "32,11,11 23,11,11 24,11,11 22,22,21 41,21,41"
)
UNEQUAL = _factors("41,21,11 22,41,11 12,21,41 41,12,21 11,22,41")
"""Three components of three widths or heights."""


class Scan(NamedTuple):
    """Component numbers, a band of coefficients, and bits: from ``high`` on known, down to ``low`` sent (Ah and Al)."""

    components: tuple[int, ...]
    first: int
    last: int
    high: int = 0
    low: int = 0


def ordinary_scans(components: int) -> list[Scan]:
    """A script: all DC coefficients, then each component's AC coefficients, with all their bits at once."""
    return [Scan(tuple(range(components)), 0, 0), *(Scan((c,), 1, 63) for c in range(components))]


def scans(rng: random.Random, components: int) -> list[Scan]:
    """A random valid script: interleaved or not, any bands, bits in any steps; sometimes without the last scans."""

    def chain(scan: tuple[int, ...], first: int, last: int) -> list[Scan]:
        deep = rng.choice((0, 0, 1, 2))
        later = [Scan(scan, first, last, bit + 1, bit) for bit in reversed(range(deep))]
        return [Scan(scan, first, last, 0, deep), *later]

    together = tuple(range(components))
    started = [chain(scan, 0, 0) for scan in ([together] if rng.random() < 0.7 else [(c,) for c in together])]
    found = [first for first, *_ in started] + [scan for _, *later in started for scan in later]
    chains = []
    for c in together:
        edges = sorted({0, 63, *(rng.randint(1, 62) for _ in range(rng.choice((0, 1, 1, 3))))})
        chains += [chain((c,), first + 1, last) for first, last in pairwise(edges)]
    while chains:
        found.append(rng.choice(chains).pop(0))
        chains = [each for each in chains if each]
    return found if rng.random() < 0.85 else found[: rng.randint(1, len(found))]


class Coder:
    """An encoder without arithmetic coding and without end-of-band runs.

    Args:
        lengths: the code lengths of the AC symbols.
    """

    def __init__(self, lengths: Sequence[int] = (8,) * 162) -> None:
        self.dc = {size: f"{size:04b}" for size in range(12)}
        symbols = [0x00, 0xF0] + [run << 4 | size for size in range(1, 11) for run in range(16)]
        self.ac: dict[int, str] = {}
        code, last = 0, 1
        for symbol, length in zip(symbols, sorted(lengths), strict=True):
            code <<= length - last
            self.ac[symbol] = f"{code:0{length}b}"
            code, last = code + 1, length

    def file(
        self,
        size: tuple[int, int],
        components: Components,
        blocks: Blocks,
        script: Sequence[Scan] = (),
        *,
        extra: bytes = b"",
        quant: int = 1,
        wide: bool = False,
        restart: int = 0,
    ) -> bytes:
        """A progressive file with the script's scans; a baseline file with one scan if there is no script.

        Args:
            components: (identifier, h, v) of each.
            blocks: int[at least one, 64] in zigzag order, repeated as needed, MCU by MCU.
            extra: segments before the tables.
            wide: whether quantisers have 16 bits.
            restart: the restart interval; 0 for none.
        """
        factors = [(h, v) for _, h, v in components] if len(components) > 1 else [(1, 1)]
        most = [max(each) for each in zip(*factors, strict=True)]
        columns, rows = (_up(_up(extent, 8), f) for extent, f in zip(size[::-1], most, strict=True))
        count, places = 0, []  # of each component's blocks: [rows, v, columns, h]
        for h, v in factors:
            first = count + sum(h * v for h, v in factors) * np.arange(rows * columns).reshape(rows, 1, columns, 1)
            places.append((first + h * np.arange(v).reshape(v, 1, 1) + np.arange(h)) % len(blocks))
            count += h * v
        table = struct.pack(">B64H", 0x10, *[quant] * 64) if wide else bytes([0]) + bytes([quant] * 64)
        frame = struct.pack(">BHHB", 8, *size, len(components))
        frame += b"".join(bytes([identity, h << 4 | v, 0]) for identity, h, v in components)
        parts = [bytes((0xFF, SOI)), extra, segment(DQT, table), segment(0xC2 if script else 0xC0, frame)]
        parts += [_table(0x00, self.dc), _table(0x10, self.ac)]
        if restart:
            parts.append(segment(DRI, restart.to_bytes(2, "big")))
        for scan in script or [Scan(tuple(range(len(components))), 0, 63)]:
            if len(scan.components) == 1:  # not interleaved: only the real blocks, row by row (A.2.2)
                (c,) = scan.components
                across, down = (_up(_up(n * f, m), 8) for n, f, m in zip(size[::-1], factors[c], most, strict=True))
                grid = places[c].reshape(rows * factors[c][1], -1)
                units = [[(c, place)] for place in grid[:down, :across].flat]
            else:
                units = [
                    [(c, place) for c in scan.components for place in places[c][row, :, column].flat]
                    for row in range(rows)
                    for column in range(columns)
                ]
            head = bytes(byte for c in scan.components for byte in (components[c][0], 0))
            band = bytes([scan.first, scan.last, scan.high << 4 | scan.low])
            parts.append(segment(SOS, bytes([len(scan.components)]) + head + band))
            interval = restart or len(units)
            for at in range(0, len(units), interval):
                coded = [[(c, blocks[place]) for c, place in unit] for unit in units[at : at + interval]]
                marker = bytes((0xFF, 0xD0 + (at // interval - 1) % 8)) if at else b""
                parts.append(marker + _bytes(self._bits(coded, scan)))
        return b"".join([*parts, bytes((0xFF, EOI))])

    def _bits(self, units: Iterable[Iterable[tuple[int, Blocks]]], scan: Scan) -> Iterator[str]:
        previous: dict[int, int] = {}
        for unit in units:
            for c, block in unit:
                yield from self._block(block, previous.get(c, 0), scan)
                previous[c] = int(block[0]) >> scan.low

    def _block(self, block: Blocks, previous: int, scan: Scan) -> Iterator[str]:
        """A block's bits in a scan; ``previous``: the DC value of the component's previous block."""
        if not scan.first:
            value = int(block[0]) >> scan.low
            size, bits = _magnitude(value - previous)
            yield str(value & 1) if scan.high else self.dc[size] + bits
        if scan.last:
            yield from self._band(block[max(scan.first, 1) : scan.last + 1].tolist(), scan.high, scan.low)

    def _band(self, values: list[int], high: int, low: int) -> Iterator[str]:
        """Coefficients that become nonzero, and further bits of those that are already (G.1.2.2, G.1.2.3)."""
        levels = [abs(value) >> low for value in values]
        known = [bool(high and abs(value) >> high) for value in values]
        end = max((at + 1 for at, level in enumerate(levels) if level and not known[at]), default=0)
        run, corrections = 0, ""
        for value, level, is_known in zip(values[:end], levels, known, strict=False):
            if is_known:
                corrections += str(level & 1)
            elif level or run == 15:
                size, bits = _magnitude(level if value > 0 else -level)
                yield self.ac[run << 4 | size] + bits + corrections
                run, corrections = 0, ""
            else:
                run += 1
        if end < len(values):
            rest = zip(levels[end:], known[end:], strict=True)
            yield self.ac[0] + "".join(str(level & 1) for level, is_known in rest if is_known)


def _up(value: int, by: int) -> int:
    return -(-value // by)


def _magnitude(value: int) -> tuple[int, str]:
    size = abs(value).bit_length()
    return size, f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else ""


def _table(kind: int, codes: dict[int, str]) -> bytes:
    lengths = [len(code) for code in codes.values()]
    return segment(DHT, bytes([kind]) + bytes(lengths.count(length) for length in range(1, 17)) + bytes(codes))


def _bytes(bits: Iterable[str]) -> bytes:
    """Pack bits to bytes: the last byte is filled with ones, 0xFF is followed by a zero."""
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    return int(text or "0", 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\x00")


def random_blocks(count: int, seed: int = 0, spread: float = 40, density: float = 0.3) -> Blocks:
    """int[count, 64]: random coefficients, smaller and rarer towards the end."""
    rng = np.random.default_rng(seed)
    values = rng.laplace(0, spread / (1 + np.arange(64) / 4), (count, 64)).astype(int)
    blocks: Blocks = np.clip(values, -400, 400)
    blocks[rng.random((count, 64)) > density] = 0
    return blocks

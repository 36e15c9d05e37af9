"""A progressive encoder for given coefficients and any script of scans (ITU T.81 annex G; no runs of ended blocks)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bench.fuzz.coder import Blocks, Coder, Components
from bench.fuzz.segments import DRI, EOI, segment


class Scan(NamedTuple):
    """Components by their numbers, a band of coefficients, and bits: ``high`` are there, down to ``low`` come now."""

    components: tuple[int, ...]
    first: int
    last: int
    high: int
    low: int


def ordinary_scans(components: int) -> list[Scan]:
    """All DC coefficients, then every component's others, all bits of them at once."""
    return [Scan(tuple(range(components)), 0, 0, 0, 0), *(Scan((c,), 1, 63, 0, 0) for c in range(components))]


def scans(rng: random.Random, components: int) -> list[Scan]:
    """A valid script: interleaved or not, bands of any width, bits in any steps; the last are missing now and then."""
    found: list[Scan] = []
    together = tuple(range(components))
    for number, scan in enumerate([together] if rng.random() < 0.7 else [(c,) for c in together]):
        deep = rng.choice((0, 0, 1, 2))
        found[number:number] = [Scan(scan, 0, 0, 0, deep)]
        found += [Scan(scan, 0, 0, bit + 1, bit) for bit in reversed(range(deep))]
    chains = []
    for c in together:
        edges = sorted({0, 63, *(rng.randint(1, 62) for _ in range(rng.choice((0, 1, 1, 3))))})
        for first, last in pairwise(edges):
            deep = rng.choice((0, 0, 1, 2))
            chain = [Scan((c,), first + 1, last, 0, deep)]
            chains.append(chain + [Scan((c,), first + 1, last, bit + 1, bit) for bit in reversed(range(deep))])
    while chains:
        chain = rng.choice(chains)
        found.append(chain.pop(0))
        chains = [each for each in chains if each]
    return found if rng.random() < 0.85 else found[: rng.randint(1, len(found))]


def _up(value: int, by: int) -> int:
    return -(-value // by)


class ProgressiveCoder(Coder):
    """As its base, in as many scans as the script has."""

    def progressive(
        self,
        size: tuple[int, int],
        components: Components,
        blocks: Blocks,
        script: Sequence[Scan],
        *,
        extra: bytes = b"",
        quant: int = 1,
        restart: int = 0,
    ) -> bytes:
        """Arguments as for ``file``; the blocks are those of each component in turn, used again and again."""
        largest = max(h for _, h, _ in components), max(v for _, _, v in components)
        columns, rows = _up(size[1], 8 * largest[0]), _up(size[0], 8 * largest[1])
        planes, used = [], 0
        for _, h, v in components:
            count = rows * v * columns * h
            places = (used + np.arange(count)) % len(blocks)
            planes.append(blocks[places].reshape(rows * v, columns * h, 64))
            used += count
        parts = [self._head(0xC2, size, components, extra, quant)]
        if restart:
            parts.append(segment(DRI, restart.to_bytes(2, "big")))
        for scan in script:
            chosen = [components[c] for c in scan.components]
            units: list[list[tuple[int, Blocks]]] = []
            if len(scan.components) == 1:  # not interleaved: its true blocks, row by row (A.2.2)
                c = scan.components[0]
                _, h, v = chosen[0]
                high, wide = (_up(_up(n * f, most), 8) for n, f, most in zip(size, (v, h), largest[::-1], strict=True))
                units = [[(c, planes[c][y, x])] for y in range(high) for x in range(wide)]
            else:
                units = [
                    [
                        (c, planes[c][row * v + y, column * h + x])
                        for c, (_, h, v) in zip(scan.components, chosen, strict=True)
                        for y in range(v)
                        for x in range(h)
                    ]
                    for row in range(rows)
                    for column in range(columns)
                ]
            parts.append(self._scan_head(chosen, bytes([scan.first, scan.last, scan.high << 4 | scan.low])))
            for at in range(0, len(units), restart or len(units)):
                marker = bytes((0xFF, 0xD0 + (at // restart - 1) % 8)) if at else b""
                parts.append(marker + self._coded(self._bits(units[at : at + (restart or len(units))], scan)))
        return b"".join([*parts, bytes((0xFF, EOI))])

    def _bits(self, units: Sequence[Sequence[tuple[int, Blocks]]], scan: Scan) -> Iterator[str]:
        previous: dict[int, int] = {}
        for unit in units:
            for c, block in unit:
                if scan.first:
                    yield from self._band(block, scan)
                elif scan.high:
                    yield str(int(block[0]) >> scan.low & 1)
                else:
                    value = int(block[0]) >> scan.low
                    size, bits = self._magnitude(value - previous.get(c, 0))
                    yield f"{self.dc[size][1]:04b}" + bits
                    previous[c] = value

    def _band(self, block: Blocks, scan: Scan) -> Iterator[str]:
        """A block's part of an AC scan: what becomes nonzero now, and bits of what is already (G.1.2.2, G.1.2.3)."""
        values = [int(value) for value in block[scan.first : scan.last + 1]]
        levels = [(abs(value) >> scan.low) * (1 if value > 0 else -1) for value in values]
        new = [bool(level) and not abs(value) >> scan.high for level, value in zip(levels, values, strict=True)]
        if not scan.high:
            new = [bool(level) for level in levels]
        last = max((place for place, is_new in enumerate(new) if is_new), default=-1)
        run, corrections = 0, ""
        for place, level in enumerate(levels):
            if place > last:
                break
            if level and not new[place]:
                corrections += str(abs(level) & 1)
                continue
            if not level:
                run += 1
                if run == 16:
                    yield self._code(0xF0) + corrections
                    run, corrections = 0, ""
                continue
            size, bits = self._magnitude(level)
            yield self._code(run << 4 | size) + bits + corrections
            run, corrections = 0, ""
        if last < len(levels) - 1:
            rest = [level for place, level in enumerate(levels) if place > last and level]
            yield self._code(0x00) + "".join(str(abs(level) & 1) for level in rest)

"""A baseline encoder for given coefficients, for the JPEG files that Pillow does not write."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bench.fuzz.segments import DHT, DQT, EOI, SOI, SOS, segment

Blocks = npt.NDArray[np.int64]
Components = Sequence[tuple[int, int, int]]


def _factors(text: str) -> list[list[tuple[int, int]]]:
    """For each word the (h, v) of its components."""
    return [[(int(pair[0]), int(pair[1])) for pair in word.split(",")] for word in text.split()]


SAMPLINGS = _factors(
    "11 11,11,11 22,11,11 21,11,11 12,11,11 41,11,11 14,11,11 42,11,11 22,21,12 22,12,21 11,22,21 31,11,11 13,11,11 "
    "32,11,11 23,11,11 24,11,11 22,22,21 41,21,41"
)
UNEQUAL = _factors("41,21,11 22,41,11 12,21,41 41,12,21 11,22,41")
"""Three components of three widths or heights."""


class Coder:
    """A baseline encoder for given coefficients, so that files can be made that Pillow does not write."""

    def __init__(self, lengths: Sequence[int] = (8,) * 162) -> None:
        self.dc = {size: (4, size) for size in range(12)}
        symbols = [0x00, 0xF0] + [run << 4 | size for size in range(1, 11) for run in range(16)]
        self.ac: dict[int, tuple[int, int]] = {}
        code, last = 0, 1
        for symbol, length in zip(symbols, sorted(lengths), strict=True):
            code <<= length - last
            self.ac[symbol] = (length, code)
            code, last = code + 1, length

    @staticmethod
    def _magnitude(value: int) -> tuple[int, str]:
        size = abs(value).bit_length()
        return size, f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else ""

    def _block(self, coefficients: Blocks, previous: int) -> Iterator[str]:
        size, bits = self._magnitude(int(coefficients[0]) - previous)
        yield f"{self.dc[size][1]:04b}" + bits
        run = 0
        for value in np.trim_zeros(coefficients[1:], "b"):
            if value == 0:
                run += 1
                continue
            size, bits = self._magnitude(int(value))
            yield self._code(0xF0) * (run // 16) + self._code(run % 16 << 4 | size) + bits
            run = 0
        if coefficients[63] == 0:
            yield self._code(0)

    def _code(self, symbol: int) -> str:
        length, code = self.ac[symbol]
        return f"{code:0{length}b}"

    @staticmethod
    def _table(kind: int, codes: dict[int, tuple[int, int]]) -> bytes:
        lengths = [length for length, _ in codes.values()]
        counts = bytes(lengths.count(length) for length in range(1, 17))
        return segment(DHT, bytes([kind]) + counts + bytes(codes))

    def _head(
        self, kind: int, size: tuple[int, int], components: Components, extra: bytes, quant: int, wide: bool = False
    ) -> bytes:
        """All that comes before the first scan."""
        frame = struct.pack(">BHHB", 8, *size, len(components))
        frame += b"".join(bytes([identity, h << 4 | v, 0]) for identity, h, v in components)
        table = struct.pack(">B64H", 0x10, *[quant] * 64) if wide else bytes([0]) + bytes([quant] * 64)
        parts = (segment(DQT, table), segment(kind, frame), self._table(0x00, self.dc), self._table(0x10, self.ac))
        return bytes((0xFF, SOI)) + extra + b"".join(parts)

    @staticmethod
    def _scan_head(components: Components, band: bytes) -> bytes:
        chosen = b"".join(bytes([identity, 0]) for identity, _, _ in components)
        return segment(SOS, bytes([len(components)]) + chosen + band)

    @staticmethod
    def _coded(bits: Iterable[str]) -> bytes:
        """The last byte is filled up with ones; 0xFF is followed by a zero."""
        text = "".join(bits)
        text += "1" * (-len(text) % 8)
        return int(text or "0", 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\x00")

    def file(
        self,
        size: tuple[int, int],
        components: Components,
        blocks: Blocks,
        *,
        extra: bytes = b"",
        quant: int = 1,
        wide: bool = False,
    ) -> bytes:
        """Components are (identifier, h, v); blocks int[at least as many as needed, 64] in zigzag and scan order."""
        factors = [(h, v) for _, h, v in components] if len(components) > 1 else [(1, 1)]
        mcus = -(-size[0] // (8 * max(v for _, v in factors))) * -(-size[1] // (8 * max(h for h, _ in factors)))
        bits: list[str] = []
        previous = [0] * len(components)
        source = itertools.cycle(blocks)
        for _ in range(mcus):
            for c, (h, v) in enumerate(factors):
                for _ in range(h * v):
                    block = next(source)
                    bits += self._block(block, previous[c])
                    previous[c] = int(block[0])
        scan = self._scan_head(components, b"\0\x3f\0") + self._coded(bits)
        return self._head(0xC0, size, components, extra, quant, wide) + scan + bytes((0xFF, EOI))


def random_blocks(count: int, seed: int = 0, spread: float = 40, density: float = 0.3) -> Blocks:
    """int[count, 64]: random coefficients, smaller and rarer towards the end."""
    rng = np.random.default_rng(seed)
    blocks = rng.laplace(0, spread / (1 + np.arange(64) / 4), (count, 64)).astype(int)
    blocks[rng.random((count, 64)) > density] = 0
    limited: Blocks = np.clip(blocks, -400, 400)
    return limited

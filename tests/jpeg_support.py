"""What the tests of the JPEG decoders share: pictures, files of all kinds, damage."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

KINDS = ("smooth", "noise", "stripes", "binary", "flat")


def picture(kind: str, height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """uint8[height, width, channels]; [height, width] for one channel."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width][..., None] / 7.0
    phase = np.arange(channels)
    if kind == "smooth":
        pixels = 128 + 60 * np.sin(x + phase) + 60 * np.cos(y * (phase + 1) / 2) + rng.normal(0, 4, (height, width, 1))
    elif kind == "noise":
        pixels = rng.integers(0, 256, (height, width, channels))
    elif kind == "stripes":
        pixels = 255 * ((np.mgrid[:height, :width].sum(0)[..., None] // (phase + 1)) % 2)
    elif kind == "binary":
        pixels = 255 * rng.integers(0, 2, (height, width, channels))
    else:
        pixels = np.broadcast_to(np.array([17, 200, 90])[:channels], (height, width, channels))
    pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    return pixels[..., 0] if channels == 1 else pixels


def encode(pixels: np.ndarray, **options: Any) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def pillow(data: bytes) -> np.ndarray:
    """uint8[height, width, channels]"""
    with Image.open(BytesIO(data)) as image:
        pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


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

    def _dc(self, value: int, previous: int) -> str:
        size, bits = self._magnitude(value - previous)
        return f"{self.dc[size][1]:04b}" + bits

    def _ac(self, coefficients: np.ndarray) -> Iterator[str]:
        run = 0
        for value in np.trim_zeros(coefficients[1:], "b"):
            if value == 0:
                run += 1
                continue
            for _ in range(run // 16):
                yield f"{self.ac[0xF0][1]:0{self.ac[0xF0][0]}b}"
            size, bits = self._magnitude(int(value))
            length, code = self.ac[run % 16 << 4 | size]
            yield f"{code:0{length}b}" + bits
            run = 0
        if coefficients[63] == 0:
            yield f"{self.ac[0][1]:0{self.ac[0][0]}b}"

    @staticmethod
    def _segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    def _table(self, kind: int, codes: dict[int, tuple[int, int]]) -> bytes:
        lengths = [length for length, _ in codes.values()]
        counts = bytes(lengths.count(length) for length in range(1, 17))
        return self._segment(0xC4, bytes([kind]) + counts + bytes(codes))

    def file(
        self,
        size: tuple[int, int],
        components: Sequence[tuple[int, int, int]],
        blocks: np.ndarray,
        *,
        extra: bytes = b"",
        quant: int = 1,
        wide: bool = False,
        progressive: bool = False,
    ) -> bytes:
        """Components are (identifier, h, v); blocks int[at least as many as needed, 64] in zigzag and scan order.

        A progressive file has the DC coefficients first, and then every component's others.
        """
        factors = [(h, v) for _, h, v in components] if len(components) > 1 else [(1, 1)]
        h_max, v_max = (max(each) for each in zip(*factors, strict=True))
        across, down = -(-size[1] // (8 * h_max)), -(-size[0] // (8 * v_max))
        bits: list[str] = []
        previous = [0] * len(components)
        kept: list[dict[tuple[int, int], np.ndarray]] = [{} for _ in components]
        source = itertools.cycle(blocks)
        for mcu in range(across * down):
            for c, (h, v) in enumerate(factors):
                for place in range(h * v):
                    block = next(source)
                    kept[c][mcu // across * v + place // h, mcu % across * h + place % h] = block
                    bits += self._dc(int(block[0]), previous[c])
                    bits += () if progressive else self._ac(block)
                    previous[c] = int(block[0])
        scans = [self._scan(range(len(components)), components, (0, 0 if progressive else 63), bits)]
        for c, (h, v) in enumerate(factors if progressive else ()):
            rows, columns = -(-size[0] * v // (8 * v_max)), -(-size[1] * h // (8 * h_max))
            bits = [code for y in range(rows) for x in range(columns) for code in self._ac(kept[c][y, x])]
            scans.append(self._scan([c], components, (1, 63), bits))
        table = struct.pack(">B64H", 0x10, *[quant] * 64) if wide else bytes([0]) + bytes([quant] * 64)
        frame = struct.pack(">BHHB", 8, *size, len(components))
        frame += b"".join(bytes([identity, h << 4 | v, 0]) for identity, h, v in components)
        return b"".join(
            [
                b"\xff\xd8",
                extra,
                self._segment(0xDB, table),
                self._segment(0xC2 if progressive else 0xC0, frame),
                self._table(0x00, self.dc),
                self._table(0x10, self.ac),
                *scans,
                b"\xff\xd9",
            ]
        )

    def _scan(
        self, of: Sequence[int], components: Sequence[tuple[int, int, int]], band: tuple[int, int], bits: Sequence[str]
    ) -> bytes:
        text = "".join(bits)
        text += "1" * (-len(text) % 8)
        start = bytes([len(of)]) + b"".join(bytes([components[c][0], 0]) for c in of) + bytes([*band, 0])
        data = int("0" + text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\x00")
        return self._segment(0xDA, start) + data


def random_blocks(count: int, seed: int = 0, spread: float = 40, density: float = 0.3) -> np.ndarray:
    """int[count, 64]: random coefficients, smaller and rarer towards the end."""
    rng = np.random.default_rng(seed)
    blocks = rng.laplace(0, spread / (1 + np.arange(64) / 4), (count, 64)).astype(int)
    blocks[rng.random((count, 64)) > density] = 0
    return np.clip(blocks, -400, 400)


JFIF = b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"


def adobe(transform: int) -> bytes:
    return b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([transform])


SAMPLINGS = [
    [(1, 1)],
    [(1, 1), (1, 1), (1, 1)],
    [(2, 2), (1, 1), (1, 1)],
    [(2, 1), (1, 1), (1, 1)],
    [(1, 2), (1, 1), (1, 1)],
    [(4, 1), (1, 1), (1, 1)],
    [(1, 4), (1, 1), (1, 1)],
    [(4, 2), (1, 1), (1, 1)],
    [(2, 2), (2, 1), (1, 2)],
    [(2, 2), (1, 2), (2, 1)],
    [(1, 1), (2, 2), (2, 1)],
    [(3, 1), (1, 1), (1, 1)],
    [(1, 3), (1, 1), (1, 1)],
    [(3, 2), (1, 1), (1, 1)],
    [(2, 3), (1, 1), (1, 1)],
    [(2, 4), (1, 1), (1, 1)],
    [(2, 2), (2, 2), (2, 1)],
    [(4, 1), (2, 1), (4, 1)],
]


def damaged(data: bytes, rng: np.random.Generator, *, header: bool) -> bytes:
    """The file with one small damage, in its scan or before it."""
    changed = bytearray(data)
    scan = data.rindex(b"\xff\xda") + 14
    start, stop = (2, scan) if header else (scan, len(data) - 2)
    at = int(rng.integers(start, stop))
    match rng.integers(4):
        case 0:
            changed[at] ^= 1 << int(rng.integers(8))
        case 1:
            changed[at] = int(rng.integers(256))
        case 2:
            del changed[at : at + int(rng.integers(1, 5))]
        case _:
            changed[at:at] = rng.bytes(int(rng.integers(1, 5)))
    return bytes(changed)


@st.composite
def files_and_boxes(draw: st.DrawFn, largest: int) -> tuple[bytes, tuple[int, int, int, int]]:
    """A file of at most ``largest`` rows and columns, of any of Pillow's encoder settings, and a box inside it."""
    height, width = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    channels = draw(st.sampled_from([1, 3]))
    options: dict[str, Any] = {"quality": draw(st.integers(1, 100)), "optimize": draw(st.booleans())}
    if channels == 3:
        options["subsampling"] = draw(st.integers(0, 2))
    if restart := draw(st.integers(0, 5)):
        options["restart_marker_blocks"] = restart
    pixels = picture(draw(st.sampled_from(KINDS)), height, width, channels, draw(st.integers(0, 99)))
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    box = (top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left)))
    return encode(pixels, **options), box

"""Odd JPEG files: unusual ones that every decoder takes, and what could be done to them by accident or malice.

    python tests/jpeg_oddities.py --count 20000 [--first N] [--seed S]

File number n of a seed is always the same one. Both of accel's decoders, on the whole or a part, and the cuda and cpu
backends are asked what they make of each; exit status 1: something that Pillow does not.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
import torch
from jpeg_support import JFIF, SAMPLINGS, Coder, adobe, encode, picture, pillow, random_blocks
from mutations import MUTATIONS, Piece, joined, pieces
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import testing
from accel.backends.cuda import backend
from accel.backends.cuda.jpeg import Wanted
from accel.codec import engines
from accel.sources.header import claim

Rng = random.Random
Change = Callable[[bytes, Rng], bytes]
LARGEST = 1 << 18  # pixels: a damaged header may promise many
BATCH = 64

IDENTIFIERS = [(1, 2, 3), (0, 1, 2), (82, 71, 66), (66, 71, 82), (1, 1, 2), (255, 0, 128)]
FACTORS = [
    *SAMPLINGS,
    *([factors] * 3 for factors in ((2, 2), (2, 1))),
    *([factors, (1, 1), (1, 1)] for factors in ((3, 3), (4, 4))),
    *([factors, (2, 1), (1, 1)] for factors in ((3, 1), (1, 1), (2, 2))),
    [(1, 1), (1, 1), (2, 2)],
    [(2, 2), (2, 1), (2, 1)],
]
LENGTHS = [(8,) * 162, (2, 3, 4, *(16,) * 159), (16,) * 162, (1, *(9,) * 20, *(13,) * 141), (2, 2, *(9,) * 160)]


def odd_file(rng: Rng) -> bytes:
    """An intact file, as Pillow writes them or as nobody does."""
    height, width = rng.randint(1, 90), rng.randint(1, 90)
    if rng.random() < 0.4:
        options: dict[str, Any] = {"quality": rng.choice((1, 5, 30, 75, 95, 100)), "optimize": rng.random() < 0.4}
        options |= rng.choice(({}, {"restart_marker_blocks": rng.choice((1, 2, 5, 65535))}, {"restart_marker_rows": 1}))
        options |= rng.choice(({}, {"keep_rgb": True}, *({"subsampling": n} for n in range(3))))
        kind = rng.choice(("smooth", "noise", "stripes", "binary", "flat"))
        pixels = picture(kind, height, width, 3, rng.randrange(1000))
        return encode(pixels, progressive=rng.random() < 0.05, **options)
    factors = rng.choice(FACTORS) if rng.random() < 0.85 else [rng.choice(((1, 1), (2, 2), (1, 2), (3, 1)))]
    components = [(i, h, v) for i, (h, v) in zip(rng.choice(IDENTIFIERS), factors, strict=False)]
    extra = rng.choice((b"", JFIF, *map(adobe, (0, 1, 2, 3, 255)), JFIF + adobe(0), adobe(0) + adobe(1)))
    wide = rng.random() < 0.3
    quant = rng.choice((1, 255, 256, 1000, 8191, 8192, 65535) if wide else (1, 1, 2, 7, 33, 200))
    spread = max(min(rng.choice((5, 40, 300)), 1000 / quant), 2)
    blocks = random_blocks(rng.randint(3, 60), rng.randrange(1 << 30), spread, rng.choice((0.02, 0.1, 0.3, 0.9)))
    return Coder(rng.choice(LENGTHS)).file((height, width), components, blocks, extra=extra, quant=quant, wide=wide)


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def scan_of(data: bytes) -> int:
    at = data.rindex(b"\xff\xda") + 2
    return at + int.from_bytes(data[at : at + 2], "big")


def between(data: bytes, rng: Rng) -> int:
    """A place between two segments in front of the scan."""
    found, at = [2], 2
    while data[at + 1] != 0xDA:
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        found.append(at)
    return rng.choice(found)


def put(data: bytes, at: int, more: bytes) -> bytes:
    return data[:at] + more + data[at:]


def markers_of(data: bytes, *values: int) -> list[int]:
    start = scan_of(data)
    return [i for i in range(start, len(data) - 1) if data[i] == 0xFF and (not values or data[i + 1] in values)]


def flipped(data: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        changed[rng.randrange(scan_of(data), len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flipped_header(data: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(2, scan_of(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data: bytes, rng: Rng) -> bytes:
    return data[: rng.randrange(2, len(data))] + rng.choice((b"", b"\xff\xd9"))


def another_interval(data: bytes, rng: Rng) -> bytes:
    return put(data, between(data, rng), segment(0xDD, struct.pack(">H", rng.choice((0, 1, 2, 7, 60000, 65535)))))


def number_of_lines(data: bytes, rng: Rng) -> bytes:
    lines = segment(0xDC, struct.pack(">H", rng.choice((0, 1, 16, 48))))
    return put(data, rng.choice((between(data, rng), len(data) - 2, len(data))), lines)


def fill_bytes(data: bytes, rng: Rng) -> bytes:
    places = [between(data, rng), len(data) - 2, *markers_of(data)]
    return put(data, rng.choice(places), b"\xff" * rng.choice((1, 2, 50)))


def restarts(data: bytes, rng: Rng) -> bytes:
    """Another one, one too many, one less, two exchanged, one where none should be."""
    found, another = markers_of(data, *range(0xD0, 0xD8)), bytes((0xFF, 0xD0 + rng.randrange(8)))
    if not found or rng.random() < 0.2:
        return put(data, rng.choice((rng.randrange(scan_of(data), len(data)), len(data) - 2)), another)
    at, other = rng.choice(found), rng.choice(found)
    changed = bytearray(data)
    changed[at + 1], changed[other + 1] = changed[other + 1], changed[at + 1]
    return rng.choice(
        (data[:at] + another + data[at + 2 :], put(data, at, another), data[:at] + data[at + 2 :], bytes(changed))
    )


def beginnings(data: bytes, rng: Rng) -> bytes:
    return put(data, rng.choice((between(data, rng), scan_of(data), len(data) - 2)), b"\xff\xd8" * rng.randint(1, 2))


def thumbnail(data: bytes, rng: Rng) -> bytes:
    small = encode(picture("smooth", 12, 16), quality=50)
    body = rng.choice((b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0", b"", b"JFXX\0\x10")) + small
    return put(data, between(data, rng), segment(rng.choice((0xE0, 0xE1, 0xE2, 0xED, 0xFE)), body))


def empty_segment(data: bytes, rng: Rng) -> bytes:
    marker = rng.choice((*range(0xC4, 0xF1), 0xFD, 0xFE, 0x01, 0x02, 0xBF))
    return put(data, between(data, rng), bytes((0xFF, marker)) + struct.pack(">H", rng.choice((0, 1, 2, 2, 3, 4))))


def tables_again(data: bytes, rng: Rng) -> bytes:
    """Tables of this file or another one, anywhere; or in one segment."""
    file = pieces(data)
    tables = [piece for piece in (*file, *pieces(odd_file(rng))) if piece.marker in (0xDB, 0xC4)]
    if rng.random() < 0.3:
        marker = rng.choice((0xDB, 0xC4))
        own = [piece for piece in file if piece.marker == marker]
        rest = [piece for piece in file if piece.marker != marker]
        rest.insert(0, Piece(marker, b"".join(piece.payload for piece in own)))
        return joined(rest)
    for _ in range(rng.randint(1, 3)):
        file.insert(rng.randint(0, len(file)), rng.choice(tables))
    return joined(file)


def table_changed(data: bytes, rng: Rng) -> bytes:
    file = pieces(data)
    place = rng.choice([i for i, piece in enumerate(file) if piece.marker == 0xC4])
    payload = bytearray(file[place].payload)
    at = rng.randrange(len(payload))
    payload[at] = rng.choice((payload[at] ^ 1, 0, 0xF0, 0x10, 0x0F, rng.randrange(256)))
    file[place] = Piece(0xC4, bytes(payload))
    return joined(file)


def two_files(data: bytes, rng: Rng) -> bytes:
    other = odd_file(rng)
    return rng.choice((data[:-2] + other[2:], data + other, data[: scan_of(data)] + other[2:]))


def other_end(data: bytes, rng: Rng) -> bytes:
    end = rng.choice(
        (b"", b"\0", b"\xff", b"\xff\xff", b"\xff\0", bytes(70_000), b"\x7f", b"\xff\x01", b"\xff\xd9" * 2)
    )
    return data[:-2] + end + rng.choice((b"\xff\xd9", b"")) + rng.choice((b"", b"\0", b"junk" * 30, b"\xff\xd8\xff"))


def scan_header(data: bytes, rng: Rng) -> bytes:
    at, changed = data.rindex(b"\xff\xda"), bytearray(data)
    changed[rng.randrange(at + 4, scan_of(data))] = rng.choice((0, 1, 2, 3, 62, 63, 64, 0x11, 0x01, 0x33, 255))
    return bytes(changed)


CHANGES: tuple[Change, ...] = (
    *(lambda data, rng: data, flipped, flipped, flipped_header, cut, another_interval, number_of_lines, fill_bytes),
    *(restarts, restarts, beginnings, thumbnail, empty_segment, tables_again, table_changed, two_files, other_end),
    *(scan_header, lambda data, rng: data.replace(b"\xff\xc0", b"\xff\xc1", 1)),
    *(
        lambda data, rng, change=MUTATIONS[name]: change(data, data, rng)
        for name in ("other sampling factors", "another kind of frame", "another size", "a wrong segment length")
    ),
)


def oddity(number: int, seed: str) -> tuple[bytes, Rng]:
    rng = Rng(f"{seed} {number}")
    data = odd_file(rng)
    for _ in range(rng.choice((1, 1, 1, 2))):
        with suppress(IndexError, ValueError, OverflowError):  # what was changed before may have no such part
            data = rng.choice(CHANGES)(data, rng)
    return data, rng


def outcome(function: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function()
        except Exception as error:
            return error


def check(numbers: range, seed: str = "", every: int = 1) -> tuple[Counter[str], list[str]]:
    """What was compared, how often, and what is not Pillow's. Every so-many-th file goes through the backends, too."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    decoder = backend._Engine(torch.device("cpu")).jpeg

    def compare(what: str, number: int, expected: Any, found: Any) -> None:
        counts[what] += 1
        if not (isinstance(expected, np.ndarray) and isinstance(found, np.ndarray) and np.array_equal(expected, found)):
            wrong.append(f"{what}, file {number}: {expected!r:.80} is Pillow's, not {found!r:.80}")

    for first in range(numbers.start, numbers.stop, BATCH):
        batch = {number: oddity(number, seed) for number in range(first, min(first + BATCH, numbers.stop))}
        wanted: dict[int, Wanted] = {}
        for number, (data, rng) in batch.items():
            counts["files"] += 1
            header = claim(data)
            if number % every == 0:
                _through_backends(data, rng, number, counts, wrong)
            if header is None or header.progressive or not header.ordinary or header.width * header.height > LARGEST:
                continue
            top, left = rng.randrange(header.height), rng.randrange(header.width)
            box = (top, left, rng.randint(1, header.height - top), rng.randint(1, header.width - left))
            whole = (0, 0, header.height, header.width)
            wanted[number] = Wanted(data, rng.choice((whole, box, box)), 1 if header.mode == "L" else 3)
        decoding = decoder.decode(list(wanted.values()))
        flagged = set(decoding.flagged())
        for place, (number, (data, box, channels)) in enumerate(wanted.items()):
            top, left, height, width = box
            expected = outcome(lambda data=data: pillow(data))  # type: ignore[misc]
            if isinstance(expected, np.ndarray):
                expected = expected[top : top + height, left : left + width]
            if decoding.addresses[place] is not None and place not in flagged:
                pixels = decoding.read(place, height * width * channels).reshape(height, width, channels)
                compare("device", number, expected, pixels)
            on_host = outcome(lambda data=data, box=box, channels=channels: engines.accel(data, box, channels))  # type: ignore[misc]
            if on_host is not None:
                compare("host", number, expected, on_host)
    return counts, wrong


def _through_backends(data: bytes, rng: Rng, number: int, counts: Counter[str], wrong: list[str]) -> None:
    shares = [rng.random() for _ in range(4)]

    def use() -> Any:
        image = Image.open(BytesIO(data))
        if image.width * image.height > LARGEST:
            raise ValueError("too large for this test")
        left, top = int(shares[0] * image.width), int(shares[1] * image.height)
        right, bottom = (
            left + 1 + int(shares[2] * (image.width - left - 1)),
            top + 1 + int(shares[3] * (image.height - top - 1)),
        )
        return F.to_tensor(image.crop((left, top, right, bottom)))

    expected = outcome(use)
    for name, options in (("cuda", {"device": "cpu"}), ("cpu", {})):
        with accel.image_backend(name, **options):  # type: ignore[arg-type]

            def computed() -> torch.Tensor:
                late = use()
                is_late = type(late) is not torch.Tensor
                return torch.from_numpy(np.array(testing.computed(late) if is_late else late))

            found = outcome(computed)
        if isinstance(expected, Exception):
            counts["refused"] += 1
            words = str(expected).split(" <")[0]  # an object's address may follow
            good = isinstance(found, type(expected)) and words in str(found)
        else:
            counts["through a backend"] += 1
            good = isinstance(found, torch.Tensor) and torch.equal(expected, found)
        if not good:
            wrong.append(f"{name}, file {number}: {expected!r:.80} is torchvision's, not {found!r:.80}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", default="")
    arguments = parser.parse_args()
    with accel.image_backend("cuda", device="cpu"), accel.image_backend("torchvision"):
        numbers = range(arguments.first, arguments.first + arguments.count)
        counts, wrong = check(numbers, arguments.seed, 4)
    print("\n".join([*wrong, str(dict(counts))]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

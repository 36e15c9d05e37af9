"""Damaged JPEG files through the device's decoder on the host, its kernels built with AddressSanitizer and UBSan.

    python -m tests.rig.sanitized_decoder --count 5000 [--first N] [--large]

File number n is always the same one. All memory between the pieces that the decoder hands to its kernels is poisoned,
threads run in another order, and signed overflow is an error, as it would be on a GPU. Exit status 1: a picture that
is not Pillow's; what the sanitizers find ends the process. 77: there are no sanitizers here.
"""

import argparse
import random
import sys
from typing import Any

import numpy as np

from bench.fuzz.coder import Coder, random_blocks
from bench.fuzz.files import encode, picture
from bench.fuzz.mutations import MUTATIONS
from bench.fuzz.recipes import Corpus, make, recipe
from rig import sanitizers
from tests.support.jpeg import LARGEST, check_on_device, damaged, with_room

BATCH = 100


def damaged_files(numbers: range) -> list[bytes]:
    plain = [
        *(encode(picture("smooth", 33 + n, 47 - n, seed=n), subsampling=n % 3, quality=40 + 9 * n) for n in range(6)),
        encode(picture("smooth", 40, 61), restart_marker_blocks=2, quality=60),
        encode(picture("noise", 24, 70), restart_marker_blocks=1, subsampling=0),
        encode(picture("smooth", 50, 40, 1), optimize=True),
        Coder().file((29, 37), [(1, 2, 2), (2, 1, 2), (3, 2, 1)], random_blocks(60)),
        Coder((2, 3, 4, *(16,) * 159)).file((40, 56), [(1, 1, 1)], random_blocks(35)),
    ]
    kinds, nothing = list(MUTATIONS.values()), Corpus(())
    found = []
    for n in numbers:
        rng, generator = random.Random(n), np.random.default_rng(n)
        data = plain[n % len(plain)]
        if n % 3 == 2:
            data = make(recipe(n, "sanitized", nothing), "sanitized", nothing)
        elif n % 2:
            data = damaged(data, generator, header=n % 6 == 1)
        else:
            data = rng.choice(kinds)(data, rng.choice(plain), rng)
        found.append(with_room(data) if n % 4 < 2 and data.startswith(b"\xff\xd8") else data)
    return found


def large_files(numbers: range) -> list[bytes]:
    """Files whose scans have more than 2 MB: many tiles, and many blocks of threads that must fall in step; every other
    one damaged."""
    kinds: list[tuple[str, tuple[int, int, int], dict[str, Any]]] = [
        ("noise", (700, 1100, 3), {"subsampling": 0}),
        ("noise", (1003, 770, 3), {"subsampling": 0, "restart_marker_blocks": 1}),
        ("noise", (1200, 1300, 3), {"subsampling": 2, "restart_marker_rows": 3}),
        ("binary", (1500, 1600, 1), {"restart_marker_blocks": 777}),
        ("noise", (1100, 1100, 3), {"subsampling": 1, "optimize": True}),
        ("noise", (730, 1100, 3), {"subsampling": 0, "keep_rgb": True}),
    ]
    found = []
    for n in numbers:
        kind, (height, width, channels), options = kinds[n // 2 % len(kinds)]
        data = encode(picture(kind, height + n % 13, width + n % 11, channels, seed=n), quality=100, **options)
        assert len(data) > 2 << 20, len(data)
        found.append(damaged(data, np.random.default_rng(n), header=False) if n % 2 else data)
    return found


def check(numbers: range, large: bool = False) -> tuple[int, list[str]]:
    """How many of these files the decoder takes, and which of their pictures are not Pillow's."""
    files = (large_files if large else damaged_files)(numbers)
    return check_on_device(dict(zip(numbers, files, strict=True)), LARGEST << 4 if large else LARGEST)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig.sanitized_decoder", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--large", action="store_true", help="files of more than 2 MB")
    arguments = parser.parse_args()
    if not sanitizers.present():
        return sanitizers.run_again()
    end = arguments.first + arguments.count
    taken, wrong = 0, list[str]()
    with sanitizers.kernels():
        batch = 4 if arguments.large else BATCH
        for first in range(arguments.first, end, batch):
            more = check(range(first, min(first + batch, end)), arguments.large)
            taken, wrong = taken + more[0], wrong + more[1]
    print(*wrong, f"{arguments.count} files: {taken} decoded, {len(wrong)} of them wrongly", sep="\n")
    return 1 if wrong or not taken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Damaged JPEG files through the device's decoder on the host, its kernels built with AddressSanitizer and UBSan.

    python -m tests.rig.sanitized_decoder --count 5000 [--first N]

File number n is always the same one. All memory between the pieces that the decoder hands to its kernels is poisoned,
threads run in another order, and signed overflow is an error, as it would be on a GPU. Exit status 1: a picture that
is not Pillow's; what the sanitizers find ends the process. 77: there are no sanitizers here.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings

import numpy as np

from bench.fuzz.coder import Coder, random_blocks
from bench.fuzz.files import encode, picture, pillow
from bench.fuzz.mutations import MUTATIONS
from bench.fuzz.recipes import Corpus, make, recipe
from rig import sanitizers
from tests.support.jpeg import damaged

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
        found.append(data)
    return found


def check(numbers: range) -> tuple[int, int]:
    """How many of these files the decoder takes, and how many of their pictures are not Pillow's."""
    import torch

    from accel.backends.cuda import backend
    from accel.backends.cuda.jpeg import Wanted
    from accel.codec.header import claim

    files = damaged_files(numbers)
    headers = [claim(data) for data in files]
    rng, wanted = np.random.default_rng(numbers.start), list[Wanted | None]()
    for data, header in zip(files, headers, strict=True):
        if header is None or header.progressive or not header.ordinary or header.width * header.height > 1 << 18:
            wanted.append(None)
            continue
        top, left, height, width = 0, 0, header.height, header.width
        if rng.integers(2):
            top, left = int(rng.integers(height)), int(rng.integers(width))
            height, width = int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))
        wanted.append(Wanted(data, (top, left, height, width), 1 if header.mode == "L" else 3))
    decoding = backend._Engine(torch.device("cpu")).jpeg.decode(wanted)
    flagged = set(decoding.flagged())
    taken = wrong = 0
    for number, each in enumerate(wanted):
        if each is None or decoding.addresses[number] is None or number in flagged:
            continue
        taken += 1
        top, left, height, width = each.box
        pixels = decoding.read(number, height * width * each.channels).reshape(height, width, each.channels)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                equal = np.array_equal(pixels, pillow(bytes(each.data))[top : top + height, left : left + width])
            except Exception:
                equal = False
        if not equal:
            wrong += 1
            print(f"file {numbers[number]}: not Pillow's")
    return taken, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig.sanitized_decoder", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    if not sanitizers.present():
        return sanitizers.run_again()
    end = arguments.first + arguments.count
    taken = wrong = 0
    with sanitizers.kernels():
        for first in range(arguments.first, end, BATCH):
            more = check(range(first, min(first + BATCH, end)))
            taken, wrong = taken + more[0], wrong + more[1]
    print(f"{arguments.count} files: {taken} decoded, {wrong} of them wrongly")
    return 1 if wrong or not taken else 0


if __name__ == "__main__":
    sys.exit(main())

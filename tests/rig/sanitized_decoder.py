"""Damaged JPEG files through the device's decoder on the host, its kernels built with AddressSanitizer and UBSan.

    python -m tests.rig.sanitized_decoder --count 5000 [--first N]

File number n is always the same one. All memory between the pieces that the decoder hands to its kernels is poisoned,
threads run in another order, and signed overflow is an error, as it would be on a GPU. Exit status 1: a picture that
is not Pillow's; what the sanitizers find ends the process. 77: there are no sanitizers here.
"""

import argparse
import random
import sys

import numpy as np

from bench.fuzz.coder import Coder, random_blocks
from bench.fuzz.files import encode, picture
from bench.fuzz.mutations import MUTATIONS
from bench.fuzz.recipes import Corpus, make, recipe
from rig import sanitizers
from tests.support.jpeg import check_on_device, damaged, with_room

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


def check(numbers: range) -> tuple[int, list[str]]:
    """How many of these files the decoder takes, and which of their pictures are not Pillow's."""
    return check_on_device(dict(zip(numbers, damaged_files(numbers), strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig.sanitized_decoder", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    if not sanitizers.present():
        return sanitizers.run_again()
    end = arguments.first + arguments.count
    taken, wrong = 0, list[str]()
    with sanitizers.kernels():
        for first in range(arguments.first, end, BATCH):
            more = check(range(first, min(first + BATCH, end)))
            taken, wrong = taken + more[0], wrong + more[1]
    print(*wrong, f"{arguments.count} files: {taken} decoded, {len(wrong)} of them wrongly", sep="\n")
    return 1 if wrong or not taken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Damaged JPEG files through the device's decoder on the host, its kernels built with AddressSanitizer and UBSan.

    python tests/jpeg_sanitized.py --count 5000 [--first N]

File number n is always the same one. All memory between the pieces that the decoder hands to its kernels is poisoned,
threads run in another order, and signed overflow is an error, as it would be on a GPU. Exit status 1: a picture that
is not Pillow's; what the sanitizers find ends the process. 77: there are no sanitizers here.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import sanitizers

sys.path.insert(0, str(Path(__file__).parent.parent))

BATCH = 100


def guarded_queue(queue: Any) -> Any:
    """The decoder's launches, with everything poisoned that is no picture's."""
    from accel.backends.cuda import host

    def guarded(self: Any, batch: Any, decoding: Any, files: Any) -> None:
        launch = self._device.launch

        def first(*arguments: Any) -> None:
            base = int(batch.pictures["state"][0]) - int(batch.pieces["state"][0][0])
            sanitizers.poison(base, base + batch.scratch, True)
            for offsets, sizes in batch.pieces.values():
                for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
                    sanitizers.poison(base + offset, base + offset + size, False)
            sanitizers.poison(files.data_ptr(), files.data_ptr() + len(files), True)
            for start, size in zip(batch.pictures["file"].tolist(), batch.pictures["size"].tolist(), strict=True):
                sanitizers.poison(start, start + -(-size // 16) * 16, False)
            self._device.launch = launch
            launch(*arguments)

        assert isinstance(self._device, host.HostDevice)
        self._device.launch = first
        queue(self, batch, decoding, files)
        for tensor in (decoding._memory, files):
            sanitizers.poison(tensor.data_ptr(), tensor.data_ptr() + len(tensor), False)

    return guarded


def damaged_files(numbers: range) -> list[bytes]:
    import numpy as np
    from jpeg_support import damaged

    from bench.fuzz.coder import Coder, random_blocks
    from bench.fuzz.files import encode, picture
    from bench.fuzz.mutations import MUTATIONS
    from bench.fuzz.recipes import Corpus, make, recipe

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
    import numpy as np
    import torch

    from accel.backends.cuda import backend
    from accel.backends.cuda.jpeg import Wanted
    from accel.sources.header import claim
    from bench.fuzz.files import pillow

    files = damaged_files(numbers)
    headers = [claim(data) for data in files]
    rng, wanted = np.random.default_rng(numbers.start), []
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
                expected = pillow(each.data)[top : top + height, left : left + width]
            except Exception as error:
                expected = repr(error)
        if not np.array_equal(pixels, expected):
            wrong += 1
            print(f"file {numbers[number]}: not Pillow's")
    return taken, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    if not sanitizers.present():
        return sanitizers.run_again()
    from accel.backends.cuda import jpeg as cuda_jpeg

    sanitizers.build_kernels()
    cuda_jpeg.Decoder._queue = guarded_queue(cuda_jpeg.Decoder._queue)
    end = arguments.first + arguments.count
    taken = wrong = 0
    for first in range(arguments.first, end, BATCH):
        more = check(range(first, min(first + BATCH, end)))
        taken, wrong = taken + more[0], wrong + more[1]
    print(f"{arguments.count} files: {taken} decoded, {wrong} of them wrongly")
    return 1 if wrong or not taken else 0


if __name__ == "__main__":
    sys.exit(main())

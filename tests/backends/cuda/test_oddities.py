"""Odd and mutated files in batches through the device's JPEG decoder: Pillow's pixels, or none."""

from __future__ import annotations

import random
import warnings
from collections import Counter

import numpy as np
import pytest
import torch

from accel.backends.cuda import backend
from accel.backends.cuda import jpeg as cuda_jpeg
from accel.backends.cuda.jpeg import Wanted
from accel.codec.header import claim
from bench.fuzz.files import pillow
from bench.fuzz.recipes import Corpus, make, recipe
from tests.support.cuda import host_only, needs_compiler

pytestmark = [needs_compiler, host_only]

BATCH = 64
LARGEST = 1 << 18  # pixels: a damaged header may promise many
NOTHING = Corpus(())


def wanted(number: int) -> Wanted | None:
    """All or a part of a file; None where the device is not asked for it."""
    data, rng = make(recipe(number, "", NOTHING), "", NOTHING), random.Random(number)
    header = claim(data)
    if header is None or header.progressive or not header.ordinary or header.width * header.height > LARGEST:
        return None
    top, left = rng.randrange(header.height), rng.randrange(header.width)
    box = (top, left, rng.randint(1, header.height - top), rng.randint(1, header.width - left))
    whole = (0, 0, header.height, header.width)
    return Wanted(data, rng.choice((whole, box, box)), 1 if header.mode == "L" else 3)


def check(numbers: range) -> tuple[Counter[str], list[str]]:
    """The count of files compared, and what is not Pillow's."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    decoder = backend._Engine(torch.device("cpu")).jpeg
    for first in range(numbers.start, numbers.stop, BATCH):
        made = {number: wanted(number) for number in range(first, min(first + BATCH, numbers.stop))}
        batch = {number: each for number, each in made.items() if each is not None}
        decoding = decoder.decode(list(batch.values()))
        flagged = set(decoding.flagged())
        counts["files"] += len(made)
        for place, (number, (data, box, channels)) in enumerate(batch.items()):
            if decoding.addresses[place] is None or place in flagged:
                continue
            counts["decoded"] += 1
            top, left, height, width = box
            pixels = decoding.read(place, height * width * channels).reshape(height, width, channels)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    expected = pillow(data)[top : top + height, left : left + width]
                except Exception as error:
                    wrong.append(f"file {number}: {error!r} is Pillow's, not pixels")
                    continue
            if not np.array_equal(expected, pixels):
                wrong.append(f"file {number}: other pixels than Pillow's")
    return counts, wrong


def test_all_that_is_decoded_is_pillows(thorough: bool) -> None:
    count = 5000 if thorough else 500
    counts, wrong = check(range(count))
    assert wrong == []
    assert counts["files"] == count
    assert counts["decoded"] > count / 10


def test_another_picture_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = cuda_jpeg.Decoding.read
    monkeypatch.setattr(cuda_jpeg.Decoding, "read", lambda *arguments: read(*arguments) ^ 1)
    counts, wrong = check(range(40))
    assert len(wrong) == counts["decoded"] > 0

"""Odd and mutated files in batches through the device's JPEG decoder: Pillow's pixels, or none."""

import pytest

from accel.backends.cuda import jpeg as cuda_jpeg
from bench.fuzz.recipes import Corpus, make, recipe
from tests.support.cuda import host_only, needs_compiler
from tests.support.jpeg import check_on_device

pytestmark = [needs_compiler, host_only]

BATCH = 64
NOTHING = Corpus(())


def check(numbers: range) -> tuple[int, list[str]]:
    """The number of files that were decoded, and what is not Pillow's."""
    decoded, wrong = 0, list[str]()
    for first in range(numbers.start, numbers.stop, BATCH):
        some = range(first, min(first + BATCH, numbers.stop))
        taken, differ = check_on_device({n: make(recipe(n, "", NOTHING), "", NOTHING) for n in some})
        decoded, wrong = decoded + taken, wrong + differ
    return decoded, wrong


def test_all_that_is_decoded_is_pillows(thorough: bool) -> None:
    count = 5000 if thorough else 500
    decoded, wrong = check(range(count))
    assert wrong == []
    assert decoded > count / 10


def test_another_picture_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = cuda_jpeg.Decoding.read
    monkeypatch.setattr(cuda_jpeg.Decoding, "read", lambda *arguments: read(*arguments) ^ 1)
    decoded, wrong = check(range(40))
    assert len(wrong) == decoded > 0

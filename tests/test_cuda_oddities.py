"""Odd files, intact and damaged, through both of accel's JPEG decoders and the backends: what Pillow makes of them."""

from __future__ import annotations

import os

import jpeg_oddities
import pytest
from cuda_support import host_only, needs_compiler

from accel.backends.cuda import jpeg as cuda_jpeg
from accel.codec import engines

pytestmark = [needs_compiler, host_only]

COUNT = 5000 if os.environ.get("ACCEL_TEST_SWEEP") == "1" else 500


def test_all_that_is_decoded_is_pillows_and_all_that_is_refused() -> None:
    counts, wrong = jpeg_oddities.check(range(COUNT), every=5)
    assert wrong == []
    assert counts["files"] == COUNT
    assert min(counts["device"], counts["host"]) > COUNT / 6
    assert counts["through a backend"] > COUNT / 6
    assert counts["refused"] > COUNT / 30


@pytest.mark.parametrize("which", ["device", "host"])
def test_another_picture_would_be_seen(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if which == "device":
        read = cuda_jpeg.Decoding.read
        monkeypatch.setattr(cuda_jpeg.Decoding, "read", lambda *arguments: read(*arguments) ^ 1)
    else:
        decode = engines.accel

        def damaged(*arguments: object) -> object:
            pixels = decode(*arguments)  # type: ignore[arg-type]
            return None if pixels is None else pixels ^ 1

        monkeypatch.setattr(engines, "accel", damaged)
    counts, wrong = jpeg_oddities.check(range(40), every=1000)
    assert sum(each.startswith(which) for each in wrong) == counts[which] > 0

"""``python -m bench.gpu.placement``: its walk over a scan, and the segments that it makes."""

import json
from pathlib import Path

import numpy as np
import pytest

from accel.codec import jpeg
from accel.codec.jpeg import index_fields as ix
from bench.gpu import placement
from bench.gpu.setting import Photo
from bench.pipelines import Draw
from tests.support.helpers import jpeg as made_jpeg


@pytest.mark.parametrize("subsampling", [0, 2])
def test_points_are_those_of_the_index(subsampling: int) -> None:
    """The bits of the MCUs that accel's own index has points before are those that the walk has counted."""
    data = made_jpeg(300, 200, quality=95, subsampling=subsampling)
    index, scan = jpeg.Index(), placement.stream(data)
    assert jpeg.decode(data, index=index) is not None
    assert scan is not None
    words = index.bytes[: 2 * ix.POINTS].copy().view("<u2")
    places = placement.by_mcus(scan)
    assert words[ix.IN_LINE] == scan.header[placement.hd.POINTS_IN_LINE]
    assert len(places) == jpeg.known_points(data, index.bytes)
    last = int(words[ix.END]) | int(words[ix.END + 1]) << 16
    stuffed = data[scan.header[placement.hd.SCAN] :].count(b"\xff\x00")
    assert 0 <= last - 8 * int(scan.header[placement.hd.SCAN]) - 8 * stuffed - scan.bits[-1] < 8


def test_segments_cover_what_a_crop_needs() -> None:
    data = made_jpeg(300, 200, quality=95)
    scan = placement.stream(data)
    assert scan is not None
    whole = (0, 0, 200, 300)
    for place in placement.PLACEMENTS.values():
        bits, symbols = placement.segments(scan, place(scan), whole)
        assert (bits.sum(), symbols.sum()) == (scan.bits[-1], scan.symbols[-1])
        some, _ = placement.segments(scan, place(scan), (50, 100, 40, 60))
        assert 0 < some.sum() < bits.sum()
    spread = [np.diff(scan.bits[np.append(place(scan), -1)]).std() for place in placement.PLACEMENTS.values()]
    assert spread[1] < spread[0]
    assert placement.stream(made_jpeg(300, 200, progressive=True)) is None


def test_the_command(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_jpeg(300, 200, quality=95)
    monkeypatch.setattr(placement, "photos", lambda files, count: [Photo("a", made, Draw((10, 10, 100, 200)))] * count)
    assert placement.main(["--data", str(image_folder), "--images", "2", "--out", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["indexed"] == 2
    assert found["placements"].keys() == placement.PLACEMENTS.keys()

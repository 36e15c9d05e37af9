"""``python -m bench.ops``: differences are found, contestants that are missing are named, the table has every row."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import functional as F

import accel
from accel.cli.costs import ratio
from accel.cli.error_stats import Different
from bench.ops import __main__ as ops
from bench.ops import measure, opencv, rows
from bench.ops.measure import Contestant
from tests.support import helpers


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(2):
        helpers.picture(600, 450, seed=number).save(folder / f"{number}.jpg")
    return folder


def run(photos: Path, out: Path) -> dict[str, Any]:
    assert ops.main(["--data", str(photos), "--images", "2", "--rounds", "2", "--out", str(out)]) == 0
    return json.loads(out.read_text())  # type: ignore[no-any-return]


def some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "OPS", {name: rows.OPS[name] for name in ("crop", "invert")})
    monkeypatch.setattr(ops, "POLICIES", {"RandAugment": rows.POLICIES["RandAugment"]})
    monkeypatch.setattr(ops, "FROM_FILES", {"train": rows.FROM_FILES["train"]})


def test_a_run(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some(monkeypatch)
    result = run(photos, tmp_path / "made" / "ops.json")
    assert list(result["ops"]) == ["crop", "invert", "RandAugment"]
    for row in result["ops"].values():
        assert all(len(rounds) == 2 and min(rounds) > 0 for rounds in row["seconds"].values())
    printed = capsys.readouterr().out
    assert "| invert | " in printed
    assert "| train | " in printed
    assert result["commit"] is None or len(result["commit"]) == 40


def test_nothing_is_reported_where_a_value_differs(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some(monkeypatch)
    monkeypatch.setattr(
        ops, "OPS", {"wrong": lambda image: F.invert(image) if accel.get_image_backend() == "cpu" else image}
    )
    out = tmp_path / "ops.json"
    assert ops.main(["--data", str(photos), "--images", "2", "--rounds", "1", "--out", str(out)]) == 1
    assert "wrong under cpu: off by up to" in capsys.readouterr().err
    assert not out.exists()


def test_opencv_that_is_not_installed_is_named(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some(monkeypatch)
    monkeypatch.setitem(sys.modules, "cv2", None)
    result = run(photos, tmp_path / "ops.json")
    assert "opencv-python-headless" in result["not run"]["OpenCV"]
    assert "OpenCV did not run: not installed" in capsys.readouterr().out


def test_a_difference_is_found() -> None:
    images = [helpers.picture(50, 40)]

    def op(image: Any) -> Any:
        lazy = accel.get_image_backend() == "cpu"
        return F.adjust_brightness(image, 1.3 if lazy else 1.31)

    found = measure.difference(lambda: op, "cpu", images)
    assert found["levels"] > 0
    assert 0 < found["share"] <= 1
    assert measure.difference(lambda: F.hflip, "cpu", images) == {"levels": 0, "share": 0}
    with pytest.raises(Different, match="instead of"):
        measure.difference(
            lambda: lambda image: F.crop(image, 0, 0, 5 if accel.get_image_backend() == "cpu" else 6, 9), "cpu", images
        )


def test_ratios_are_those_of_a_round() -> None:
    assert ratio([1.0, 2.0, 3.0], [2.0, 8.0, 9.0]) == 3.0
    spent = measure.times({"a": Contestant("cpu", [1, 2], lambda given: given)}, 3)
    assert len(spent["a"]) == 3


def test_every_op_of_opencv_is_one_of_the_table() -> None:
    pytest.importorskip("cv2")
    found = opencv.ops()
    assert found.keys() <= rows.OPS.keys()
    image = np.array(helpers.picture(500, 375))
    for name, op in found.items():
        wanted = F.to_tensor(rows.OPS[name](F.to_pil_image(image)))
        made = opencv.floats(op(image))
        assert made.dtype == torch.float32
        sizes = [(min(a, b), max(a, b)) for a, b in zip(made.shape, wanted.shape, strict=True)]
        assert all(larger - smaller <= 2 for smaller, larger in sizes), name
        channels, height, width = (smaller for smaller, _ in sizes)
        apart = made[:channels, :height, :width] - wanted[:channels, :height, :width]
        assert apart.abs().mean() < 0.06, f"{name} is another op"

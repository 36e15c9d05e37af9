"""``python -m accel verify``: equal folders pass, and whatever differs is found, named and shown."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from accel.cli import contact_sheet, verify
from accel.cli.command_line import main
from accel.ops import OPS
from tests.cli.wrong import make_wrong


def run(folder: Path, tmp_path: Path, *arguments: str, status: int = 0) -> dict[str, Any]:
    """The figures it writes."""
    out = tmp_path / "new" / "verify.json"
    files = ["--json", str(out), "--sheet", str(tmp_path / "new" / "sheet.png")]
    assert main(["verify", str(folder), "--backend", "cpu", *files, *arguments]) == status
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def test_an_intact_folder_is_equal(image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(image_folder, tmp_path, "--limit", "3", "--worst", "2")
    assert set(found["rows"]) >= {"decode", *OPS, "train pipeline", "eval pipeline", "RandAugment pipeline"}
    for name, row in found["rows"].items():
        assert row["images"] == row["equal"], name
    assert all(found["rows"][name]["equal"] == 3 for name in STANDARD if name not in OPS)
    assert not found["failures"]
    shown = capsys.readouterr().out
    assert "train pipeline" in shown
    assert image_folder.name in shown
    with Image.open(tmp_path / "new" / "sheet.png") as page:
        assert page.format == "PNG"
        assert page.width > 3 * 200


def test_one_wrong_value_is_found(
    monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And passes where it may be there."""
    make_wrong(monkeypatch)  # 0.001 more in one value of each batch
    monkeypatch.setattr(verify, "standard", lambda: {"train pipeline": STANDARD["train pipeline"]})
    row = run(image_folder, tmp_path, "--limit", "2", status=1)["rows"]["train pipeline"]
    assert row["equal"] == 0
    assert row["max"] == pytest.approx(0.255, rel=1e-2)
    assert row["share that differs"] == pytest.approx(1 / (3 * 224 * 224))
    assert row["worst"].endswith(".jpg")
    assert row["worst"] in capsys.readouterr().out.replace("\n", "")
    assert run(image_folder, tmp_path, "--limit", "1", "--inexact")["rows"]["train pipeline"]["equal"] == 0


STANDARD = verify.standard()


def test_what_only_one_side_can_do_is_a_failure(image_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(image: Any) -> Any:
        import accel

        if accel.get_image_backend() == "cpu":
            raise ValueError("not today")
        return image

    monkeypatch.setattr(verify, "standard", lambda: {"refused": [refuse]})
    (failure,) = run(image_folder, tmp_path, "--limit", "1", status=1)["failures"]
    assert failure["pipeline"] == "refused"
    assert "not today" in failure["reason"]
    assert failure["file"].endswith(".jpg")


def test_a_file_that_nobody_can_read_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "broken.jpg").write_bytes(b"no image")
    found = run(tmp_path / "in", tmp_path)
    assert not found["failures"]
    assert {row["images"] for row in found["rows"].values()} == {0}


@pytest.mark.parametrize("arguments", [("nowhere",), ("{folder}", "--backend", "nonsense")])
def test_wrong_usage(arguments: tuple[str, ...], image_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *(each.format(folder=image_folder) for each in arguments)]) == 2
    assert capsys.readouterr().err.startswith("verify: ")


def test_worst_come_first_and_no_more_than_asked() -> None:
    zeros = torch.zeros(3, 2, 2)
    rows = [contact_sheet.Row("f", "p", zeros, zeros, highest) for highest in (1.0, 5.0, 0.0, 3.0)]
    assert [row.highest for row in verify.most(2, rows)] == [5, 3]


def test_the_sheet_shows_the_difference_times_32() -> None:
    wanted = torch.full((3, 8, 10), 100, dtype=torch.uint8)
    found = wanted.clone()
    found[:, 2, 3] += 3
    first, second, third = contact_sheet.pictures(contact_sheet.Row("f", "p", wanted, found, 3))
    assert first.getpixel((3, 2)) == (100, 100, 100)
    assert second.getpixel((3, 2)) == (103, 103, 103)
    assert third.getpixel((3, 2)) == (96, 96, 96)
    assert np.count_nonzero(np.asarray(third)) == 3
    floats = contact_sheet.Row("f", "p", wanted / 255, found / 255, 3)
    assert contact_sheet.pictures(floats)[2].getpixel((3, 2)) == (96, 96, 96)
    assert contact_sheet.make([floats, floats], "cpu").height > 400

"""``python -m accel verify``: equal folders pass, and whatever differs is found, named and shown."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import accel
from accel.cli import contact_sheet, samples, verify
from accel.cli.command_line import main
from accel.ops import OPS
from tests.cli.wrong import make_wrong


@pytest.fixture(autouse=True)
def no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops when every op was tried on 20 images."""
    monkeypatch.setattr(verify, "_SECONDS", 0)


def run(folder: Path, tmp_path: Path, *arguments: str, status: int = 0) -> dict[str, Any]:
    """The figures it writes."""
    out = tmp_path / "new" / "verify.json"
    files = ["--json", str(out), "--sheet", str(tmp_path / "new" / "sheet.png")]
    assert main(["verify", str(folder), "--backend", "cpu", *files, *arguments]) == status
    content: dict[str, Any] = json.loads(out.read_text())
    return content


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_an_intact_folder_is_equal(image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(image_folder, tmp_path, "--limit", "3", "--worst", "2")
    tried = {name for name, ways in STANDARD.items() if ways}
    assert set(found["rows"]) == tried >= {name for name, op in OPS.items() if op.samples}
    assert {row["images"] for row in found["rows"].values()} == {row["equal"] for row in found["rows"].values()} == {3}
    assert not found["failures"]
    assert found["tried"] == found["of"] == 3 * len(tried)
    shown = capsys.readouterr().out
    assert "train pipeline" in shown
    assert "mixup" not in shown, "it is tried by a pipeline alone"
    assert image_folder.name in shown
    verdict = f"{found['tried']} of {found['of']} (op, image) pairs tried, 3 or more of each op"
    assert shown.splitlines()[-1] == f"equal in every bit: {verdict}"
    assert not (tmp_path / "new" / "sheet.png").exists()


def only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "standard", lambda: {name: STANDARD[name]})


def test_a_picture_is_written_on_demand(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only("train pipeline", monkeypatch)
    run(image_folder, tmp_path, "--picture", "--limit", "2")
    with Image.open(tmp_path / "new" / "sheet.png") as page:
        assert page.format == "PNG"
        assert page.width > 3 * 200


def test_one_wrong_value_is_found(
    monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And passes where it may be there."""
    make_wrong(monkeypatch)  # 0.001 more in one value of each batch
    only("train pipeline", monkeypatch)
    row = run(image_folder, tmp_path, "--limit", "2", status=1)["rows"]["train pipeline"]
    assert row["equal"] == 0
    assert row["max"] == pytest.approx(0.255, rel=1e-2)
    assert row["share that differs"] == pytest.approx(1 / (3 * 224 * 224))
    assert row["worst"].endswith(".jpg")
    shown = capsys.readouterr()
    assert row["worst"] in shown.out
    assert "different: train pipeline\n" in shown.err
    assert shown.out.splitlines()[-1] == "DIFFERENT in 1 of 1: 2 of 2 (op, image) pairs tried, 2 or more of each op"
    assert (tmp_path / "new" / "sheet.png").exists()
    assert run(image_folder, tmp_path, "--limit", "1", "--inexact")["rows"]["train pipeline"]["equal"] == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("at most 0.255 levels apart: 1 of 1 (op, image) pairs")


def test_signs_of_zeros_count(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def zeros(image: Any) -> torch.Tensor:
        return torch.zeros(3, 2, 2) * (-1 if accel.get_image_backend() == "cpu" else 1)

    monkeypatch.setattr(verify, "standard", lambda: {"zeros": [zeros]})
    (failure,) = run(image_folder, tmp_path, "--limit", "1", status=1)["failures"]
    assert "sign" in failure["reason"]
    assert capsys.readouterr().out.splitlines()[-1].startswith("DIFFERENT in 1 of 1")


STANDARD = verify.standard()


def test_what_only_one_side_can_do_is_a_failure(image_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(image: Any) -> Any:
        if accel.get_image_backend() == "cpu":
            raise ValueError("not today")
        return image

    monkeypatch.setattr(verify, "standard", lambda: {"refused": [refuse]})
    (failure,) = run(image_folder, tmp_path, "--limit", "1", status=1)["failures"]
    assert failure["pipeline"] == "refused"
    assert "not today" in failure["reason"]
    assert failure["file"].endswith(".jpg")


def test_a_file_that_nobody_can_read_is_skipped(
    tmp_path: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what was not tried is no success."""
    only("hflip", monkeypatch)
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"broken{number}.jpg").write_bytes(b"no image")
    assert main(["verify", str(tmp_path / "in"), "--backend", "cpu"]) == 2
    assert "nothing was compared: torchvision refuses all 3 images" in capsys.readouterr().err
    (tmp_path / "in" / "good.jpg").write_bytes(Path(paths[0]).read_bytes())
    found = run(tmp_path / "in", tmp_path)
    assert (found["tried"], found["of"], found["failures"]) == (1, 4, [])
    assert "1 of 4 (op, image) pairs" in capsys.readouterr().out


def test_at_least_20_images_and_all_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or more while there is time."""
    for number in range(24):
        samples.picture(number, (20, 20)).save(tmp_path / f"{number}.jpg")
    monkeypatch.setattr(verify, "standard", lambda: {name: STANDARD[name] for name in ("hflip", "vflip")})
    assert run(tmp_path, tmp_path)["tried"] == 40
    assert run(tmp_path, tmp_path, "--all")["tried"] == run(tmp_path, tmp_path, "--all")["of"] == 48
    monkeypatch.setattr(verify, "_SECONDS", 1000)
    assert run(tmp_path, tmp_path)["tried"] == 48
    shown = capsys.readouterr()
    assert "40 of 48 (op, image) pairs tried, 20 or more of each op" in shown.out
    assert "comparing, every op on 20 images" in shown.err


@pytest.mark.parametrize("arguments", [("nowhere",), ("{folder}", "--backend", "nonsense")])
def test_wrong_usage(arguments: tuple[str, ...], image_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *(each.format(folder=image_folder) for each in arguments)]) == 2
    assert capsys.readouterr().err.startswith("verify: ")


def test_worst_come_first_and_no_more_than_asked() -> None:
    zeros = torch.zeros(3, 2, 2)
    rows = [contact_sheet.Pictures("f", "p", zeros, zeros, highest) for highest in (1.0, 5.0, 0.0, 3.0)]
    assert [row.highest for row in verify.most(2, [row._replace(pipeline=f"{row.highest}") for row in rows])] == [5, 3]
    assert [row.highest for row in verify.most(2, rows)] == [5], "one of an op"


def test_the_sheet_shows_the_difference_times_32() -> None:
    wanted = torch.full((3, 8, 10), 100, dtype=torch.uint8)
    found = wanted.clone()
    found[:, 2, 3] += 3
    first, second, third = contact_sheet.pictures(contact_sheet.Pictures("f", "p", wanted, found, 3))
    assert first.getpixel((3, 2)) == (100, 100, 100)
    assert second.getpixel((3, 2)) == (103, 103, 103)
    assert third.getpixel((3, 2)) == (96, 96, 96)
    assert np.count_nonzero(np.asarray(third)) == 3
    floats = contact_sheet.Pictures("f", "p", wanted / 255, found / 255, 3)
    assert contact_sheet.pictures(floats)[2].getpixel((3, 2)) == (96, 96, 96)
    assert contact_sheet.make([floats, floats], "cpu").height > 400

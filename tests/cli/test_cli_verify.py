"""``python -m accel verify``: equal folders pass, and whatever differs is found, named and shown."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import accel
from accel.cli import contact_sheet, pairs, samples, verify
from accel.cli.command_line import main
from accel.cli.samples import picture
from accel.ops import OPS
from accel.ops.helpers import THREADS
from accel.ops.row import KernelOp
from accel.recipes.recipe import Recipe
from accel.runtime import compute
from tests.cli.wrong import make_wrong, no_longer_than


@pytest.fixture(autouse=True)
def no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops when every op was tried on 20 images."""
    no_longer_than(monkeypatch, 0)


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
    no_longer_than(monkeypatch, 1000)
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


# -- one bit that is wrong on every picture, whatever the op ---------------------------------------------------------


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Coloured and grey pictures."""
    folder = tmp_path_factory.mktemp("pictures")
    for number, mode in enumerate(("RGB", "L", "RGB", "RGB")):
        picture(number, (83, 64), mode).save(folder / f"{number}.jpg")
    return folder


def wrong(values: torch.Tensor) -> torch.Tensor:
    """A copy with one other bit, the lowest of a value."""
    values = values.clone()
    values.view(-1)[values.numel() // 2 :][:1].view(torch.uint8)[0] ^= 1
    return values


def names(steps: Any) -> Iterator[str]:
    for name, params in steps:
        yield name
        for each in params:
            yield from names(getattr(each, "steps", ()))


def plant(op: str, patch: pytest.MonkeyPatch) -> None:
    """Make accel differ in one bit where it computes the op: in the function, or else in images that have the step."""
    row = OPS[op]
    if isinstance(row, KernelOp):
        patch.setitem(OPS, op, replace(row, apply=lambda *given: wrong(row.apply(*given))))
    right = compute.several

    def several(batches: list[tuple[list[Recipe], bool]], *more: Any) -> Any:
        has = [any(op in names(each.steps) for each in recipes) for recipes, _ in batches]
        return [wrong(each) if yes else each for yes, each in zip(has, right(batches, *more), strict=True)]

    if not isinstance(row, KernelOp):
        patch.setattr(compute, "several", several)


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("op", [op for op in OPS if op != THREADS])
def test_a_wrong_bit_is_found(
    op: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {
        name: ways
        for name, ways in verify.standard().items()
        if name == op or name.startswith("grey") or (not OPS[op].samples and "pipeline" in name)
    }
    monkeypatch.setattr(verify, "standard", lambda: rows)
    no_longer_than(monkeypatch, 0)
    plant(op, monkeypatch)
    assert main(["verify", str(pictures), "--backend", "cpu", "--sheet", str(tmp_path / "sheet.png")]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("DIFFERENT")


# -- which files are alike -------------------------------------------------------------------------------------------


OP_COUNT = 95
GROUPS = [list(range(150)), list(range(150, 190)), list(range(190, 197)), [197], [198, 199]]


def test_every_op_gets_every_picture_once() -> None:
    for op in range(OP_COUNT):
        assert sorted(pairs.pictures(GROUPS, op, OP_COUNT)) == list(range(200))
        assert list(pairs.pictures(GROUPS, op, OP_COUNT)) == list(pairs.pictures(GROUPS, op, OP_COUNT))


def test_twenty_pictures_are_of_all_kinds() -> None:
    kind = {place: number for number, group in enumerate(GROUPS) for place in group}
    counted: Counter[int] = Counter()
    for op in range(OP_COUNT):
        chosen = list(islice(pairs.pictures(GROUPS, op, OP_COUNT), 20))
        of_kinds = Counter(kind[place] for place in chosen)
        assert of_kinds.keys() == set(range(len(GROUPS)))
        assert of_kinds[0] <= of_kinds[1] + 1 <= of_kinds[2] + 3, "none has more than its share"
        counted.update(chosen)
    assert counted.keys() == set(range(200)), "together they see all pictures"
    assert max(counted[place] for place in GROUPS[0]) <= 3 * min(counted[place] for place in GROUPS[0])


@pytest.mark.parametrize("samples", [1, 2, 3, 4, 5, 20])
def test_every_sample_is_tried_with_every_kind(samples: int) -> None:
    for first in range(0, 100, samples):
        assert {pairs.sample(attempt, samples) for attempt in range(first, first + samples)} == set(range(samples))
    met = {(pairs.sample(attempt, samples), attempt % 4) for attempt in range(400)}
    assert len(met) == 4 * samples


def test_kinds_are_told_apart(tmp_path: Path) -> None:
    made = {
        "a.jpg": ("RGB", (64, 48), {}),
        "b.jpg": ("RGB", (66, 48), {}),
        "subsampling.jpg": ("RGB", (64, 48), {"subsampling": "4:4:4"}),
        "mode.jpg": ("L", (64, 48), {}),
        "progressive.jpg": ("RGB", (64, 48), {"progressive": True}),
        "size.jpg": ("RGB", (640, 480), {}),
        "format.png": ("RGB", (64, 48), {}),
    }
    for name, (mode, size, options) in made.items():
        picture(1, size, mode).save(tmp_path / name, **options)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    files = [str(tmp_path / name) for name in (*made, "broken.jpg")]
    assert pairs.kinds(files) == [[0, 1], *([place] for place in range(2, 8))]


def test_not_all_headers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_LOOKED_AT", 2)
    monkeypatch.setattr(pairs, "_kind", len)
    assert pairs.kinds(["a", "bb", "c", "ccc"]) == [[0], [1], [2, 3]]

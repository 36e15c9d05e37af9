"""``python -m bench.ops``: differences are found, contestants that are missing are named, the table has every row."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.transforms import functional as F

import accel
from accel.cli.arguments import Red
from accel.cli.costs import ratio
from accel.cli.error_stats import Different
from accel.codec import store, stream_index
from accel.runtime import read
from accel.system import memory
from bench import index, train
from bench.epochs import linked
from bench.ops import __main__ as ops
from bench.ops import measure, opencv, rows
from bench.ops.measure import Contestant
from bench.tables import tables
from bench.train import Training, main
from tests.cli.wrong import make_wrong
from tests.support import helpers
from tests.support.processes import linux


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


# -- trainings -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def small_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model that trains at once stands for resnet18."""

    def small(num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 2, 7, 32), nn.Flatten(), nn.Linear(2 * 7 * 7, num_classes))

    monkeypatch.setitem(train.MODELS, "resnet18", small)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(folder: Path, tmp_path: Path, *arguments: str) -> tuple[int, Path]:
    out = tmp_path / "train.json"
    usual = ["--backend", "cpu", "--data", str(folder), "--batch-size", "3", "--rounds", "1", "--workers", "0"]
    return main([*usual, "--out", str(out), *arguments]), out


def test_backends_train_alike(image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = trained(image_folder, tmp_path, "resnet18", "--workers", "1")
    assert status == 0
    part: dict[str, Any] = json.loads(out.read_text())["workloads"]["training"]
    plain, ours = part["training"]
    assert (plain["backend"], ours["backend"], ours["model"]) == ("torchvision", "cpu", "resnet18")
    assert ours["losses are torchvision's"]
    assert ours["rounds"][0]["losses"] == plain["rounds"][0]["losses"]
    assert len(set(ours["rounds"][0]["losses"])) > 1
    assert 0 <= ours["waiting"] <= 1
    assert plain["ratio"] == 1
    (table,) = tables(part)
    assert [row[:2] for row in table.rows] == [("resnet18", "torchvision"), ("resnet18", "cpu")]
    assert "training end to end" in capsys.readouterr().out


def test_ways_to_feed_a_training(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = trained(image_folder, tmp_path, "--sink")
    assert status == 0
    rows = json.loads(out.read_text())["workloads"]["sinking"]["sinking"]
    assert [row["way"] for row in rows] == list(train.WAYS)
    assert all(row["losses are the plain loop's"] for row in rows)
    assert len(set(rows[2]["rounds"][0]["losses"])) == 4
    assert "not captured: the step runs on the host" in capsys.readouterr().out
    out.unlink()
    monkeypatch.setattr(accel, "sink", lambda *given, **named: lambda loader: [torch.zeros(2)] * 2)
    assert trained(image_folder, tmp_path, "--sink")[0] == 1
    assert "losses differ" in capsys.readouterr().err
    assert not out.exists()


def test_other_tensors_are_not_reported(monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path) -> None:
    make_wrong(monkeypatch)
    status, out = trained(image_folder, tmp_path)
    assert status == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "no such model"),
        (("--backend", "nonsense"), "unknown image backend"),
        (("--batch-size", "20", "--images", "4"), "less than two batches"),
        (("--data", "nowhere"), "nowhere"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...], said: str, image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(image_folder, tmp_path, *arguments)[0] == 2
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_waiting_is_the_loaders_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that only loading or only training moves."""
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    training = Training("resnet18", 2, torch.device("cpu"))
    step = training.step

    def slow_step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        clock[0] += 3
        return step(images, labels)

    monkeypatch.setattr(training, "step", slow_step)

    def batches() -> Iterator[Any]:
        for _ in range(3):
            clock[0] += 1
            yield torch.randn(5, 3, 224, 224), torch.zeros(5, dtype=torch.int64)

    epoch = training.epoch(batches())
    assert epoch.waiting == 2 / 8  # two batches after the first: 1 s each waited for, 3 s each trained on
    assert epoch.rate == 10 / 8
    assert len(training.losses) == 3


# -- the index -------------------------------------------------------------------------------------------------------


@pytest.fixture
def loaded_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, list[str]]]:
    for name in ("_store", "_file", "_tried"):
        monkeypatch.setattr(store, name, getattr(store, name))
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(helpers.jpeg(420, 320, seed=number))
    files = [str(path) for path in sorted(tmp_path.glob("*.jpg"))]
    yield linked(files, tmp_path / "linked"), files
    stream_index.flush()


COMMON = {"without", "first", "second", "later", "first by without", "without by second", "without by later"}


@linux
@linux
@pytest.mark.parametrize("name", index.PIPELINES)
def test_a_pipeline(name: str, loaded_photos: tuple[Path, list[str]]) -> None:
    found = index.measure(name, *loaded_photos, 2)
    assert len(found["rounds"]) == 2
    of_views = {"views apart by first"} if isinstance(index.PIPELINES[name], list) else set()
    assert found["medians"].keys() == COMMON | of_views
    assert found["share of the files' bytes"] < 0.5, "a segment, of files so small"
    if not of_views:  # of several the picture is kept
        assert found["share of the files' bytes"] > 0


@linux
@linux
def test_first_epochs(loaded_photos: tuple[Path, list[str]]) -> None:
    found = index.first_epochs("train", loaded_photos[0], 4)
    assert found["pairs"] == 4
    assert 0 < found["quartiles"][0] <= found["median"] <= found["quartiles"][2]
    assert found["standard error"] > 0


@linux
@linux
def test_only_stores_of_turns_are_freed(loaded_photos: tuple[Path, list[str]]) -> None:
    other = index.fresh()
    entries, size = store.current(), os.fstat(other).st_size
    index.first_epochs("train", loaded_photos[0], 2)
    assert store.current() is not entries
    assert entries is not None
    assert entries.used()[0] == 0
    assert os.fstat(other).st_size == size
    assert index.kept() > 0


@linux
@linux
def test_an_index_that_changes_pixels_is_noticed(
    loaded_photos: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = stream_index.decoded

    def wrong(*arguments: Any) -> Any:
        pixels = decoded(*arguments)
        return pixels if arguments[5] is None else pixels + 1  # by the key

    monkeypatch.setattr(stream_index, "decoded", wrong)
    monkeypatch.setattr(read, "only_decodes", lambda source: False)  # compiled code would decode
    with pytest.raises(Red, match="train: the batches differ"):
        index.measure("train", *loaded_photos, 1)


@linux
@linux
def test_memory_is_counted_once(loaded_photos: tuple[Path, list[str]]) -> None:
    found = index.shared(*loaded_photos)
    assert found["entries"] > 0
    assert 0 < found["proportional"] <= found["resident, added up"]
    assert found["proportional"] <= found["entries"] + (64 << 10), "pages of tables"

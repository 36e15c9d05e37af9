"""End-to-end training in the benchmark: the same losses, the figures it gives, and what it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bench import train
from bench.tables import tables
from bench.train import Training, main
from tests.cli.wrong import make_wrong


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


def run(folder: Path, tmp_path: Path, *arguments: str) -> tuple[int, Path]:
    out = tmp_path / "train.json"
    usual = ["--backend", "cpu", "--data", str(folder), "--batch-size", "3", "--rounds", "1", "--workers", "0"]
    return main([*usual, "--out", str(out), *arguments]), out


def test_backends_train_alike(image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = run(image_folder, tmp_path, "resnet18", "--workers", "1")
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


def test_other_tensors_are_not_reported(monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path) -> None:
    make_wrong(monkeypatch)
    status, out = run(image_folder, tmp_path)
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
    assert run(image_folder, tmp_path, *arguments)[0] == 2
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

"""Hugging Face: datasets with set_transform and with_transform, and loaders that Accelerate makes anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helpers
import pytest
import torch
from helpers import assert_same
from torch.utils.data import DataLoader
from torchvision import transforms as T

import accel

datasets = helpers.optional("datasets")

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # datasets leaves that to the collector
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(datasets|accelerate|multiprocess|dill).*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:(datasets|accelerate).*"),
]
TRAIN = T.Compose(
    [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))]
)


def transformed(examples: dict[str, Any]) -> dict[str, Any]:
    """As Hugging Face's image classification example has it."""
    examples["pixel_values"] = [TRAIN(image.convert("RGB")) for image in examples["image"]]
    del examples["image"]
    return examples


def collated(examples: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": torch.tensor([example["label"] for example in examples]),
    }


@pytest.fixture(scope="module", params=["paths", "bytes"])
def rows(request: pytest.FixtureRequest, image_folder: Path) -> Any:
    files = sorted(image_folder.rglob("*.jpg"))
    images = [str(file) if request.param == "paths" else {"path": None, "bytes": file.read_bytes()} for file in files]
    made = datasets.Dataset.from_dict({"image": images, "label": [len(file.parts[-2]) for file in files]})
    return made.cast_column("image", datasets.Image())


@pytest.mark.parametrize("workers", [0, 2])
def test_set_transform(rows: Any, workers: int) -> None:
    rows.set_transform(transformed)

    def run() -> Any:
        return helpers.batches(DataLoader(rows, 4, shuffle=True, collate_fn=collated, num_workers=workers))

    expected, states = helpers.run("torchvision", run)
    before = accel.stats()
    actual, states_after = helpers.run("cpu", run)
    after = accel.stats()
    assert states_after == states
    if workers == 0:
        assert all(helpers.is_late(batch["pixel_values"]) for batch in actual)
    assert after["fallbacks"] == before["fallbacks"]
    assert after["realised early"] == before["realised early"]
    assert_same(actual, expected)
    assert accel.stats()["images"] > before["images"]


def test_default_collate_of_a_streamed_dataset(rows: Any) -> None:
    stream = (
        rows.with_format(None)
        .to_iterable_dataset()
        .map(lambda row: {"pixels": TRAIN(row["image"].convert("RGB"))}, remove_columns=["image"])
    )

    def run() -> Any:
        return list(DataLoader(stream, 4))

    expected, states = helpers.run("torchvision", run)
    actual, states_after = helpers.run("cpu", run)
    assert states_after == states
    assert_same(actual, expected)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"split_batches": True}, {"dispatch_batches": True}], ids=str)
def test_loaders_that_accelerate_makes_anew(image_folder: Path, workers: int, options: dict[str, Any]) -> None:
    data_loader = helpers.optional("accelerate.data_loader")
    paths = sorted(map(str, image_folder.rglob("*.jpg")))

    def run() -> Any:
        loader = DataLoader(helpers.Files(paths, TRAIN), 4, shuffle=True, num_workers=workers)
        if options.get("dispatch_batches"):
            loader = DataLoader(helpers.Stream(paths, TRAIN), 4, num_workers=workers)
        prepared = data_loader.prepare_data_loader(
            loader, torch.device("cpu"), num_processes=1, process_index=0, put_on_device=True, **options
        )
        again = data_loader.prepare_data_loader(prepared, torch.device("cpu"), num_processes=1, process_index=0)
        return [batch for each in (prepared, again) for batch in each]

    expected, states = helpers.run("torchvision", run)
    actual, states_after = helpers.run("cpu", run)
    assert states_after == states
    assert len(expected) >= 6
    assert_same(actual, expected)


def test_two_shards_make_the_whole(image_folder: Path) -> None:
    data_loader = helpers.optional("accelerate.data_loader")
    paths = sorted(map(str, image_folder.rglob("*.jpg")))

    def run() -> Any:
        loader = DataLoader(helpers.Files(paths, TRAIN), 3, num_workers=1)
        return [
            list(data_loader.prepare_data_loader(loader, num_processes=2, process_index=index)) for index in range(2)
        ]

    expected, _ = helpers.run("torchvision", run)
    assert_same(helpers.run("cpu", run)[0], expected)

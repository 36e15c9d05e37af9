"""Hugging Face datasets: set_transform, with_transform, set_format, streams, and images that map writes back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.transforms import v2

import accel
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.helpers import is_lazy
from tests.support.loaders import TRAIN

datasets = helpers.optional("datasets")

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # datasets leaves that to the collector
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(datasets|multiprocess|dill).*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:datasets.*"),
]


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

    proven(run, images=12)
    with accel.image_backend("cpu"):
        assert all(helpers.is_lazy(batch["pixel_values"]) == (workers == 0) for batch in run())


def test_default_collate_of_a_streamed_dataset(rows: Any) -> None:
    stream = (
        rows.with_format(None)
        .to_iterable_dataset()
        .map(lambda row: {"pixels": TRAIN(row["image"].convert("RGB"))}, remove_columns=["image"])
    )

    def run() -> Any:
        return list(DataLoader(stream, 4))

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("workers", [0, 2])
def test_with_transform(rows: Any, workers: int) -> None:
    def run() -> Any:
        made = rows.with_transform(transformed)
        return list(DataLoader(made, 4, collate_fn=collated, num_workers=workers))

    assert len(proven(run, images=12)) == 3


def test_formatted_rows(rows: Any) -> None:
    """``set_format("torch")``: whole pictures, as uint8 tensors; rows, columns and batches of them, with transforms."""

    def run() -> Any:
        made = rows.with_format(None)
        made.set_format("torch")
        crop = v2.RandomCrop(24)
        return [[crop(row["image"]) for row in batch] for batch in DataLoader(made, 4, collate_fn=list)]

    proven(run, images=12)

    def whole() -> Any:
        made = rows.with_format("torch")
        return [made[0]["image"], *made["image"][2:4], *made[4:8]["image"]]

    proven(whole, images=7, early=7)  # as each is used by itself
    with accel.image_backend("cpu"):
        image = rows.with_format("torch")[0]["image"]
        assert is_lazy(image)
        assert not is_lazy(rows.with_format("torch", dtype=torch.float32)[0]["image"])
        assert torch.equal(image, rows.with_format("torch", dtype=torch.float32)[0]["image"].byte())


@pytest.mark.parametrize("transform", [T.Compose([]), T.RandomCrop(24)], ids=["as they are", "cropped"])
def test_images_that_map_writes_back(rows: Any, tmp_path: Path, transform: Any) -> None:
    """One that was only opened keeps its file's path or bytes; others are encoded by Pillow, from the same pixels."""

    def run() -> Any:
        made = rows.with_format(None).map(
            lambda row: {"image": transform(row["image"])},
            cache_file_name=str(tmp_path / f"{accel.get_image_backend()}.arrow"),
            load_from_cache_file=False,
        )
        return [row["image"] for row in made.cast_column("image", datasets.Image(decode=False))]

    assert all(image["bytes"] or image["path"] for image in helpers.assert_equal_runs(run))

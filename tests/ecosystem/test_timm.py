"""timm's loaders: create_loader with PrefetchLoader and fast_collate, as its training script makes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accel
from tests.support import helpers
from tests.support.helpers import assert_same

timm_data = helpers.optional("timm.data")
timm_loader = helpers.optional("timm.data.loader")
timm_mixup = helpers.optional("timm.data.mixup")

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # timm leaves that to the collector

CPU = torch.device("cpu")
RECORDED: list[dict[str, Any]] = [
    {"is_training": True, "color_jitter": None},
    {"is_training": True, "no_aug": True},
    {"is_training": True, "color_jitter": None, "interpolation": "random", "vflip": 0.5, "re_prob": 0.5},
    {"is_training": False, "interpolation": "bicubic", "crop_pct": 0.9},
    {"is_training": False, "img_dtype": torch.float16},
    {"is_training": True, "color_jitter": None, "use_multi_epochs_loader": True},
    {"is_training": True, "color_jitter": None, "use_prefetcher": False},
]
REALISED: list[dict[str, Any]] = [
    {"is_training": True},
    {"is_training": True, "auto_augment": "rand-m9-mstd0.5"},
    {"is_training": False, "tf_preprocessing": False, "crop_mode": "border"},
]


def loader(root: Path, workers: int, **options: Any) -> Any:
    options.setdefault("persistent_workers", False)
    return timm_data.create_loader(timm_data.ImageDataset(str(root)), 32, 4, num_workers=workers, device=CPU, **options)


def epoch(root: Path, workers: int, **options: Any) -> list[Any]:
    made = loader(root, workers, **options)
    inner = made if isinstance(made, torch.utils.data.DataLoader) else made.loader
    try:
        return [list(map(torch.clone, batch)) for batch in made]
    finally:
        if workers and options.get("use_multi_epochs_loader"):
            inner.iterator._shutdown_workers()


def check(root: Path, workers: int, **options: Any) -> list[Any]:
    expected = helpers.assert_equal_runs(lambda: epoch(root, workers, **options))
    assert expected
    return expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", RECORDED, ids=str)
def test_pipelines_that_are_recorded(image_folder: Path, workers: int, options: dict[str, Any]) -> None:
    """Nothing is computed early, and no image is computed by itself."""
    before = accel.stats()
    expected = check(image_folder, workers, **options)
    after = accel.stats()
    if not options.keys() & {"use_multi_epochs_loader", "use_prefetcher"}:  # the first goes on with the next epoch
        assert after["images"] - before["images"] == 12
    assert after["computed early"] == before["computed early"]
    assert after["fallbacks"] == before["fallbacks"]
    other = helpers.run("torchvision", lambda: epoch(image_folder, workers, **options), seed=1)[0]
    assert not options["is_training"] or not torch.equal(expected[0][0], other[0][0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", REALISED, ids=str)
def test_other_pipelines(image_folder: Path, workers: int, options: dict[str, Any]) -> None:
    check(image_folder, workers, **options)


def test_spawned_and_persistent_workers(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def epochs() -> list[Any]:
        made = loader(image_folder, 1, is_training=True, color_jitter=None, persistent_workers=True)
        made.loader.multiprocessing_context = "spawn"
        batches = [list(map(torch.clone, batch)) for _ in range(2) for batch in made]
        made.loader._iterator._shutdown_workers()
        return batches

    assert_same(helpers.run("cpu", epochs)[0], helpers.run("torchvision", epochs)[0])


def uint8s(paths: list[str], size: int = 32) -> list[torch.Tensor]:
    transform = timm_data.create_transform(size, is_training=True, color_jitter=None, use_prefetcher=True)
    return [transform(helpers.open_rgb(path)) for path in paths]


def as_float(images: list[torch.Tensor]) -> Any:
    return [(image.float(), 1) for image in images]


BATCHES: list[Any] = [
    lambda images: [(image, number) for number, image in enumerate(images)],
    lambda images: [(image, np.float64(number)) for number, image in enumerate(images)],
    lambda images: [(image, torch.eye(3)[number % 3]) for number, image in enumerate(images)],
    lambda images: [((images[i], images[i + 1], images[i]), i) for i in range(len(images) - 1)],
    lambda images: [((images[i], images[i + 1]), torch.eye(3)[i % 3]) for i in range(len(images) - 1)],
    lambda images: [(image, 1, "more") for image in images],
    lambda images: [(image.numpy(), 1) for image in images],
    lambda images: [((image.numpy(), image.numpy()), 1) for image in images],
    lambda images: [(images[0], 0), (images[1].clone().add_(1), 1)],
    as_float,
    lambda images: [(images[0], 0), (images[1][:1], 1)],
    lambda images: [[image, 1] for image in images],
    lambda images: [(images[0], 0), (images[1][:, 1:], 1)],
    lambda images: [((images[0], images[1]), 0), ((images[0],), 1)],
    lambda images: [("no image", 0)],
]


@pytest.mark.parametrize("samples", BATCHES)
def test_fast_collate(paths: list[str], samples: Any) -> None:
    """Whatever the samples are, our collate function gives what timm's gives, or raises what it raises."""
    from accel.hooks.dataloader import Collating

    with accel.image_backend("cpu"):
        collate = Collating(timm_loader.fast_collate)
        actual = helpers.run("cpu", lambda: helpers.outcome(lambda: collate(samples(uint8s(paths)))))[0]
    original = helpers.run(
        "torchvision", lambda: helpers.outcome(lambda: timm_loader.fast_collate(samples(uint8s(paths))))
    )[0]
    assert_same(actual, original)


def test_a_fast_collated_batch_is_lazy(paths: list[str]) -> None:
    from accel.hooks.dataloader import Collating

    with accel.image_backend("cpu"):
        batch, targets = Collating(timm_loader.fast_collate)([(image, 1) for image in uint8s(paths)])
        pairs, _ = Collating(timm_loader.fast_collate)([((image, image), 1) for image in uint8s(paths)])
    assert helpers.is_lazy(batch)
    assert helpers.is_lazy(pairs)
    assert pairs.shape == (24, 3, 32, 32)
    assert targets.dtype == torch.int64


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("mode", ["batch", "elem", "pair"])
def test_mixup_in_the_collate_function(image_folder: Path, workers: int, mode: str) -> None:
    def collate() -> Any:
        return timm_mixup.FastCollateMixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=2, mode=mode)

    def run() -> Any:
        return epoch(image_folder, workers, is_training=True, color_jitter=None, collate_fn=collate())

    expected, _ = helpers.run("torchvision", run)
    before = accel.stats()
    assert_same(helpers.run("cpu", run)[0], expected)
    extra = 3  # what one image of a batch became before any was asked for
    assert 12 <= accel.stats()["images"] - before["images"] <= 12 + extra

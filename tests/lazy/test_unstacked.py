"""Batches that nobody stacked: lists of images, and collate functions that take images one by one."""

import gc
import io
import operator
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torch.utils.data._utils import collate
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from tests.support import helpers
from tests.support.helpers import Files, assert_same, is_lazy
from tests.support.processes import in_threads

SIZES = T.Compose([T.Resize(30), T.ToTensor(), T.Normalize([0.5], [0.25])])  # every picture has another shape


def as_list(samples: list[Any]) -> Any:
    return [image for image, _ in samples], torch.tensor([index for _, index in samples])


def batches(paths: list[str], transform: Any = SIZES, collate: Any = as_list, **options: Any) -> list[Any]:
    return helpers.batches(DataLoader(Files(paths, transform), batch_size=4, collate_fn=collate, **options))


def expected(paths: list[str], *args: Any, **options: Any) -> list[Any]:
    return helpers.run("torchvision", lambda: batches(paths, *args, **options))[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_list_of_images_of_different_sizes(paths: list[str], workers: int) -> None:
    plain = expected(paths, num_workers=workers)
    assert len({image.shape for image in plain[0][0]}) > 1
    with accel.image_backend("cpu"):
        arrived = batches(paths, num_workers=workers)
    assert all(is_lazy(image) for image in arrived[0][0]) == (workers == 0)
    assert_same(arrived, plain)


def test_the_first_use_computes_all_of_the_batch(paths: list[str]) -> None:
    with accel.image_backend("cpu"):
        images = batches(paths)[0][0]
    plain = expected(paths)[0][0]
    before = accel.stats()
    assert images[2].sum() == plain[2].sum()
    after = accel.stats()
    assert after["images"] - before["images"] == 4
    assert after["computed early"] == before["computed early"]
    assert [image.sum() for image in images] == [image.sum() for image in plain]
    assert accel.stats()["images"] == after["images"], "computed twice"
    assert_same(images, plain)
    for image in images:
        assert image.untyped_storage().nbytes() == image.nbytes, "an image kept for itself must not keep a batch"


def test_images_that_are_gone_are_not_computed(paths: list[str]) -> None:
    with accel.image_backend("cpu"):
        images = batches(paths)[0][0]
    kept = images[1]
    shadow = weakref.ref(images[0].lazy)
    del images
    gc.collect()
    assert shadow() is None
    before = accel.stats()["images"]
    plain = expected(paths)[0][0][1]
    assert kept.sum() == plain.sum()
    assert accel.stats()["images"] - before == 1
    assert_same(kept, plain)


def test_a_broken_image_spoils_no_other(tmp_path: Path) -> None:
    helpers.write_image_folder(tmp_path, 4, broken={2: helpers.undecodable()})
    paths = sorted(str(path) for path in tmp_path.rglob("*.jpg"))
    good = [path for path in paths if "002" not in path]
    plain = expected(good)[0][0]
    for first in range(4):
        with accel.image_backend("cpu"):
            images = batches(paths)[0][0]
        broken = images.pop(2)
        if first == 2:
            with pytest.raises(accel.DecodeError, match=r"002\.jpg"):
                broken.sum()
        assert_same(images, plain)
        for _ in range(2):
            with pytest.raises(accel.DecodeError, match=r"002\.jpg"):
                broken.sum()


def test_a_sample_alone_is_nobodys_companion(paths: list[str]) -> None:
    def alone() -> Any:
        return next(iter(DataLoader(Files(paths, SIZES), 1, collate_fn=lambda samples: samples[0][0].unsqueeze(0))))

    helpers.assert_equal_runs(alone, lazy=True)


def test_steps_after_the_others_were_computed(paths: list[str]) -> None:
    """Computed images are not yet anybody's: more can be recorded, in place as well, and is not forgotten."""
    later: list[Callable[[torch.Tensor], Any]] = [
        lambda image: F.normalize(image, [0.1], [0.3], inplace=True),
        lambda image: image.half(),
        lambda image: torch.stack([image, image]),
        lambda image: F.normalize(image, [0.1], [0.3]),
    ]

    def made(number: int) -> Any:
        images = batches(paths)[0][0]
        images[3 - number].sum()
        return later[number](images[number]), images[number]

    helpers.assert_equal_runs(lambda: list(map(made, range(len(later)))))


def test_threads_that_use_one_image_each(paths: list[str]) -> None:
    plain = expected(paths)[0][0]
    for _ in range(20):
        with accel.image_backend("cpu"):
            images = batches(paths)[0][0]
        assert_same(in_threads([partial(torch.clone, image) for image in images * 2]), plain * 2)


def copied(samples: list[Any]) -> Any:
    batch = torch.zeros(len(samples), *samples[0][0].shape)
    for number, (image, _) in enumerate(samples):
        batch[number].copy_(image)
    return batch


def added(samples: list[Any]) -> Any:
    batch = torch.zeros(len(samples), *samples[0][0].shape)
    for number, (image, _) in enumerate(samples):
        batch[number] += torch.from_numpy(np.asarray(image))
    return batch


def padded(samples: list[Any]) -> Any:
    height, width = (max(image.shape[axis] for image, _ in samples) for axis in (1, 2))
    return torch.stack([F.pad(image, [0, 0, width - image.shape[2], height - image.shape[1]]) for image, _ in samples])


def nested(samples: list[Any]) -> Any:
    return torch.nested.nested_tensor([image for image, _ in samples]).to_padded_tensor(0.5)


def sequence(samples: list[Any]) -> Any:
    return torch.nn.utils.rnn.pad_sequence([image.flatten(1).T for image, _ in samples], batch_first=True)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("collate", [copied, added, padded, nested, sequence], ids=lambda collate: collate.__name__)
def test_collate_functions_that_take_images_one_by_one(paths: list[str], workers: int, collate: Any) -> None:
    same_size = T.Compose([T.Resize((20, 30)), T.ToTensor()])
    transform = same_size if collate in (copied, added) else SIZES
    plain = expected(paths, transform, collate, num_workers=workers)
    before = accel.stats()
    with accel.image_backend("cpu"):
        found = batches(paths, transform, collate, num_workers=workers)
        for batch in found:
            batch.sum()  # computed here, or a copy of it would be
        assert_same(found, plain)
    after = accel.stats()
    assert after["images"] - before["images"] == len(paths)
    assert after["fallbacks"] == before["fallbacks"]


class Detection(Files):
    """Images with boxes and masks, as a detection data set gives them."""

    def __getitem__(self, index: int) -> Any:
        image = helpers.open_rgb(self.paths[index])
        boxes = tv_tensors.BoundingBoxes([[2, 3, 30, 20]], format="XYXY", canvas_size=image.size[::-1])  # type: ignore[call-overload]
        mask = tv_tensors.Mask(torch.arange(image.width * image.height).view(1, image.height, image.width) % 7)
        return self.transform(image, {"boxes": boxes, "masks": mask, "labels": torch.tensor([index])})


def detection_pairs(samples: list[Any]) -> Any:
    return tuple(zip(*samples, strict=True))


DETECTION = v2.Compose(
    [v2.ToImage(), v2.RandomHorizontalFlip(), v2.Resize(40), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
)


@pytest.mark.parametrize("workers", [0, 2])
def test_detection_batches(paths: list[str], workers: int) -> None:
    def run() -> list[Any]:
        data = Detection(paths, DETECTION)
        return helpers.batches(DataLoader(data, 4, shuffle=True, collate_fn=detection_pairs, num_workers=workers))

    plain, states = helpers.run("torchvision", run)
    before = accel.stats()["images"]
    arrived, states_after = helpers.run("cpu", run)
    assert states_after == states
    images = arrived[0][0]
    assert len({image.shape for image in images}) > 1
    assert all(map(is_lazy, images)) == (workers == 0)
    assert [[image.sum() for image in images] for images, _ in arrived] == [
        [image.sum() for image in images] for images, _ in plain
    ]
    assert accel.stats()["images"] - before == len(paths)
    assert_same(arrived, plain)


def test_saving_one_of_a_batch_saves_one(paths: list[str]) -> None:
    with accel.image_backend("cpu"):
        images = batches(paths)[0][0]
    stream = io.BytesIO()
    torch.save(images[1], stream)
    assert stream.tell() < images[1].nbytes + 4096
    stream.seek(0)
    assert_same(torch.load(stream), expected(paths)[0][0][1])


def test_collating_keeps_its_keys() -> None:
    """A new one would change the mapping's size while another thread goes through it."""
    keys = list(collate.default_collate_fn_map)
    with accel.image_backend("cpu"):
        assert list(collate.default_collate_fn_map) == keys


def test_a_users_own_collating_of_tensors_gets_lazy_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(collate.default_collate_fn_map, torch.Tensor, lambda batch, collate_fn_map=None: tuple(batch))
    with accel.image_backend("cpu"):
        lazy = [F.to_tensor(Image.open(io.BytesIO(helpers.jpeg(20, 30)))) for _ in range(2)]
        assert all(map(operator.is_, collate.default_collate(lazy), lazy))

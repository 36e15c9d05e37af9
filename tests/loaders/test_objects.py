"""Batches of a user's own classes: they arrive as they are, and are only looked through where there is a need."""

import collections
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import _pytree
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional as F

import accel
from accel.lazy import search
from accel.lazy.state import pending
from tests.support import fake_accelerator, helpers
from tests.support.helpers import Files, assert_same
from tests.support.loaders import FIXED, TRAIN, check, epoch


class Named(collections.namedtuple("Named", "x y")):  # with a __dict__
    pass


class Listed(list[Any]):
    name: str


class Mapped(dict[str, Any]):
    name: str


class Encoded(collections.UserDict[str, Any]):
    """As transformers' BatchEncoding is made."""


class Slotted:
    __slots__ = ("x", "y")

    def __getattr__(self, name: str) -> Any:
        if name == "__dict__":
            raise RuntimeError("nobody asks for it")
        raise AttributeError(name)


@dataclass
class Record:
    x: Any
    y: Any = field(default_factory=list)


class Registered:
    """Known to torch's pytree, which does not keep all of it."""

    def __init__(self, x: Any, y: Any = "lost") -> None:
        self.x, self.y = x, y


def called(made: Any) -> Any:
    """What no constructor is told."""
    made.__dict__["name"] = "kept"
    return made


def slotted(x: Any, y: Any) -> Any:
    made = Slotted()
    made.x, made.y = x, y
    return made


def cyclic(x: Any, y: Any) -> Any:
    made: dict[str, Any] = {"x": x, "y": y}
    made["children"] = [{"parent": made, "pair": (made, [])}]
    return made


MADE: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], list[Any]]]] = {
    "namedtuple": (lambda x, y: called(Named(x, y)), lambda batch: [batch.x, batch.y, batch.name]),
    "list": (lambda x, y: called(Listed([x, y])), lambda batch: [*batch, batch.name]),
    "dict": (lambda x, y: called(Mapped(x=x, y=y)), lambda batch: [batch["x"], batch["y"], batch.name]),
    "defaultdict": (lambda x, y: collections.defaultdict(list, x=x, y=y), lambda b: [b["x"], b["y"], b["new"]]),
    "ordered": (lambda x, y: collections.OrderedDict(y=y, x=x), lambda batch: [batch["x"], batch["y"], list(batch)]),
    "deque": (lambda x, y: collections.deque([x, y], maxlen=2), lambda batch: [*batch, batch.maxlen]),
    "userdict": (lambda x, y: Encoded(x=x, y=y), lambda batch: [batch["x"], batch["y"]]),
    "slots": (slotted, lambda batch: [batch.x, batch.y]),
    "dataclass": (Record, lambda batch: [batch.x, batch.y]),
    "registered": (Registered, lambda batch: [batch.x, batch.y]),
    "cyclic": (cyclic, lambda batch: [batch["x"], batch["y"], batch["children"][0]["parent"] is batch]),
}


@pytest.fixture(autouse=True, scope="module")
def _known_to_pytree() -> None:
    if Registered not in _pytree.SUPPORTED_NODES:  # a process may run some tests of this file, others, and some again
        _pytree.register_pytree_node(Registered, lambda value: ([value.x], None), lambda parts, _: Registered(*parts))


def arrived(paths: list[str], name: str, **options: Any) -> Any:
    """The kind and the parts of every batch, each of which has other parts."""
    make, parts_of = MADE[name]

    def collate(samples: list[Any]) -> Any:
        parts = PARTS[samples[0][1] // 4]
        return {"batch": make(parts(samples), [number for _, number in samples]), "rest": [1, (2, "three")]}

    found = []
    for batch in epoch(Files(paths, TRAIN), collate_fn=collate, **options):
        assert batch["rest"] == [1, (2, "three")]
        found.append([type(batch["batch"]).__name__, parts_of(batch["batch"])])
    return found


PARTS: list[Callable[[list[Any]], Any]] = [
    lambda samples: torch.arange(3),
    lambda samples: torch.stack([image for image, _ in samples]),
    lambda samples: [image for image, _ in samples],
]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", MADE)
def test_objects_arrive_as_they_are(paths: list[str], name: str, workers: int) -> None:
    def run() -> Any:
        return arrived(paths, name, num_workers=workers)

    assert len(helpers.assert_equal_runs(run)) == len(PARTS)


@pytest.mark.parametrize("workers", [0, 1])
def test_objects_arrive_as_they_are_for_an_accelerator(
    paths: list[str], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_accelerator.installed(monkeypatch) as choose:
        for name in MADE:
            accel.set_image_backend("torchvision")
            helpers.seed_everything(0)
            expected = arrived(paths, name, num_workers=workers)
            choose()
            helpers.seed_everything(0)
            assert_same(arrived(paths, name, num_workers=workers), expected)


def lazy() -> torch.Tensor:
    with accel.image_backend("cpu"):
        made = FIXED(Image.open(BytesIO(helpers.jpeg(60, 50))).convert("RGB"))
    assert helpers.is_lazy(made)
    return made


@pytest.mark.parametrize("name", MADE)
def test_lazy_tensors_are_found_in_order(name: str) -> None:
    first, second = lazy(), lazy()
    batch = [1, MADE[name][0]([first, "x"], {"y": second}), [first]]
    found = search.lazy_tensors(batch, sent=True)
    assert {id(each) for each in found} == {id(first), id(second)}
    if name != "ordered":
        assert found[0] is first


def test_nothing_is_looked_at_where_nothing_is_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Untouchable(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError

        def __reduce_ex__(self, protocol: Any) -> Any:
            raise AssertionError

    monkeypatch.setattr(search, "pending", lambda: 0)
    monkeypatch.setattr(search, "_parts", None)
    assert search.lazy_tensors([Untouchable([1])], sent=True) == []


def test_objects_are_pickled_only_for_what_is_not_found_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(search, "sent_along", lambda objects: asked.append(objects) or [])
    one = lazy()
    monkeypatch.setattr(search, "pending", lambda: 1)
    assert search.lazy_tensors(Record(one, slotted(1, 2)), sent=True) == [one]
    assert not asked
    hides = slotted(one, 2)
    assert search.lazy_tensors([hides], sent=False) == []
    assert not asked
    assert search.lazy_tensors([hides], sent=True) == []
    assert asked == [[hides]]


def test_late_tensors_are_counted_while_they_are() -> None:
    before = pending()
    made = [lazy() for _ in range(3)]
    assert pending() - before == 3
    made[0].sum()
    assert pending() - before == 2
    made.clear()
    assert pending() == before


class Kept(Dataset[Any]):
    """Keeps its samples, which are a batch each, and tells how often each was asked for."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.samples: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        if index not in self.samples:
            self.samples[index] = {"image": FIXED(helpers.open_rgb(self.paths[index])), "asked": 0}
        self.samples[index]["asked"] += 1
        return self.samples[index]


def test_a_sample_that_its_data_set_keeps_is_not_changed(paths: list[str]) -> None:
    order = [0, 1, 0, 2, 0, 0, 1, 0, 3, 0] * 4

    def run() -> list[Any]:
        options: dict[str, Any] = {"batch_size": None, "sampler": order, "num_workers": 1}
        return [[batch["image"].clone(), batch["asked"] > 0] for batch in DataLoader(Kept(paths), **options)]

    helpers.assert_equal_runs(run)


# -- collate functions -----------------------------------------------------------------------------------------------


def images_of_samples(samples: list[Any]) -> list[torch.Tensor]:
    return [image for image, _ in samples]


def stacked(samples: list[Any]) -> torch.Tensor:
    return torch.stack(images_of_samples(samples))


COLLATED: dict[str, Callable[[list[Any]], Any]] = {
    "stack": lambda samples: (stacked(samples), torch.tensor([index for _, index in samples])),
    "list": lambda samples: (images_of_samples(samples), [{"index": index} for _, index in samples]),
    "dict": lambda samples: {"pixels": stacked(samples).half(), "first": samples[0][0], "last": samples[-1][1]},
    "cat": lambda samples: torch.cat([image.unsqueeze(0) for image, _ in samples]),
    "channels-last": lambda samples: stacked(samples).contiguous(memory_format=torch.channels_last),
    "numpy": lambda samples: np.stack([image.numpy() for image, _ in samples]),
    "same": lambda samples: (batch := stacked(samples), batch, batch[0]),
}


class Batch:
    """A user's own type, which nobody but the user can look into."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", COLLATED.values(), ids=COLLATED)
def test_collate_functions(paths: list[str], workers: int, collate: Callable[..., Any]) -> None:
    check(Files(paths, TRAIN), num_workers=workers, collate_fn=collate)


class Mapping(dict[str, Any]):
    """Not a dict to torch's pytree."""


@dataclass
class Collated:
    images: list[torch.Tensor]
    names: Any = ("a", "b")


class SlottedBatch:
    __slots__ = ("record",)

    def __init__(self, record: Collated) -> None:
        self.record = record


class NotSent:
    """An object that the queue cannot send either."""

    def __reduce__(self) -> Any:
        raise TypeError("not to be sent")


HIDDEN: dict[str, tuple[Callable[[list[torch.Tensor]], Any], Callable[[Any], list[torch.Tensor]]]] = {
    "object": (lambda images: Batch(torch.stack(images)), lambda batch: list(batch.images)),
    "dict": (lambda images: Mapping(images=images), lambda batch: batch["images"]),
    "ordered": (lambda images: OrderedDict(images=images), lambda batch: batch["images"]),
    "dataclass": (Collated, lambda batch: batch.images),
    "nested": (lambda images: {"all": [SlottedBatch(Collated(images))]}, lambda batch: batch["all"][0].record.images),
    "array": (lambda images: np.array([Collated(images), None]), lambda batch: batch[0].images),
    "set": (set, list),
}


def jittered(image: Image.Image) -> torch.Tensor:
    """Large enough for torch to share its sum out among threads."""
    return F.adjust_contrast(F.to_tensor(image.resize((400, 300))), 1.3)


@pytest.mark.parametrize(("collate", "images_of"), HIDDEN.values(), ids=HIDDEN)
def test_tensors_in_objects_of_the_users_are_computed_in_the_worker(
    paths: list[str], collate: Callable[[list[torch.Tensor]], Any], images_of: Callable[[Any], list[torch.Tensor]]
) -> None:
    options: dict[str, Any] = {"num_workers": 1, "collate_fn": lambda samples: collate(images_of_samples(samples))}
    torch.set_num_threads(4)
    expected, _ = helpers.run("torchvision", lambda: epoch(Files(paths, jittered), **options))
    actual, _ = helpers.run("cpu", lambda: epoch(Files(paths, jittered), **options))
    images = [image for batch in actual for image in images_of(batch)]
    assert not any(map(helpers.is_lazy, images))
    if collate is not set:
        assert_same(images, [image for batch in expected for image in images_of(batch)])


def test_looking_for_them_raises_nothing() -> None:
    lazy = helpers.run("cpu", lambda: jittered(helpers.opened(helpers.pictures()[0])[0]))[0]
    assert search.sent_along([Collated([lazy]), NotSent(), lambda: 0, 3, "a", None, lazy]) == [lazy]


def test_looking_for_them_moves_nothing() -> None:
    """Sending a storage moves it into shared memory, and keeps a descriptor open until it is received."""
    storage = torch.zeros(10).untyped_storage()
    lazy = helpers.run("cpu", lambda: jittered(helpers.opened(helpers.pictures()[0])[0]))[0]
    assert search.sent_along([SlottedBatch(Collated([lazy], storage))]) == [lazy]
    assert not storage.is_shared()


def test_a_file_that_cannot_be_decoded_in_such_an_object(tmp_path: Path) -> None:
    """Raised where the batch is made: in the queue's thread it would be lost, and the parent wait for ever."""
    root = helpers.write_image_folder(tmp_path, broken={1: helpers.undecodable()})
    files = sorted(map(str, root.rglob("*.jpg")), key=lambda path: Path(path).name)
    with accel.image_backend("cpu"), pytest.raises(accel.DecodeError, match=r"001\.jpg"):
        epoch(Files(files, jittered), num_workers=1, collate_fn=lambda samples: Collated(images_of_samples(samples)))


def flipped(image: Image.Image) -> Image.Image:
    return image.resize((20, 10)).transpose(0)


@pytest.mark.parametrize("workers", [0, 2])
def test_pillow_images_from_workers(paths: list[str], workers: int) -> None:
    check(Files(paths, flipped), num_workers=workers, collate_fn=images_of_samples)


def ten_crops(image: Image.Image) -> torch.Tensor:
    return torch.stack([F.to_tensor(crop) for crop in F.ten_crop(image.resize((40, 50)), [30, 20])])


@pytest.mark.parametrize("workers", [0, 2])
def test_ten_crops(paths: list[str], workers: int) -> None:
    batches = check(Files(paths, ten_crops), num_workers=workers)
    assert batches[0][0].shape == (4, 10, 3, 30, 20)

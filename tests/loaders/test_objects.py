"""Batches of a user's own classes: they arrive as they are, and are only looked through where there is a need."""

import collections
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils import _pytree
from torch.utils.data import DataLoader, Dataset

import accel
from accel.lazy import search
from accel.lazy.state import pending
from tests.support import fake_accelerator, helpers
from tests.support.helpers import Files, assert_same
from tests.support.loaders import FIXED, TRAIN, epoch


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

"""Casts, memory orders and copies on the way to a device: each image is computed once, and nothing is left over."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from tests.support.fake_accelerator import CPU0, Fake, installed
from tests.support.helpers import Files, assert_same, open_rgb, seed_everything, undecodable

Choose = Callable[[str], None]
LAST = torch.channels_last
FIXED = T.Compose([T.Resize((32, 24)), T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.3))])
WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "device": lambda x: x.to("cpu"),
    "device and dtype": lambda x: x.to("cpu", torch.bfloat16),
    "dtype": lambda x: x.to(torch.bfloat16).to("cpu"),
    "half": lambda x: x.half().to("cpu"),
    "half and back": lambda x: x.half().float().to("cpu"),
    "of no table": lambda x: x.double().to(torch.int32).to("cpu"),
    "order": lambda x: x.to(memory_format=LAST).to("cpu"),
    "order and back": lambda x: x.contiguous(memory_format=LAST).contiguous().to("cpu"),
    "all at once": lambda x: x.to("cpu", torch.half, memory_format=LAST),
    "one by one": lambda x: x.half().contiguous(memory_format=LAST).to("cpu").float(),
    "clone": lambda x: x.clone(memory_format=LAST).to("cpu"),
    "copy": lambda x: x.to("cpu", torch.half, copy=True),
    "twice": lambda x: x.half().to("cpu").to("cpu"),
    "mixed": lambda x: F.vflip(v2.CutMix(num_classes=2)(x, torch.zeros(len(x), dtype=torch.long))[0].half().to("cpu")),
}


class Samples(Files):
    """Images alone."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    """Chooses a backend; "fake" is an accelerator that counts what it computes."""
    with installed(monkeypatch) as fake:
        yield lambda name: fake() if name == "fake" else accel.set_image_backend(name)


def epoch(paths: list[str], way: Callable[[torch.Tensor], Any], workers: int = 0, pinned: bool = False) -> list[Any]:
    """The batches that a loop sees, each kept until the next has come."""
    seed_everything(1)
    seen = []
    for images in DataLoader(Samples(paths, FIXED), 4, num_workers=workers):
        batch = images.pin_memory() if pinned else images
        made = way(batch)
        seen.append(made.clone(memory_format=torch.preserve_format))
    return seen


SENT = ("half and back", "all at once", "copy", "mixed")
"""Ways that batches of workers go as well; all are in the sweep."""
HERE = [("cpu", 0, False), ("fake", 0, False), ("fake", 0, True)]


@pytest.mark.parametrize(
    ("way", "backend", "workers", "pinned"),
    [(way, *where) for where in HERE for way in WAYS]
    + [pytest.param(way, "fake", 1, True, marks=[] if way in SENT else pytest.mark.sweep) for way in WAYS],
)
def test_each_image_is_computed_once(
    paths: list[str], choose: Choose, way: str, backend: str, workers: int, pinned: bool
) -> None:
    expected = epoch(paths, WAYS[way])
    choose(backend)
    epoch(paths, WAYS["device"], workers, pinned)  # it is known where batches go
    Fake.runs.clear()
    before = accel.stats()
    found = epoch(paths, WAYS[way], workers, pinned)
    after = accel.stats()
    assert_same(found, expected)
    assert after["images"] - before["images"] == len(paths)
    assert (after["in flight"], after["waiting"]) == (0, 0)
    if backend == "fake":
        assert sorted(name for names, _, _ in Fake.runs for name in names) == sorted(paths)


def test_the_device_backend_on_the_host(paths: list[str]) -> None:
    ways = ["device and dtype", "half and back", "order", "clone"]
    expected = [epoch(paths, WAYS[way]) for way in ways]
    accel.set_image_backend("cuda", device="cpu")
    before = accel.stats()
    assert_same([epoch(paths, WAYS[way], pinned=pinned) for pinned, way in enumerate(ways, -2)], expected)
    after = accel.stats()
    assert after["images"] - before["images"] == len(paths) * len(ways)
    assert after["in flight"] == 0


@pytest.mark.parametrize(("backend", "pinned"), [("cpu", False), ("fake", False), ("fake", True)])
@pytest.mark.parametrize("order", ["each", "all first"])
def test_lists_of_images(paths: list[str], choose: Choose, backend: str, pinned: bool, order: str) -> None:
    def seen() -> Any:
        (images,) = DataLoader(Samples(paths, FIXED), len(paths), collate_fn=list)
        if pinned:
            images = [image.pin_memory() for image in images]
        if order == "each":
            return [image.half().to("cpu") for image in images]
        return [image.to("cpu") for image in [image.half() for image in images]]

    expected = seen() if not pinned else [image.half() for image in DataLoader(Samples(paths, FIXED), None)]
    choose(backend)
    epoch(paths, WAYS["device"])
    before = accel.stats()
    found = seen()
    after = accel.stats()
    assert_same(found, expected)
    assert after["images"] - before["images"] == len(paths)
    assert after["in flight"] == 0


@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_both_are_used(paths: list[str], choose: Choose, backend: str) -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        half, copy = x.half(), x.clone()
        return torch.stack([x.to("cpu"), half.to("cpu").float(), copy.to("cpu"), x.to("cpu")])

    expected = epoch(paths, both)
    choose(backend)
    for pinned in (False, True)[: 1 + (backend == "fake")]:
        assert_same(epoch(paths, both, pinned=pinned), expected)
    gc.collect()
    assert accel.stats()["in flight"] == 0


@pytest.mark.parametrize("transform", [F.normalize, F.erase], ids=["normalize", "erase"])
@pytest.mark.parametrize("cast", [False, True])
def test_changed_in_place_after_it_was_submitted(
    paths: list[str], choose: Choose, transform: Callable[..., Any], cast: bool
) -> None:
    def changed(x: torch.Tensor) -> torch.Tensor:
        x = x.half().float() if cast else x
        if transform is F.erase:
            return F.erase(x, 1, 2, 5, 6, torch.ones(3, 1, 1), inplace=True).to("cpu")
        return F.normalize(x, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], inplace=True).to("cpu")

    expected = epoch(paths, changed)
    choose("fake")
    epoch(paths, WAYS["device"])
    assert_same(epoch(paths, changed, pinned=True), expected)


def test_what_fails_is_told_by_its_dataset_index(paths: list[str], tmp_path: Any, choose: Choose) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(undecodable())
    choose("fake")
    (images,) = DataLoader(Samples([*paths[:2], str(bad)], FIXED), 3)
    with pytest.raises(accel.DecodeError, match=r"bad\.jpg.*image 2 of a batch of 3.*dataset index 2"):
        images.half().to(CPU0)


@pytest.mark.parametrize(
    "dtype",
    sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str),
    ids=lambda dtype: str(dtype).removeprefix("torch."),
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # some dtypes are experimental
@pytest.mark.parametrize("by", ["to", "to, stacked", "v1", "v2"])
def test_every_dtype(paths: list[str], dtype: torch.dtype, by: str) -> None:
    def cast() -> list[Any]:
        image = FIXED(open_rgb(paths[0]))
        try:
            if by.startswith("to"):
                made = (torch.stack([image]) if "stacked" in by else image).to(dtype)
            elif by == "v1":
                made = F.convert_image_dtype(image, dtype)
            else:
                made = v2.functional.to_dtype(v2.functional.to_image(open_rgb(paths[0])), dtype)
            return [str(made.dtype), made.clone()]
        except (RuntimeError, NotImplementedError, TypeError) as error:
            return [type(error).__name__]

    expected = cast()
    with accel.image_backend("cpu"):
        found = cast()
    assert found[0] == expected[0]
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert one.contiguous().view(torch.uint8).equal(other.contiguous().view(torch.uint8))

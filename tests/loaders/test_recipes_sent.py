"""What the workers of an accelerator's loader send: recipes and files, in shared memory that is used again."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.backends.cuda.backend import CudaBackend
from accel.codec import stream_index
from accel.processes import sending
from accel.recipes.sources import Files as SentFiles
from accel.system import memory
from tests.support import inside
from tests.support.cuda import needs_compiler, watch_finished_work
from tests.support.helpers import Files, assert_same, is_lazy, jpeg, undecodable
from tests.support.processes import linux

FIXED = T.Compose([T.Resize((16, 24)), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
pytestmark = [linux, needs_compiler, pytest.mark.usefixtures("small_batches_indexed")]


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_slots_are_used_again_when_nobody_looks_at_them(paths: list[str], start: str) -> None:
    files = Files(paths * 4, FIXED)
    with accel.image_backend("torchvision"):
        expected = [images for images, _ in DataLoader(files, batch_size=2)]
    with accel.image_backend("cuda", device="cpu"):
        loader = DataLoader(
            files, batch_size=2, num_workers=1, persistent_workers=True, multiprocessing_context=start, timeout=60
        )
        before = set(inside.loaders())
        first, iterator = None, iter(loader)
        (arena,) = [known.arena for number, known in inside.loaders().items() if number not in before]
        for number in range(4):
            for place, (images, _) in enumerate(iterator if number == 0 else loader):
                assert is_lazy(images)
                if first is None:
                    first = images  # stays as recipes while others come and go
                else:
                    assert torch.equal(images.to("cpu"), expected[place])
                del images
        assert torch.equal(first.to("cpu"), expected[0])  # type: ignore[union-attr]
        assert arena.taken_at.max() >= 4 * len(expected)  # every batch took one
        assert 0 < (arena.taken_at > 0).sum() <= 12
        assert os.fstat(arena._file).st_blocks * 512 < 8 << 20
        del first
        assert (arena.sent == arena.ended).all()
        assert not any("shared memory" in reason for reason in accel.stats()["fallbacks"])


def test_errors_of_files_in_slots_have_names_and_places(paths: list[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(undecodable())
    files = Files([*paths[:3], str(damaged)], FIXED)
    with accel.image_backend("cuda", device="cpu"):
        (good, _), (bad, _) = DataLoader(files, batch_size=2, num_workers=1, timeout=60)
        good.to("cpu")
        with pytest.raises(accel.DecodeError, match=rf"{damaged.name}.*image 1 of a batch of 2.*dataset index 3"):
            bad.to("cpu")
    with accel.image_backend("cuda", device="cpu", on_error="replace"):
        _, (bad, _) = DataLoader(files, batch_size=2, num_workers=1, timeout=60)
        assert torch.equal(bad.to("cpu")[1], torch.full((3, 16, 24), -2.5))


# -- what a worker finishes -----------------------------------------------------------------------------------

CROPS = T.Compose([T.RandomResizedCrop(40, scale=(0.05, 0.6)), T.RandomHorizontalFlip(), T.ToTensor()])
Use = Callable[[torch.Tensor], torch.Tensor]
USES: dict[str, Use] = {
    "as it is": lambda images: images.to("cpu"),
    "half": lambda images: images.half().to("cpu"),
    "channels last": lambda images: images.to("cpu", memory_format=torch.channels_last),
    "twice": lambda images: images.half().to("cpu").float() + images.to("cpu"),
    "a part": lambda images: images[1:].to("cpu"),
    "an image": lambda images: images[1].to("cpu"),
    "cropped afterwards": lambda images: F.center_crop(images, [20, 24]).to("cpu"),
    "recorded afterwards": lambda images: (images * 2 - 1).to("cpu"),
    "on the host": lambda images: images + 1,
}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What ran in this process: finished work, or files that its decoder was asked for."""
    monkeypatch.setattr(memory, "SETTLED", -1.0)
    yield watch_finished_work(monkeypatch)
    stream_index.flush()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of which an index pays, one of them grey, one progressive and one damaged."""
    (tmp_path / "a").mkdir()
    for number in range(8):
        options: dict[str, Any] = {"progressive": True} if number == 3 else {"restart_marker_blocks": 7 * (number % 2)}
        data = jpeg(420, 320 + 8 * number, "L" if number == 4 else "RGB", seed=number, **options)
        if number == 6:  # the device notices that, and the host says what is there
            data = data[: len(data) // 2] + b"\x5a" * 40 + data[len(data) // 2 + 40 :]
        (tmp_path / "a" / f"{number}.jpg").write_bytes(data)
    return tmp_path


def epochs(folder: Path, count: int, use: Use, **options: Any) -> list[Any]:
    torch.manual_seed(3)
    loader = DataLoader(ImageFolder(str(folder), CROPS), 4, shuffle=True, timeout=60, num_workers=1, **options)
    return [(use(images).clone(), labels) for _ in range(count) for images, labels in loader]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_values_are_torchvisions(folder: Path, ran: list[str], use: Use) -> None:
    options: dict[str, Any] = {"persistent_workers": True, "multiprocessing_context": "fork"}
    with accel.image_backend("torchvision"):
        expected = epochs(folder, 4, use, **options)
    before = accel.stats()
    with accel.image_backend("cuda", device="cpu"):
        assert_same(epochs(folder, 4, use, **options), expected)
    assert "finished" in ran or use not in (USES["as it is"], USES["recorded afterwards"], USES["on the host"])
    after = accel.stats()
    assert after["indexes"] - before["indexes"] >= 6
    assert after["indexed"] - before["indexed"] >= 6
    reasons = set(after["fallbacks"]) - set(before["fallbacks"])
    assert "accel declined a JPEG on the device; the host decoded it" in after["fallbacks"]
    assert not any("ahead" in reason or "shared memory" in reason for reason in reasons)


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_the_parent_reads_no_headers_and_makes_no_sources(folder: Path, ran: list[str], start: str) -> None:
    made: list[int] = []

    def use(images: Any) -> torch.Tensor:
        files = images.lazy.recipes.sources
        assert isinstance(files, SentFiles)
        values = images.to("cpu")
        made.append(len(files._made))
        return values  # type: ignore[no-any-return]

    for number in (3, 6):  # neither for the host nor damaged
        (folder / "a" / f"{number}.jpg").write_bytes(jpeg(200, 150, seed=number))
    with accel.image_backend("cuda", device="cpu", cache=None):
        epochs(folder, 2, use, multiprocessing_context=start)
    assert set(ran) == {"finished"}
    assert set(made) == {0}


class Own(Dataset[Any]):
    """A dataset as users write them."""

    def __init__(self, folder: Path, transform: Any, opened: Callable[[str], Any], second: Any = None) -> None:
        self.paths = sorted(str(each) for each in (folder / "a").iterdir())
        self.transform, self.opened, self.second = transform, opened, second

    def __len__(self) -> int:
        return 6 * len(self.paths)

    def __getitem__(self, index: int) -> Any:
        transform = self.second if self.second is not None and index % 5 == 1 else self.transform
        return transform(self.opened(self.paths[index % 8])), index


def _opened(path: str) -> Any:
    with Image.open(path) as image:
        return image.convert("RGB")


class Same:
    """No class of torchvision's, so what it is part of is not compiled."""

    def __call__(self, image: Any) -> Any:
        return image


def _stacked(samples: Any) -> Any:
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), list(labels)


OPENED: dict[str, Callable[[str], Any]] = {"opened": _opened, "loaded": default_loader}
OWN: dict[str, tuple[Any, Any]] = {
    "crops": (CROPS, None),
    "v2": (
        v2.Compose(
            [v2.RandomResizedCrop(40), v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        ),
        None,
    ),
    "not compiled": (T.Compose([Same(), *CROPS.transforms]), None),
    "erased by chance": (T.Compose([*CROPS.transforms, T.RandomErasing()]), None),
    "of two kinds": (CROPS, T.Compose([T.Resize((40, 40)), T.ToTensor()])),
}


@pytest.mark.parametrize("collate", [None, _stacked], ids=["default", "own"])
@pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED)
@pytest.mark.parametrize(("transform", "second"), OWN.values(), ids=OWN)
def test_datasets_of_the_users_own(
    folder: Path, ran: list[str], transform: Any, second: Any, opened: Callable[[str], Any], collate: Any
) -> None:
    def batches() -> list[Any]:
        torch.manual_seed(3)
        files = Own(folder, transform, opened, second)
        loader = DataLoader(files, 8, shuffle=True, timeout=60, num_workers=1, collate_fn=collate)
        return [(images.to("cpu").clone(), labels) for images, labels in loader]

    with accel.image_backend("torchvision"):
        expected = batches()
    with accel.image_backend("cuda", device="cpu", cache=None):
        assert_same(batches(), expected)
    assert ("finished" in ran) == (transform is not OWN["erased by chance"][0])


class Pairs(Own):
    """Two files a sample."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index), super().__getitem__(index + 1)[0]


@pytest.mark.parametrize("kind", [Own, Pairs])
def test_a_worker_finishes_what_is_used_as_one_tensor(
    folder: Path, ran: list[str], kind: type[Own], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two tensors in one message the parent uses parts, for which it could not use that work."""
    made = folder / "made"

    def noted(ahead: Any, *args: Any) -> Any:
        made.touch()
        return ahead(*args)

    inside.wrap(monkeypatch, CudaBackend, "ahead", noted)

    def batches() -> list[Any]:
        torch.manual_seed(3)
        loader = DataLoader(kind(folder, CROPS, _opened), 4, timeout=60, num_workers=1, multiprocessing_context="fork")
        return [[each.to("cpu").clone() for each in (first, *rest)] for (first, _), *rest in map(_as_pair, loader)]

    with accel.image_backend("torchvision"):
        expected = batches()
    with accel.image_backend("cuda", device="cpu", cache=None):
        assert_same(batches(), expected)
    assert made.exists() == ("finished" in ran) == (kind is Own)


def _as_pair(batch: Any) -> Any:
    return batch if isinstance(batch[0], list) else (batch,)


def _backwards(samples: Any) -> Any:
    return _stacked(samples[::-1])


def test_files_lie_in_a_slot_in_another_order_than_they_are_sent(tmp_path: Path, ran: list[str]) -> None:
    """The first of them at the end of the slot: all of it goes to the device."""
    (tmp_path / "a").mkdir()
    for number in range(8):
        (tmp_path / "a" / f"{number}.jpg").write_bytes(jpeg(90, 70 + number, seed=number))

    def batches() -> list[Any]:
        torch.manual_seed(3)
        loader = DataLoader(Own(tmp_path, CROPS, _opened), 8, timeout=60, num_workers=1, collate_fn=_backwards)
        return [(images.to("cpu").clone(), labels) for images, labels in loader]

    with accel.image_backend("torchvision"):
        expected = batches()
    before = accel.stats()["fallbacks"]
    with accel.image_backend("cuda", device="cpu", cache=None):
        assert_same(batches(), expected)
    assert "finished" in ran
    assert accel.stats()["fallbacks"] == before


def test_batches_in_slots_are_computed_late(tmp_path: Path, ran: list[str]) -> None:
    """A slot is not used again while its batch is lazy, however many others come."""
    (tmp_path / "a").mkdir()
    for number in range(40):
        (tmp_path / "a" / f"{number}.jpg").write_bytes(jpeg(90, 70 + number, seed=number))
    kept: list[torch.Tensor] = []

    def use(images: torch.Tensor) -> torch.Tensor:
        kept.append(images)
        return torch.zeros(())

    with accel.image_backend("torchvision"):
        expected = epochs(tmp_path, 2, lambda images: images)
    with accel.image_backend("cuda", device="cpu"):
        epochs(tmp_path, 2, use)
        for images, (wanted_images, _) in zip(kept, expected, strict=True):
            assert torch.equal(images.to("cpu"), wanted_images)
    assert set(ran) == {"finished"}


def test_labels_go_by_value() -> None:
    """Small tensors, with what they share; larger ones as torch sends them."""
    base, odd = torch.arange(12), torch.arange(17, dtype=torch.uint8)
    batch = [base, base[2:6], base.view(3, 4).t(), base, torch.zeros(100_000), {"a": torch.tensor(3.5)}]
    batch.append(odd[:16].view(torch.int64))  # of memory that is no whole number of these
    pool: Any = type("Pool", (), {"message": lambda _, tensor, counted: None})()
    restore, arguments = sending.Outgoing(pool, batch).__reduce__()
    found = restore(*arguments)
    assert_same(found, batch)
    assert found[3] is found[0]
    found[0][3] = 99
    assert found[1][1] == found[2][3, 0] == 99
    assert base[3] == 3
    assert found[4].is_shared()
    assert not found[0].is_shared()

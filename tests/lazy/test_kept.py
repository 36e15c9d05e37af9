"""Sources that are asked again: what is kept of them, for how long, and that it is torchvision's to the last bit."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils._pytree import tree_leaves
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
from torchvision import datasets, transforms

import accel
from accel.backend import host_of
from accel.codec import engines
from accel.recipes.recipe import Source
from accel.runtime import picture_memory, read
from tests.support import helpers
from tests.support.helpers import is_lazy, open_rgb

WIDTH, HEIGHT = 120, 96
Load = Callable[[Path], Image.Image]


class Decodes:
    """How often files were decoded, in this process and in those forked from it, and how often all of a file."""

    def __init__(self) -> None:
        self._counts = torch.zeros(2, dtype=torch.int64).share_memory_()

    def note(self, box: Any) -> None:
        self._counts += torch.tensor([1, box is not None and tuple(box) == (0, 0, HEIGHT, WIDTH)])

    def since(self) -> tuple[int, int]:
        """All, and the whole ones, since this was asked last."""
        counts = tuple(self._counts.tolist())
        self._counts.zero_()
        return counts


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> Decodes:
    counted, original, only = Decodes(), engines.accel, read.only_decodes

    def decode(data: Any, box: Any, *arguments: Any) -> Any:
        counted.note(box)
        return original(data, box, *arguments)

    def only_decodes(source: Source) -> bool:
        found = only(source)
        if found:  # compiled code then decodes a region of it
            counted.note(None)
        return found

    with accel.image_backend("cpu"):
        host_of(accel.processes.switch.current()).prepare()
    monkeypatch.setattr(engines, "accel", decode)
    monkeypatch.setattr(read, "only_decodes", only_decodes)
    return counted


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{number}.jpg" for number in range(6)]
    for number, path in enumerate(files):
        path.write_bytes(helpers.jpeg(WIDTH, HEIGHT, "L" if number == 4 else "RGB", seed=number))
    return files


def opened_and_loaded(path: Path) -> Image.Image:
    image = Image.open(path)
    image.load()
    return image


def converted(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB")


def copied(path: Path) -> Image.Image:
    return converted(path).copy()


def resized(path: Path) -> Image.Image:
    return transforms.Resize(60)(converted(path))


class Cached(Dataset[Any]):
    """Images that are opened once, and transformed each time."""

    def __init__(self, images: Any, transform: Callable[[Image.Image], Any]) -> None:
        self.images = images
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index].convert("RGB"))


def epochs(dataset: Any, count: int = 4, **options: Any) -> Iterator[Any]:
    """The batches of each epoch, computed before the next one begins."""
    for _ in range(count):
        batches = helpers.batches(DataLoader(dataset, batch_size=3, **options))
        for tensor in tree_leaves(batches):
            torch.sum(tensor)
        yield batches


CROP = transforms.Compose([transforms.RandomCrop(32), transforms.RandomHorizontalFlip(), transforms.ToTensor()])


LOADS: tuple[Load, ...] = (opened_and_loaded, converted, copied, resized)


@pytest.mark.parametrize(
    ("load", "workers"),
    [*((load, 0) for load in LOADS)]
    + [pytest.param(load, 2, marks=[] if load is resized else pytest.mark.sweep) for load in LOADS],
)
def test_images_kept_in_memory(paths: list[Path], decodes: Decodes, load: Load, workers: int) -> None:
    def run() -> Any:
        dataset = Cached([load(path) for path in paths], CROP)
        seen = []
        for epoch in epochs(dataset, num_workers=workers):
            counts.append(decodes.since())
            seen.append(epoch)
        return seen

    counts: list[tuple[int, int]] = []
    helpers.assert_equal_runs(run)
    ours = counts[-4:]
    assert all(number <= len(paths) for number, _ in ours)
    assert ours[-1] == (0, 0)
    assert sum(whole for _, whole in ours) <= len(paths)
    if workers:  # all of it before the first worker was started
        assert [number for number, _ in ours[1:]] == [0, 0, 0]


def test_the_usual_way_decodes_regions_and_keeps_nothing(paths: list[Path], decodes: Decodes) -> None:
    before = accel.stats()["kept"]
    with accel.image_backend("cpu"):
        for _ in range(3):
            batch = torch.stack([CROP(open_rgb(str(path))) for path in paths])
            assert batch.sum() > 0
    assert decodes.since() == (3 * len(paths), 0)
    assert accel.stats()["kept"] == before


@pytest.mark.parametrize("views", [2, 10])
def test_many_views_of_an_image_decode_it_once(paths: list[Path], decodes: Decodes, views: int) -> None:
    def transform(image: Image.Image) -> list[Any]:
        return [transforms.RandomResizedCrop(48 - view)(image) for view in range(views)]

    class Views(Cached):
        def __getitem__(self, index: int) -> Any:
            return [transforms.functional.to_tensor(view) for view in transform(open_rgb(str(self.images[index])))]

    helpers.assert_equal_runs(lambda: list(epochs(Views(paths, transform), 1)))
    assert decodes.since() == (len(paths), len(paths))


@pytest.mark.parametrize(
    ("wrap", "workers"),
    [("list", 0), ("subset", 0), ("attribute", 0), ("attribute", 2)]
    + [pytest.param(wrap, 2, marks=pytest.mark.sweep) for wrap in ("list", "subset")],
)
def test_samples_that_are_kept(paths: list[Path], decodes: Decodes, workers: int, wrap: str) -> None:
    evaluation = transforms.Compose([transforms.Resize(40), transforms.CenterCrop(32), transforms.ToTensor()])

    class Held(Dataset[Any]):
        def __init__(self, samples: dict[int, Any]) -> None:
            self.samples = samples

        def __len__(self) -> int:
            return len(self.samples)

        def __getitem__(self, index: int) -> Any:
            return self.samples[index]

    def run() -> Any:
        samples = [(evaluation(open_rgb(str(path))), number) for number, path in enumerate(paths)]
        dataset: Any = samples
        if wrap == "subset":
            dataset = Subset(ConcatDataset([samples]), range(len(samples)))  # type: ignore[arg-type,list-item]
        elif wrap == "attribute":
            dataset = Held(dict(enumerate(samples)))
        seen = []
        for epoch in epochs(dataset, num_workers=workers):
            counts.append(decodes.since())
            seen.append(epoch)
        lazy.append([is_lazy(sample) for sample, _ in samples])
        return seen

    counts: list[tuple[int, int]] = []
    lazy: list[list[bool]] = []
    helpers.assert_equal_runs(run)
    assert lazy[-1] == [False] * len(paths)
    assert [number for number, _ in counts[-4:]] == ([6, 0, 0, 0] if workers else [6, 6, 0, 0])


def test_what_is_kept_goes_with_its_image(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves its room to others."""
    monkeypatch.setattr(picture_memory, "limit", lambda: len(paths) * WIDTH * HEIGHT * 3)
    with accel.image_backend("cpu"):
        for _ in range(3):
            images = [converted(path) for path in paths]
            for _ in range(2):
                torch.stack([CROP(image) for image in images]).sum()
            pictures = [image.recipe.source.picture for image in images]  # type: ignore[attr-defined]
            assert all(picture is not None and picture.pixels is not None for picture in pictures)
            del images, pictures


def test_nothing_is_kept_beyond_the_bound(paths: list[Path], decodes: Decodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_memory, "memory", lambda: 1024)
    dataset = lambda: Cached([converted(path) for path in paths], CROP)  # noqa: E731
    before = accel.stats()["kept"]
    helpers.assert_equal_runs(lambda: list(epochs(dataset(), num_workers=2)) + list(epochs(dataset())))
    assert decodes.since()[1] == 0
    assert accel.stats()["kept"] == before


def test_pixels_that_are_kept_are_nobodys_to_change(paths: list[Path]) -> None:
    with accel.image_backend("cpu"):
        image = converted(paths[0])
        expected = converted(paths[0]).tobytes()
        for _ in range(4):
            tensor = transforms.functional.pil_to_tensor(image)
            tensor.zero_()
            whole = image.crop((0, 0, *image.size))
            whole.paste((1, 2, 3), (0, 0, 50, 50))
            part = image.crop((10, 10, 40, 40))
            part.load()[3, 3] = (9, 9, 9)  # type: ignore[index]
            assert part.getpixel((3, 3)) == (9, 9, 9)
            torch.stack([transforms.functional.to_tensor(image)]).add_(1)
        assert image.copy().tobytes() == expected


def test_a_file_damaged_below_what_is_read_stays_as_readable_as_it_was(tmp_path: Path) -> None:
    data = bytearray(helpers.jpeg(256, 512, seed=3))
    at = len(data) * 9 // 10
    data[at : at + 40] = b"\xff\x00" * 20
    path = tmp_path / "damaged.jpg"
    path.write_bytes(data)
    with accel.image_backend("cpu"):
        image = converted(path)
        seen = [image.crop((0, 0, 64, 64)).tobytes() for _ in range(4)]
    assert len(set(seen)) == 1


def test_an_image_with_steps_hands_down_its_info(paths: list[Path]) -> None:
    def run() -> Any:
        image = resized(paths[1])
        for _ in range(5):
            CROP(image).sum()
        return image.info, image.getpixel((4, 5)), image

    helpers.assert_equal_runs(run)


def test_torchvisions_own_image_folder_with_cached_images(tmp_path: Path, decodes: Decodes) -> None:
    root = helpers.write_image_folder(tmp_path / "tree", 6)

    def run() -> Any:
        cache: dict[str, Image.Image] = {}

        def load(path: str) -> Image.Image:
            if path not in cache:
                cache[path] = open_rgb(path)
            return cache[path]

        dataset = datasets.ImageFolder(root, transforms.Compose([transforms.Resize(40), CROP]), loader=load)
        return list(epochs(dataset))

    helpers.assert_equal_runs(run)
    assert decodes.since()[0] <= 2 * 6

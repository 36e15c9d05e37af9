"""An unchanged script on every backend: loaders, submission, broken files."""

import gc
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.transforms import functional as F

import accel
from accel.backend import backend_of
from accel.processes.switch import current
from tests.support import helpers
from tests.support.backends import Backend
from tests.support.cuda import needs_compiler
from tests.support.helpers import Files, assert_same, batches, is_lazy, jpeg, undecodable, write_image_folder
from tests.support.loaders import TIMEOUT
from tests.support.processes import linux

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TRAIN = T.Compose(
    [T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
)


def where(backend: Backend) -> str:
    return str(backend.options.get("device", "cpu"))


def epoch(root: Path, device: str, workers: int, pinned: bool = False) -> list[Any]:
    helpers.seed_everything(3)
    loader = DataLoader(ImageFolder(root, TRAIN), 5, shuffle=True, num_workers=workers)
    given = batches(loader)
    if pinned:  # as DataLoader's pin step does where there is an accelerator
        given = [(images.pin_memory() if is_lazy(images) else images, labels) for images, labels in given]
    return [(images.to(device).cpu(), labels) for images, labels in given]


@pytest.fixture
def runs(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each run of an accelerator backend had."""
    found: list[int] = []
    with backend.chosen():
        kind = type(backend_of(current()))
    if kind.devices:
        run = kind.run_on

        def counted(self: Any, plan: Any, device: torch.device) -> torch.Tensor:
            found.append(plan.shape[0])
            return run(self, plan, device)

        monkeypatch.setattr(kind, "run_on", counted)
    return found


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loaders_batches(image_folder: Path, backend: Backend, runs: list[int], workers: int, pinned: bool) -> None:
    """Workers only record for an accelerator; it runs here, before and after they were forked."""
    with accel.image_backend("torchvision"):
        expected = epoch(image_folder, "cpu", workers)
    with backend.chosen():
        for _ in range(2):
            assert_same(epoch(image_folder, where(backend), workers, pinned and backend.name != "cpu"), expected)
    assert sorted(runs) == ([] if backend.name == "cpu" else [2, 2, 5, 5, 5, 5]), "they did not run on the backend"


def test_submit(image_folder: Path, backend: Backend, runs: list[int]) -> None:
    with accel.image_backend("torchvision"):
        (expected, _), *_ = epoch(image_folder, "cpu", 0)
    with backend.chosen():
        helpers.seed_everything(3)
        images, _ = next(iter(DataLoader(ImageFolder(image_folder, TRAIN), 5, shuffle=True)))
        assert_same(accel.submit(images).result(60).cpu(), expected)
    assert runs == ([] if backend.name == "cpu" else [5])


def test_a_single_touched_image_is_the_hosts(image_folder: Path, backend: Backend, runs: list[int]) -> None:
    with backend.chosen():
        image, _ = ImageFolder(image_folder)[0]
        assert image.resize((9, 9)).getpixel((3, 3)) is not None
    assert not runs


def used(image: Image.Image) -> torch.Tensor:
    return F.to_tensor(F.resize(image, [20, 30])) * 1  # asks for the values


def test_values_used_inside_a_worker_are_the_hosts(paths: list[str], backend: Backend, runs: list[int]) -> None:
    def images() -> list[torch.Tensor]:
        return [images for images, _ in batches(DataLoader(Files(paths, used), 4, num_workers=1))]

    with accel.image_backend("torchvision"):
        expected = images()
    with backend.chosen():
        assert_same(images(), expected)
    assert not runs


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_of_a_folder(tmp_path: Path, backend: Backend, workers: int) -> None:
    root = write_image_folder(tmp_path, broken={4: undecodable(88, 78)})
    with backend.chosen(), pytest.raises(accel.DecodeError, match=r"004\.jpg"):
        epoch(root, where(backend), workers)
    with backend.chosen(on_error="replace"):
        found = torch.cat([images for images, _ in epoch(root, where(backend), workers)])
    good = write_image_folder(tmp_path / "good")
    with accel.image_backend("torchvision"):
        expected = torch.cat([images for images, _ in epoch(good, "cpu", workers)])
    black = [n for n in range(len(found)) if found[n].flatten(1).std(dim=1).max() == 0]
    assert len(black) == 1
    kept = [n for n in range(len(found)) if n not in black]
    assert torch.equal(found[kept], expected[kept])


def batch(broken: tuple[int, ...] = (), count: int = 12) -> torch.Tensor:
    streams = [undecodable(seed=n) if n in broken else jpeg(64, 48, seed=n) for n in range(count)]
    return torch.stack([F.to_tensor(F.resize(Image.open(BytesIO(each)), [20, 30])) for each in streams])


WAYS = pytest.mark.parametrize("options", [{}, {"memory": 1}, {"exact": False}], ids=str)


@pytest.fixture
def way(backend: Backend, options: dict[str, Any]) -> tuple[Backend, float]:
    """A backend with options, and by how much its values may differ (they are 0 to 1)."""
    if (backend.name == "cpu" and options) or (backend.name == "dali" and "memory" in options):
        pytest.skip("it has no such option, or no other way for it")
    apart = 20 / 255 if backend.name == "dali" and "exact" in options else 0.0
    return backend._replace(options={**backend.options, **options}), apart


@WAYS
def test_a_broken_file_is_named(way: tuple[Backend, float]) -> None:
    backend, apart = way
    with pytest.raises(accel.DecodeError, match=r"\(image 3 of a batch of 12\)") as caught:
        backend.made(lambda: batch((3, 7)) + 0 if backend.name == "cpu" else batch((3, 7)))
    assert caught.value.position == 3
    assert (torch.clone(backend.made(batch)[0]) - batch()).abs().max() <= apart  # nothing was left behind


@WAYS
@pytest.mark.parametrize("broken", [(0,), (3, 7), (11,), tuple(range(12))], ids=str)
def test_a_broken_file_is_replaced_and_the_others_are_right(way: tuple[Backend, float], broken: Any) -> None:
    backend, apart = way
    before = accel.stats()["replaced"]
    with backend.chosen(on_error="replace"):
        found = torch.clone(backend.computed(batch(broken)))
    expected = batch()
    expected[list(broken)] = 0
    assert (found - expected).abs().max() <= apart
    assert (found - expected).abs().mean() <= apart / 25
    assert not found[list(broken)].any()
    assert accel.stats()["replaced"] == before + len(broken)


# -- workers that persist --------------------------------------------------------------------------------------------


CROPS = T.Compose([T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.ToTensor()])


def made(paths: list[str], **options: Any) -> DataLoader[Any]:
    return DataLoader(
        Files(paths, CROPS), 4, shuffle=True, num_workers=2, persistent_workers=True, timeout=TIMEOUT, **options
    )


def epochs(paths: list[str], backends: list[str], *, block: bool, **options: Any) -> tuple[list[Any], list[int]]:
    """The batches of an epoch under each backend, and the images that accel computed for each."""
    torch.manual_seed(5)
    loader, batches, counts = made(paths, **options), [], []
    try:
        for name in backends:
            before = accel.stats()["images"]
            given = {"device": "cpu"} if name == "cuda" else {}
            if not block:
                accel.set_image_backend(name, **given)
            with accel.image_backend(name, **given) if block else nullcontext():
                batches.append([(images.to("cpu").clone(), labels) for images, labels in loader])
            counts.append(accel.stats()["images"] - before)
    finally:
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()
    return batches, counts


OFF_ON = ["torchvision", "cpu", "torchvision", "cpu", "cpu"]
ON_OFF = ["cpu", "torchvision", "torchvision", "cpu"]


@linux
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("backends", [OFF_ON, ON_OFF], ids=["off first", "on first"])
def test_the_backend_of_each_epoch(paths: list[str], backends: list[str], block: bool, start: str) -> None:
    """With the random numbers of workers that live on."""
    expected, none = epochs(paths, ["torchvision"] * len(backends), block=False)
    found, counts = epochs(paths, backends, block=block, multiprocessing_context=start)
    assert_same(found, expected)
    assert not any(none)
    assert counts == [len(paths) * (name != "torchvision") for name in backends]


@linux
@needs_compiler
@pytest.mark.parametrize("backends", [["torchvision", "cuda", "cpu", "cuda"], ["cuda", "torchvision", "cuda", "cpu"]])
def test_one_backend_after_another(paths: list[str], backends: list[str]) -> None:
    expected, _ = epochs(paths, ["torchvision"] * len(backends), block=False)
    found, counts = epochs(paths, backends, block=False)
    assert_same(found, expected)
    assert counts == [len(paths) * (name != "torchvision") for name in backends]


@linux
def test_an_iterator_that_only_the_collector_finds(paths: list[str]) -> None:
    """As after an error in a dataset, which torch raises anew: its workers end, and nothing is printed."""
    loader = made(paths)
    with accel.image_backend("cpu"):
        iterator: Any = iter(loader)
        next(iterator)
        workers, iterator.itself = iterator._workers, iterator
        del iterator, loader
        gc.collect()
    for worker in workers:
        worker.join(TIMEOUT)
        assert worker.exitcode == 0


@linux
def test_an_option_changes(paths: list[str], tmp_path: Any) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8 no picture")
    loader = made([*paths[:3], str(broken)])
    with accel.image_backend("cpu"), pytest.raises(Exception, match="cannot identify image file"):
        list(loader)
    with accel.image_backend("cpu", on_error="replace"):
        assert len(list(loader)) == 1
    with accel.image_backend("cpu"), pytest.raises(Exception, match="cannot identify image file"):
        list(loader)
    loader._iterator._shutdown_workers()  # type: ignore[union-attr]


@linux
@pytest.mark.parametrize("name", ["torchvision", "cpu"])
def test_a_worker_with_a_backend_of_its_own_keeps_it(paths: list[str], name: str) -> None:
    """If its parent's does not change."""
    accel.set_image_backend(name)
    loader = made(paths, worker_init_fn=lambda _: accel.set_image_backend("cpu", threads=1))
    for _ in range(3):
        before = accel.stats()["images"]
        list(loader)
        assert accel.stats()["images"] - before == len(paths)
    loader._iterator._shutdown_workers()  # type: ignore[union-attr]

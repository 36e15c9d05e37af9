"""The cuda backend with a cache of a given size: results are kept and taken, and of half-decoded pictures nothing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from accel.planning.prefix import Prefixes
from accel.runtime.memo import result_lookup
from accel.system import memory
from tests.backends.cuda.indexed import FILES
from tests.support import helpers
from tests.support.cached import Counts
from tests.support.cuda import host_only, needs_compiler, on_device
from tests.support.helpers import assert_same

pytestmark = [needs_compiler, host_only]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_cache_that_another_run_has_filled(
    workers: int, tmp_path: Path, launched: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device decodes the files, although the cache has their planes; where the host decodes, it takes these."""
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    monkeypatch.setattr(result_lookup, "prefixes", Prefixes())
    for number, name in enumerate(2 * ("420", "444", "grey", "intervals")):  # enough to tell what varies
        path = tmp_path / "data" / "class" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FILES[name])
    dataset = ImageFolder(tmp_path / "data", T.Compose([T.RandomResizedCrop(40), T.ToTensor()]))
    cache = f"{tmp_path / 'cache'}:64MB"

    def epoch() -> torch.Tensor:
        images: torch.Tensor = next(iter(DataLoader(dataset, 8, num_workers=workers, timeout=60 * workers)))[0]
        return images

    for seed in (0, 1):
        helpers.run("cpu", lambda: epoch() + 0, seed, cache=cache)
    counts = Counts()
    for seed, decode in ((2, "accel"), (3, "accel"), (4, "host")):
        expected, _ = helpers.run("torchvision", epoch, seed)
        launched.clear()
        helpers.seed_everything(seed)
        assert_same(on_device(epoch, cache=cache, decode=decode), expected)
        assert counts() == ({"planes used": 8} if decode == "host" else {})
        assert ("jpeg_transform" in dict(launched)) == (decode == "accel")


def epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Iterable[bytes], transform: Any, epochs: int
) -> list[dict[str, int]]:
    """Epochs of files with a cache, which are torchvision's; what was put in and used in each."""
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    monkeypatch.setattr(result_lookup, "prefixes", Prefixes())
    paths = []
    for number, data in enumerate(files):
        paths.append(str(tmp_path / f"{number}.jpg"))
        Path(paths[-1]).write_bytes(data)

    def epoch() -> torch.Tensor:
        return torch.stack([transform(helpers.open_rgb(path)) for path in paths])

    counts, found = Counts(), []
    for seed in range(epochs):
        expected, _ = helpers.run("torchvision", epoch, seed)
        helpers.seed_everything(seed)
        assert_same(on_device(epoch, cache=f"{tmp_path / 'cache'}:64MB"), expected)
        found.append(counts())
    return found


def test_crops_are_decoded_in_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transform = T.Compose([T.RandomResizedCrop(40), T.ToTensor()])
    assert epochs(tmp_path, monkeypatch, list(FILES.values())[:8], transform, 3) == [{}, {}, {}]


def test_results_of_any_sizes_are_made_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [helpers.jpeg(90 + 20 * (number % 3), 80, seed=number) for number in range(10)]
    transform = T.Compose([T.Resize(40), T.RandomCrop(32), T.ToTensor()])
    found = epochs(tmp_path, monkeypatch, files, transform, 3)
    assert found == [{"results": 10}, {"results used": 10}, {"results used": 10}]

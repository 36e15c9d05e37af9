"""Mosaic Streaming: MDS shards with JPEG columns keep the files' bytes, and stream back as lazy images."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import accel
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.loaders import TRAIN

streaming = helpers.optional("streaming")

pytestmark = pytest.mark.filterwarnings("ignore")  # it warns of its own shared memory, and of versions


@pytest.fixture(autouse=True)
def _shared_memory() -> Iterator[None]:
    streaming.base.util.clean_stale_shared_memory()
    yield
    streaming.base.util.clean_stale_shared_memory()


def written(backend: str, paths: list[str], folder: Path) -> Path:
    columns = {"image": "jpeg", "label": "int"}
    with accel.image_backend(backend), streaming.MDSWriter(out=str(folder), columns=columns) as writer:
        for path in paths:
            writer.write({"image": Image.open(path), "label": int(Path(path).stem)})
    return folder


@pytest.fixture(scope="module")
def folder(paths: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written("torchvision", paths, tmp_path_factory.mktemp("mds") / "plain")


def test_the_files_bytes_are_kept(paths: list[str], folder: Path, tmp_path: Path) -> None:
    made = written("cpu", paths, tmp_path / "accel")
    shard = (made / "shard.00000.mds").read_bytes()
    assert shard == (folder / "shard.00000.mds").read_bytes()
    assert all(Path(path).read_bytes() in shard for path in paths)


class Images(streaming.StreamingDataset):  # type: ignore[misc]
    def __getitem__(self, index: int) -> Any:
        row = super().__getitem__(index)
        return TRAIN(row["image"].convert("RGB")), row["label"]


@pytest.mark.parametrize("workers", [0, 2])
def test_streaming(folder: Path, workers: int) -> None:
    def run() -> Any:
        dataset = Images(local=str(folder), shuffle=True, shuffle_seed=3, batch_size=4)
        try:
            return helpers.batches(DataLoader(dataset, batch_size=4, num_workers=workers))
        finally:
            streaming.base.util.clean_stale_shared_memory()

    batches = proven(run, images=12)
    assert sorted(torch.cat([labels for _, labels in batches]).tolist()) == list(range(12))

"""WebDataset: shards of JPEG files, read as its documentation reads them, and written."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import transforms as T

import accel
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.loaders import TRAIN

wds = helpers.optional("webdataset")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # it leaves its streams to the collector


def identity(value: Any) -> Any:
    return value


@pytest.fixture(scope="module")
def shards(paths: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two shards of six files each."""
    pattern = tmp_path_factory.mktemp("shards") / "%06d.tar"
    with wds.ShardWriter(str(pattern), maxcount=6, verbose=0) as writer:
        for number, path in enumerate(paths):
            writer.write({"__key__": f"{number:03}", "jpg": Path(path).read_bytes(), "cls": number})
    return str(pattern.parent / "{000000..000001}.tar")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset(shards: str, workers: int) -> None:
    def run() -> Any:
        dataset = (
            wds.WebDataset(shards, shardshuffle=2, seed=1)
            .shuffle(6, seed=1)
            .decode("pil")
            .to_tuple("jpg", "cls")
            .map_tuple(TRAIN, identity)
            .batched(3)
        )
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers)
        return [list(batch) for batch in loader]

    assert len(proven(run, images=12)) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pipeline_of_data(shards: str, workers: int) -> None:
    def run() -> Any:
        pipeline = wds.DataPipeline(
            wds.SimpleShardList(shards),
            wds.split_by_worker,
            wds.tarfile_to_samples(),
            wds.decode("pilrgb"),
            wds.to_tuple("jpg", "cls"),
            wds.map_tuple(TRAIN, identity),
        )
        loader = wds.WebLoader(pipeline, batch_size=3, num_workers=workers)
        loader = loader.unbatched().shuffle(10, seed=1).batched(4)
        return [list(batch) for batch in loader]

    assert len(proven(run, images=12)) == 3


@pytest.mark.parametrize(
    ("early", "instead"), [("torchrgb", T.ToTensor()), ("torchrgb8", T.PILToTensor())], ids=lambda each: str(each)
)
def test_arrays_of_pixels(shards: str, early: str, instead: Any) -> None:
    """An image that leaves Pillow at once is computed at once, one by one; what the documentation writes instead."""

    def run(decoded: str, transform: Any = identity) -> Any:
        dataset = wds.WebDataset(shards, shardshuffle=False).decode(decoded).to_tuple("jpg", "cls")
        loader = wds.WebLoader(dataset.map_tuple(transform, identity), batch_size=4, collate_fn=list)
        return [sample for batch in loader for sample in batch]

    wanted = proven(lambda: run(early), images=12, early=12)
    for (image, _), (other, _) in zip(wanted, proven(lambda: run("pilrgb", instead), images=12), strict=True):
        assert torch.equal(image, other)


def test_what_is_written(paths: list[str], tmp_path: Path) -> None:
    """Images are encoded anew, by Pillow, from the same pixels."""

    def written(backend: str) -> bytes:
        with accel.image_backend(backend), wds.TarWriter(str(tmp_path / backend)) as writer:
            for number, path in enumerate(paths):
                writer.write({"__key__": str(number), "jpg": Image.open(path), "cls": number})
        with tarfile.open(tmp_path / backend) as tar:
            return b"".join(tar.extractfile(each).read() for each in tar)  # type: ignore[union-attr]

    assert written("cpu") == written("torchvision")

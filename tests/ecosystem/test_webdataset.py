"""WebDataset: shards of JPEG files, read as its documentation reads them, and written."""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, UnidentifiedImageError
from torchvision.transforms import v2

import accel
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.helpers import is_lazy
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


@pytest.mark.parametrize("transform", [identity, v2.RandomResizedCrop(24)], ids=["whole", "cropped"])
@pytest.mark.parametrize("decoded", ["torchrgb", "torchrgb8", "torch"])
def test_tensors(shards: str, decoded: str, transform: Any) -> None:
    def run() -> Any:
        dataset = wds.WebDataset(shards, shardshuffle=False).decode(decoded).to_tuple("jpg", "cls")
        loader = wds.WebLoader(dataset.map_tuple(transform, identity), batch_size=4, collate_fn=list)
        return [sample for batch in loader for sample in batch]

    proven(run, images=12)


@pytest.mark.parametrize("decoded", ["l8", "rgb", "rgba8", "torchl", "torchl8", "torchrgba", "torchrgba8", "pill"])
def test_what_computes_images_early(shards: str, decoded: str) -> None:
    def run() -> Any:
        dataset = wds.WebDataset(shards, shardshuffle=False).decode(decoded).to_tuple("jpg", "cls")
        return [torch.tensor(np.asarray(image)) for image, _ in dataset]

    helpers.assert_equal_runs(run)


def test_torchrgb_divides() -> None:
    """Values times 1 / 255, as ``ToDtype`` has them, would be others."""
    levels = torch.arange(256, dtype=torch.float32)
    assert not torch.equal(levels / 255, levels * (1 / 255))
    content = helpers.jpeg(40, 30)
    expected = wds.autodecode.ImageHandler("torchrgb")("jpg", content)
    with accel.image_backend("cpu"):
        handler = wds.autodecode.ImageHandler("torchrgb")
        found, level = handler(".jpg", content), v2.functional.to_dtype(expected, torch.uint8, scale=True)
        assert is_lazy(found)
        assert torch.equal(found, expected)
        assert not torch.equal(v2.functional.to_dtype(level, torch.float32, scale=True), expected)
        assert handler(".cls", b"3") is None
        with pytest.raises(UnidentifiedImageError):
            handler(".jpg", b"no image")


def test_what_is_written(paths: list[str], tmp_path: Path) -> None:
    """Images are encoded anew, by Pillow, from the same pixels."""

    def written(backend: str) -> bytes:
        with accel.image_backend(backend), wds.TarWriter(str(tmp_path / backend)) as writer:
            for number, path in enumerate(paths):
                writer.write({"__key__": str(number), "jpg": Image.open(path), "cls": number})
        with tarfile.open(tmp_path / backend) as tar:
            return b"".join(tar.extractfile(each).read() for each in tar)  # type: ignore[union-attr]

    assert written("cpu") == written("torchvision")

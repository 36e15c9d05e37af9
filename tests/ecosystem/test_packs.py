"""Packs in other people's readers: WebDataset, DALI, Megatron-Energon and Hugging Face datasets read accel's shards."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import functional

from accel.packs.writing import pack
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.helpers import assert_same
from tests.support.loaders import TRAIN

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # they leave their files to the collector
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
JPEG, PNG = 10, 4  # files; those of a type are in shards of their own


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of JPEG and PNG files."""
    root = tmp_path_factory.mktemp("tree")
    for number in range(JPEG + PNG):
        folder = root / ("b", "a.c")[number % 2]
        folder.mkdir(exist_ok=True)
        if number < JPEG:
            (folder / f"{number}.x.JPEG").write_bytes(helpers.jpeg(60 + 5 * number, 50 + 3 * number, seed=number))
        else:
            helpers.picture(40 + number, 30, seed=number).save(folder / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def packed(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its pack: several shards of each type, and indexes for DALI."""
    place = tmp_path_factory.mktemp("packs") / "pack"
    report = pack(str(tree), str(place), shard_size=20_000, workers=1, idx=True)
    assert report.files == JPEG + PNG
    assert report.shards > 2
    return place


@pytest.fixture(scope="module")
def expected(tree: Path) -> dict[str, tuple[bytes, int]]:
    """Content and class number of each file of the tree, by its sample's key."""
    samples = ImageFolder(tree).samples
    assert len(samples) == JPEG + PNG
    return {f"{number:09}": (Path(path).read_bytes(), label) for number, (path, label) in enumerate(samples)}


def shards(packed: Path, kind: str = "") -> list[str]:
    """The shards, or those of a type, which the name of their first member tells."""
    every = sorted(packed.glob("shard-*.tar"))
    return [str(shard) for shard in every if shard.read_bytes()[:100].rstrip(b"\0").decode().endswith(kind)]


def pixels(data: bytes) -> Any:
    return np.asarray(Image.open(BytesIO(data)).convert("RGB"))


def identity(value: Any) -> Any:
    return value


def test_webdataset(packed: Path, expected: dict[str, tuple[bytes, int]]) -> None:
    wds = helpers.optional("webdataset")
    found = {sample["__key__"]: sample for sample in wds.WebDataset(shards(packed), shardshuffle=False).decode("pil")}
    assert found.keys() == expected.keys()
    for key, (data, label) in expected.items():
        image = found[key]["jpg" if "jpg" in found[key] else "png"]
        assert found[key]["cls"] == label
        assert np.array_equal(np.asarray(image.convert("RGB")), pixels(data))
        assert found[key]["json"]["path"].startswith(found[key]["json"]["class"] + "/")


@pytest.mark.parametrize("workers", [0, 2])
def test_webdataset_with_the_switch(packed: Path, workers: int) -> None:
    """Shards decode lazily: accel computes each JPEG file once, in its batch."""
    wds = helpers.optional("webdataset")

    def run() -> Any:
        dataset = wds.WebDataset(shards(packed, "jpg"), shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
        loader = wds.WebLoader(dataset.map_tuple(TRAIN, identity).batched(3), batch_size=None, num_workers=workers)
        return [list(batch) for batch in loader]

    batches = proven(run, images=JPEG)
    assert sorted(torch.cat([torch.as_tensor(labels) for _, labels in batches]).tolist()) == [0] * 5 + [1] * 5


def test_dali(packed: Path, expected: dict[str, tuple[bytes, int]]) -> None:
    """Its reader gives each file's bytes; DALI's own decoder is not libjpeg-turbo's."""
    dali = helpers.optional("nvidia.dali")
    fn = helpers.optional("nvidia.dali.fn")
    paths = shards(packed)
    pipeline = dali.Pipeline(batch_size=len(expected), num_threads=1, device_id=None)
    with pipeline:
        indexes = [path.removesuffix("tar") + "idx" for path in paths]
        reader = fn.readers.webdataset(paths=paths, index_paths=indexes, ext=["jpg;png", "cls"])
        pipeline.set_outputs(*reader)
    pipeline.build()
    pictures, labels = ([np.asarray(each).tobytes() for each in column] for column in pipeline.run())
    assert sorted(zip(pictures, map(int, labels), strict=True)) == sorted(expected.values())


def test_energon(packed: Path, expected: dict[str, tuple[bytes, int]]) -> None:
    """It reads the pack's folder by the index and the small files beside it, and nothing has to be prepared."""
    energon: Any = helpers.optional("megatron.energon")

    class Samples(energon.TaskEncoder):  # type: ignore[misc]
        def encode_sample(self, sample: Any) -> Any:
            return sample

        def batch(self, samples: Any) -> Any:
            return samples

        def encode_batch(self, batch: Any) -> Any:
            return batch

    dataset = energon.get_train_dataset(
        str(packed),
        batch_size=4,
        shuffle_buffer_size=None,
        max_samples_per_sequence=100,
        worker_config=energon.WorkerConfig(rank=0, world_size=1, num_workers=0),
        task_encoder=Samples(),
        repeat=False,
    )
    found = {sample.__key__.rpartition("/")[2]: sample for batch in energon.get_loader(dataset) for sample in batch}
    assert found.keys() == expected.keys()
    for key, (data, label) in expected.items():
        assert int(found[key].label) == label
        assert_same(found[key].image, functional.to_tensor(pixels(data)))


@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_huggingface(packed: Path, expected: dict[str, tuple[bytes, int]], kind: str, tmp_path: Path) -> None:
    """Every sample of a dataset has to have the same columns: a dataset is of one type of pictures."""
    datasets = helpers.optional("datasets")
    rows = datasets.load_dataset(
        "webdataset", data_files={"train": shards(packed, kind)}, split="train", cache_dir=str(tmp_path)
    )
    assert len(rows) == {"jpg": JPEG, "png": PNG}[kind]
    for row in rows:
        data, label = expected[row["__key__"]]
        assert row["cls"] == label
        assert np.array_equal(np.asarray(row[kind].convert("RGB")), pixels(data))

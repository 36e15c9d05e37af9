"""LitData: data sets optimised from JPEG files keep their bytes, and stream back as images or tensors."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

import accel
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.loaders import TRAIN

litdata = helpers.optional("litdata")

pytestmark = pytest.mark.filterwarnings("ignore")  # it warns of the machine, of its versions and of its own threads

TENSORS = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])


def sample(path: str) -> dict[str, Any]:
    return {"image": Image.open(path), "label": int(Path(path).stem)}


def optimized(backend: str, paths: list[str], folder: Path) -> Path:
    with accel.image_backend(backend):
        litdata.optimize(
            sample, inputs=paths, output_dir=str(folder), chunk_bytes="64KB", num_workers=1, start_method="fork"
        )
    return folder


@pytest.fixture(scope="module")
def folder(colour_paths: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return optimized("torchvision", colour_paths, tmp_path_factory.mktemp("litdata"))


def test_the_files_bytes_are_kept(colour_paths: list[str], folder: Path, tmp_path: Path) -> None:
    made = optimized("cpu", colour_paths, tmp_path)
    for chunk in sorted(folder.glob("*.bin")):
        assert (made / chunk.name).read_bytes() == chunk.read_bytes()
    everything = b"".join(chunk.read_bytes() for chunk in sorted(made.glob("*.bin")))
    assert all(Path(path).read_bytes() in everything for path in colour_paths)


class Tensors(litdata.StreamingDataset):  # type: ignore[misc]
    """JPEG columns come as uint8 tensors, from torchvision.io."""

    def __getitem__(self, index: Any) -> Any:
        row = super().__getitem__(index)
        return TENSORS(row["image"]), row["label"]


@pytest.mark.parametrize("workers", [0, 2])
def test_streaming(folder: Path, colour_paths: list[str], workers: int) -> None:
    def run() -> Any:
        dataset = Tensors(str(folder), shuffle=True, seed=3)
        loader = litdata.StreamingDataLoader(dataset, batch_size=4, num_workers=workers)
        return [list(batch) for batch in loader]

    batches = proven(run, images=len(colour_paths))
    assert sorted(torch.cat([labels for _, labels in batches]).tolist()) == [
        int(Path(path).stem) for path in colour_paths
    ]


class Images(litdata.StreamingDataset):  # type: ignore[misc]
    """Encoded files that the user's own data set opens."""

    def __getitem__(self, index: Any) -> Any:
        row = super().__getitem__(index)
        return TRAIN(Image.open(BytesIO(row["image"])).convert("RGB")), row["label"]


@pytest.mark.parametrize("orientation", [1, 6])
def test_files_with_exif(orientation: int, tmp_path: Path) -> None:
    """LitData turns them upright."""
    names = [str(tmp_path / f"{number}.jpg") for number in range(4)]
    for number, name in enumerate(names):
        Path(name).write_bytes(helpers.jpeg(60, 40 + number, exif=helpers.exif(orientation)))
    made = optimized("torchvision", names, tmp_path / "made")

    def run() -> Any:
        return [list(batch) for batch in litdata.StreamingDataLoader(Tensors(str(made)), batch_size=2)]

    proven(run, images=4)


def encoded(path: str) -> dict[str, Any]:
    return {"image": Path(path).read_bytes(), "label": int(Path(path).stem)}


def test_streamed_bytes(paths: list[str], tmp_path: Path) -> None:
    litdata.optimize(
        encoded, inputs=paths, output_dir=str(tmp_path), chunk_bytes="64KB", num_workers=1, start_method="fork"
    )

    def run() -> Any:
        return [list(batch) for batch in litdata.StreamingDataLoader(Images(str(tmp_path)), batch_size=4)]

    assert len(proven(run, images=12)) == 3

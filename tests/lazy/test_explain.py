"""``accel.explain``: what is recorded, what would run it, and who asked for pixels."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from accel.system.cores import cores
from tests.support import helpers

EVAL = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize((0.485, 0.5, 0.4), (0.2, 0.3, 0.1))])


@pytest.fixture
def photo(tmp_path: Path) -> str:
    path = tmp_path / "a photo.jpg"
    path.write_bytes(helpers.jpeg(500, 375))
    return str(path)


def lazy(path: str, transform: Any = EVAL, **options: Any) -> Any:
    with accel.image_backend("cpu", **options):
        return transform(default_loader(path))


def test_names_file_steps_region_engine_and_backend(photo: str) -> None:
    tensor = lazy(photo, threads=3)
    text = accel.explain(tensor)
    assert helpers.is_lazy(tensor), "explaining computes nothing"
    for part in (
        *(photo, "500x375", "lazy tensor [3, 224, 224] float32", "resize(height=256, width=341, resample=2)"),
        *("crop(top=16, left=58, height=224, width=224)", "to_tensor(dtype=float32)"),
        *("normalize(mean=(0.485, 0.5, 0.4)", "BILINEAR", "decode: rows 23..352", "% of the picture", "backend: cpu"),
        *("threads=3", "decoder: ", "on 3 threads"),
    ):
        assert part in text, (part, text)


def test_names_the_decoder_that_would_run(photo: str) -> None:
    assert "decoder: pillow on the host, whole files" in accel.explain(lazy(photo, decode="pillow"))
    assert "decoder: pillow" not in accel.explain(lazy(photo))


def test_steps_in_their_order(photo: str) -> None:
    image = lazy(photo, lambda image: F.vflip(F.pad(F.hflip(image), (1, 2, 3, 4), (5, 6, 7))))
    text = accel.explain(image)
    assert "hflip() -> pad(left=1, top=2, right=3, bottom=4, mode=constant, fill=(5, 6, 7)) -> vflip()" in text
    assert "lazy image RGB 504x381" in text
    assert helpers.is_lazy(image)


def test_a_fresh_image_has_nothing_recorded(photo: str) -> None:
    text = accel.explain(lazy(photo, lambda image: image))
    assert "nothing yet" in text
    assert "(100% of the picture)" in text


def test_a_batch_names_its_files_once_counted(photo: str) -> None:
    with accel.image_backend("cpu"):
        image = default_loader(photo)
        batch = torch.stack([EVAL(image), EVAL(F.hflip(image)), EVAL(default_loader(photo))])
    text = accel.explain(batch)
    assert "lazy tensor [3, 3, 224, 224] float32: 3 images from 2 files" in text
    assert helpers.is_lazy(batch)


def touching(image: Image.Image) -> Image.Image:
    image.getpixel((0, 0))
    return image


def test_says_who_asked_for_the_pixels(photo: str) -> None:
    image = lazy(photo, lambda image: touching(image.resize((20, 10))))
    assert "its pixels are computed, asked for by touching (test_explain.py:" in accel.explain(image)
    with accel.image_backend("cpu"):
        resized = default_loader(photo).resize((20, 10))
        F.affine(resized, 5, [40000, 0], 1.0, [0.0, 0.0])  # further than Pillow's fixed point reaches
    assert "asked for by torchvision." in accel.explain(resized)
    assert "affine" in accel.explain(resized)


def test_plain_things(photo: str) -> None:
    accel.set_image_backend("cpu")
    assert "plain tensor [2, 3] float32" in accel.explain(torch.zeros(2, 3))
    assert "'cpu'" in accel.explain(torch.zeros(2, 3))
    assert "plain Pillow image (Image, RGB, (4, 5))" in accel.explain(Image.new("RGB", (4, 5)))
    assert accel.explain("text").startswith("str: nothing of accel's")
    accel.set_image_backend("torchvision")
    assert "'torchvision'" in accel.explain(None)
    tensor = lazy(photo)
    tensor.sum()
    assert "plain tensor [3, 224, 224] float32" in accel.explain(tensor)


def test_lists_and_tuples(photo: str) -> None:
    text = accel.explain([lazy(photo), torch.zeros(2), (lazy(photo, lambda image: image),)])
    assert text.count("lazy tensor") == 1
    assert text.count("plain tensor") == 1
    assert text.count("lazy image") == 1


def test_drafted_and_closed_images() -> None:
    with accel.image_backend("cpu"):
        image = Image.open(BytesIO(helpers.jpeg(200, 100)))
        image.draft(None, (50, 25))
        assert "computed" in accel.explain(image) or "Pillow" in accel.explain(image)


def test_every_recorded_step_can_be_explained() -> None:
    from accel.ops import OPS
    from accel.ops.row import KernelOp, PatchOp, TensorOp

    with accel.image_backend("cpu"):
        source = Image.open(BytesIO(helpers.jpeg(64, 48)))
        values: Any = F.to_tensor(source)
        for op in OPS.values():
            for params in op.samples:
                if isinstance(op, (KernelOp, PatchOp)):
                    made = values.then((op.name, params), kernel=isinstance(op, KernelOp))
                elif isinstance(op, TensorOp):
                    continue
                else:
                    made = source.then(op.name, params)  # type: ignore[attr-defined]
                assert f"{op.name}(" in accel.explain(made)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_a_batch_that_a_worker_computed(image_folder: Path, method: str) -> None:
    """Also when its loader is gone, and for parts of it; others' tensors are told apart."""
    slow = helpers.Each([str(path) for path in sorted(image_folder.rglob("*.jpg"))], touched_then_lazy)
    with accel.image_backend("cpu"):
        for dataset, told in (
            (ImageFolder(str(image_folder), EVAL), "all the fast way"),
            (slow, "5 of them not the fast"),
        ):
            threads = f"{cores()} thread{'s' * (cores() > 1)}"
            loader = DataLoader(dataset, 5, num_workers=1, multiprocessing_context=method)
            batch = next(iter(loader))
            images = batch[0] if isinstance(batch, list) else batch
            text = accel.explain(images)
            assert f"computed by DataLoader worker 0 on {threads}, 5 images, {told}" in text
            assert accel.explain(images[1:3]).endswith(text.partition("float32")[2])
            assert "worker" not in accel.explain(images.clone())
        assert "worker" not in accel.explain(torch.ones(3))


def touched_then_lazy(path: str) -> torch.Tensor:
    image = default_loader(path).resize((80, 60))
    image.getpixel((0, 0))
    return F.to_tensor(default_loader(path).resize((80, 60)))  # type: ignore[no-any-return]


def test_why_something_is_not_compiled(image_folder: Path) -> None:
    def own(image: Any) -> Any:
        return image

    for transform, told in (
        (None, "there is no transform"),
        (own, "the function own is not compiled (test_explain.py:"),
        (T.Compose([own, T.ToTensor()]), "the function own is not compiled (test_explain.py:"),
        (T.Lambda(own), "Lambda is not compiled (own, test_explain.py:"),
    ):
        text = accel.explain(ImageFolder(str(image_folder), transform))
        assert text.startswith(f"ImageFolder: images are made one by one: {told}"), text
    assert "has a __getitem__ of its own, which is normal" in accel.explain(helpers.Each([1], own))


def test_the_summary(photo: str) -> None:
    assert accel.summary().startswith("accel is off: ")
    with accel.image_backend("cpu"):
        EVAL(default_loader(photo)).sum()
        lines = accel.summary().splitlines()
    assert lines[0].startswith("accel is on (backend 'cpu'): ")
    assert " computed by this process and its workers, " in lines[0]
    assert "How their transforms were recorded:" in lines


def test_the_summary_names_who_asked_for_single_images(photo: str) -> None:
    with accel.image_backend("cpu"):
        before = accel.stats()["computed early"]
        default_loader(photo).getpixel((0, 0))
        assert accel.stats()["computed early"] == before + 1
        first, *lines = accel.summary().splitlines()
    assert "all the fast way" not in first
    assert any("test_the_summary_names_who_asked" in line and "asked for a single image" in line for line in lines)

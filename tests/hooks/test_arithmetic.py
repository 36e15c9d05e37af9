"""Settings that torch's results depend on besides arguments: lazy values have them as where they were recorded."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import accel
from accel.ops import OPS
from accel.ops.row import TensorOp
from accel.system import arithmetic
from tests.support import helpers
from tests.support.helpers import assert_same
from tests.support.loaders import epoch
from tests.support.processes import in_thread

LARGE = helpers.jpeg(500, 375)  # large enough for torch to share out its sums among threads
SMALL = helpers.jpeg(80, 60)

Transform = Callable[[Image.Image], torch.Tensor]


SUMS: dict[str, Transform] = {
    "v2 contrast": lambda image: F.adjust_contrast(F.to_dtype(F.to_image(image), torch.float32, scale=True), 1.4),
    "v1 gamma and contrast": lambda image: F1.adjust_contrast(F1.adjust_gamma(F1.to_tensor(image), 1.7), 0.6),
    "AugMix": T.Compose([T.PILToTensor(), T.AugMix()]),
}


def sums(transform: Transform, threads: int) -> list[torch.Tensor]:
    torch.set_num_threads(threads)
    helpers.seed_everything(0)
    return [transform(Image.open(BytesIO(LARGE))) for _ in range(3)]


USES: dict[str, Callable[[list[torch.Tensor]], list[torch.Tensor]]] = {
    "one by one": lambda images: [image + 0 for image in images],
    "stacked": lambda images: list(torch.stack(images) + 0),
    "submitted": lambda images: list(accel.submit(images).result()),
    "in a thread": lambda images: in_thread(lambda: [image + 0 for image in images]),
}


TRIED = {("AugMix", "stacked", "cpu"), ("v2 contrast", "in a thread", "cpu"), ("v2 contrast", "stacked", "cuda")}
TRIED |= {("v1 gamma and contrast", use, "cpu") for use in USES}


@pytest.mark.parametrize(
    ("transform", "use", "options"),
    [
        pytest.param(
            SUMS[transform],
            USES[use],
            options,
            id=f"{transform}-{use}-{name}",
            marks=[] if (transform, use, name) in TRIED else pytest.mark.sweep,
        )
        for transform in SUMS
        for use in USES
        for name, options in (("cpu", {}), ("cuda", {"device": "cpu"}))
    ],
)
def test_kernels_run_on_as_many_threads_as_where_they_were_recorded(
    transform: Transform, use: Callable[[list[torch.Tensor]], list[torch.Tensor]], options: dict[str, Any]
) -> None:
    for threads, later in ((1, 4), (2, 1), (4, 1)):
        expected = sums(transform, threads)
        with accel.image_backend("cuda" if options else "cpu", **options):
            images = sums(transform, threads)
            torch.set_num_threads(later)
            assert all(map(torch.equal, use(images), expected))
        assert torch.get_num_threads() == later


class Batch:
    def __init__(self, images: list[torch.Tensor]) -> None:
        self.images = images


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}], ids=["cpu", "cuda"])
def test_kernels_recorded_in_a_worker(paths: list[str], options: dict[str, Any]) -> None:
    """There torch has one thread; recipes that cross the process border are computed by a parent with more."""
    transform = T.Compose([T.Resize((300, 400)), T.ToTensor(), T.ColorJitter(contrast=0.5)])
    torch.set_num_threads(4)

    def images() -> list[torch.Tensor]:
        loader = {"num_workers": 1, "collate_fn": lambda samples: Batch([image for image, _ in samples])}
        return [image + 0 for batch in epoch(helpers.Files(paths, transform), **loader) for image in batch.images]

    expected, _ = helpers.run("torchvision", images)
    actual, _ = helpers.run("cuda" if options else "cpu", images, **options)
    assert_same(actual, expected)


def test_other_threads_keep_their_number() -> None:
    torch.set_num_threads(3)

    def work() -> tuple[int, int, int, int]:
        before = torch.get_num_threads()
        with arithmetic.own_threads():
            arithmetic.use_threads(2)
            inside, fresh = torch.get_num_threads(), in_thread(torch.get_num_threads)
        return before, inside, fresh, torch.get_num_threads()

    assert in_thread(work) == (3, 2, 3, 3)
    assert torch.get_num_threads() == 3


KERNELS = [row for row in OPS.values() if isinstance(row, TensorOp) and row.samples]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("row", KERNELS, ids=lambda row: row.name)
def test_ops_on_values_whatever_the_default_dtype_is(row: Any, dtype: torch.dtype) -> None:
    levels = (torch.rand(3, 64, 48, generator=torch.Generator().manual_seed(0)) * 256).to(torch.uint8)
    for values in (levels, levels / 255, levels.double() / 255):
        for params in row.samples:
            expected = helpers.outcome(lambda values=values, params=params: row.apply(values.clone(), *params))
            if isinstance(expected, torch.Tensor):
                torch.set_default_dtype(dtype)
                with arithmetic.by_default():
                    assert_same(row.apply(values.clone(), *params), expected)
                torch.set_default_dtype(torch.float32)


TRANSFORMS: dict[str, Transform] = {
    "v2 ColorJitter of uint8": v2.Compose([v2.ToImage(), v2.ColorJitter(0.3, 0.3, 0.3, 0.1)]),
    "v1 ElasticTransform": T.Compose([T.ToTensor(), T.ElasticTransform()]),
    "v1 ElasticTransform of Pillow's": T.Compose([T.ElasticTransform(), T.PILToTensor()]),
    "v1 RandomRotation": T.Compose([T.PILToTensor(), T.RandomRotation(40)]),
    "ToTensor": T.Compose([T.ToTensor(), T.Normalize((0.5,), (0.25,))]),
    "brightness in a table": T.Compose([T.PILToTensor(), T.ColorJitter(brightness=0.6), T.ToPILImage(), T.ToTensor()]),
}


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.bfloat16), (torch.float64, torch.float32)])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_values_have_the_default_dtype_they_were_recorded_under(
    transform: Transform, dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    recorded, used = dtypes

    def transformed() -> torch.Tensor:
        torch.set_default_dtype(recorded)
        result = transform(Image.open(BytesIO(SMALL)))
        torch.set_default_dtype(used)
        return result + 0

    helpers.assert_equal_runs(transformed)


@pytest.mark.parametrize("first", [torch.bfloat16, torch.float32])
def test_a_table_is_not_remembered_for_another_default_dtype(first: torch.dtype) -> None:
    other = torch.float32 if first == torch.bfloat16 else torch.bfloat16
    factor = 1.3 if first == torch.bfloat16 else 1.31  # no table is there yet
    for dtype in (first, other):
        torch.set_default_dtype(dtype)
        helpers.assert_equal_runs(lambda: F.adjust_brightness(F.pil_to_tensor(Image.open(BytesIO(SMALL))), factor))


def test_another_default_dtype_is_a_fallback_that_is_counted() -> None:
    torch.set_default_dtype(torch.float64)
    with accel.image_backend("cpu"):
        F.adjust_contrast(F.to_image(Image.open(BytesIO(SMALL))), 1.3)
    assert any("default dtype" in reason for reason in accel.stats()["fallbacks"])


AUTOCAST: dict[str, Transform] = {
    "v1 GaussianBlur": T.Compose([T.GaussianBlur(5, (1.1, 1.1)), T.PILToTensor()]),
    "v2 GaussianBlur": v2.Compose([v2.GaussianBlur(5, (1.1, 1.1)), v2.PILToTensor()]),
    "v1 GaussianBlur of uint8": T.Compose([T.PILToTensor(), T.GaussianBlur(5, (1.1, 1.1))]),
    "v2 GaussianBlur of floats": v2.Compose([T.ToTensor(), v2.GaussianBlur(5, (1.1, 1.1))]),
    "v1 RandomRotation": T.Compose([T.ToTensor(), T.RandomRotation((33, 33))]),
    "v2 RandomPerspective": v2.Compose([v2.PILToTensor(), v2.RandomPerspective(p=1)]),
    "v1 ElasticTransform": T.Compose([T.ElasticTransform(), T.ToTensor()]),
    "v1 LinearTransformation": T.Compose(
        [T.Resize((8, 8)), T.ToTensor(), T.LinearTransformation(torch.rand(192, 192), torch.rand(192))]
    ),
    "v2 ColorJitter": v2.Compose([T.ToTensor(), v2.ColorJitter(0.3, 0.3, 0.3, 0.1)]),
}


@pytest.mark.parametrize("transform", AUTOCAST.values(), ids=AUTOCAST)
def test_transforms_where_autocast_is_on(transform: Transform) -> None:
    """As in a training loop over a loader without workers."""

    def transformed() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            result = transform(Image.open(BytesIO(SMALL)))
        return result + 0

    helpers.assert_equal_runs(transformed)


def test_autocast_is_a_fallback_that_is_counted() -> None:
    with accel.image_backend("cpu"), torch.autocast("cpu", torch.bfloat16):
        F1.gaussian_blur(Image.open(BytesIO(SMALL)), [3, 3])
    assert any("autocast" in reason for reason in accel.stats()["fallbacks"])

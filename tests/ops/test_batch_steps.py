"""Steps on whole batches (MixUp, CutMix, others in a collate function), and kernels on many images at once."""

import copy
import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from shutil import which
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision import transforms as v1
from torchvision.transforms import v2

import accel
from accel.ops import OPS, tensor_op
from accel.ops.row import KernelOp
from accel.ops.tensors import thawed
from accel.processes import packing
from tests.support import fake_accelerator
from tests.support.helpers import assert_equal_runs, assert_same, is_lazy, jpeg, run, undecodable

SCALED = v2.ToDtype(torch.float32, scale=True)
NORMALIZE = v2.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
SIMPLE: list[Any] = [v2.ToImage(), v2.RandomResizedCrop(30), SCALED, NORMALIZE]
JITTER: list[Any] = [*SIMPLE[:2], v2.RandomApply([v2.ColorJitter(0.4, 0.4)]), SCALED, NORMALIZE]
KERNELS: dict[str, list[Any]] = {
    "jitter": JITTER,
    "augmix": [v1.RandomCrop(30), v1.AugMix(), v1.ToTensor(), NORMALIZE],
    "augmix-flip": [v1.RandomCrop(30), v1.AugMix(), v1.RandomHorizontalFlip(), v1.ToTensor()],
    "policy": [v2.ToImage(), v2.Resize((30, 30)), v2.RandAugment(), SCALED, v2.GaussianNoise(), NORMALIZE],
    "sizes": [v2.ToImage(), v2.RandomRotation(30, expand=True), v2.Resize((30, 30)), SCALED],
    "erased": [*SIMPLE[:3], v2.RandomErasing(0.7, value="random"), v2.CenterCrop(25)],
    "linear": [v1.Resize((4, 4)), v1.ToTensor(), v1.LinearTransformation(torch.eye(48) * 2, torch.ones(48))],
}


class Pictures(Dataset[Any]):
    def __init__(self, steps: list[Any]) -> None:
        self.pipeline = v2.Compose(steps)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.pipeline(Image.open(io.BytesIO(jpeg(45 + index % 2, 41, seed=index % 4)))), index % 3


class Mixing:
    """A collate function that has a transform of batches."""

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform

    def __call__(self, samples: list[Any]) -> Any:
        return self.transform(*default_collate(samples))


ON_BATCHES: dict[str, Callable[..., Any]] = {
    "mixup": v2.MixUp(num_classes=3),
    "cutmix": v2.CutMix(num_classes=3),
    "either": v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)]),
    "jitter": v2.Compose([v2.ColorJitter(0.3, 0.3, 0.3), v2.MixUp(num_classes=3)]),
    "crop-after": v2.Compose([v2.CutMix(num_classes=3), v2.RandomCrop(20), v2.RandomInvert()]),
}


def batches(steps: list[Any], collate: Any = None, workers: int = 0, then: Callable[..., Any] | None = None) -> Any:
    loader = DataLoader(Pictures(steps), 4, num_workers=workers, collate_fn=collate)
    return [((then or torch.Tensor.to)(images, "cpu"), labels) for images, labels in loader]


BACKENDS = [pytest.param("cpu", {}, id="cpu"), pytest.param("fake", {"device": "cpu"}, id="another")]
if which("g++"):
    BACKENDS.append(pytest.param("cuda", {"device": "cpu"}, id="cuda-on-host"))


def in_workers(names: Iterable[str], always: str) -> Iterator[Any]:
    """Each name with workers; the sweep has those other than one."""
    for name in names:
        yield pytest.param(name, 2, marks=[] if name == always else pytest.mark.sweep)


@pytest.fixture(autouse=True)
def another(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with fake_accelerator.installed(monkeypatch):
        yield


@pytest.mark.parametrize(("name", "workers"), [*((name, 0) for name in ON_BATCHES), *in_workers(ON_BATCHES, "mixup")])
@pytest.mark.parametrize(("backend", "options"), BACKENDS)
def test_transforms_in_a_collate_function(name: str, backend: str, options: dict[str, Any], workers: int) -> None:
    collate = Mixing(ON_BATCHES[name])
    expected, states = run("torchvision", lambda: batches(SIMPLE, collate, workers))
    before = accel.stats()
    found, states_after = run(backend, lambda: batches(SIMPLE, collate, workers), **options)
    assert_same(found, expected)
    assert states_after == states
    assert accel.stats()["computed early"] == before["computed early"]


@pytest.mark.parametrize(("name", "workers"), [*((name, 0) for name in KERNELS), *in_workers(KERNELS, "policy")])
@pytest.mark.parametrize(("backend", "options"), BACKENDS)
def test_kernels(name: str, backend: str, options: dict[str, Any], workers: int) -> None:
    expected, _ = run("torchvision", lambda: batches(KERNELS[name], workers=workers))
    before = accel.stats()
    found, _ = run(backend, lambda: batches(KERNELS[name], workers=workers), **options)
    assert_same(found, expected)
    after = accel.stats()
    assert after["computed early"] == before["computed early"]
    assert after["finished by torchvision"] > before["finished by torchvision"]


def lazy_batch(transform: Callable[..., Any], steps: list[Any] = SIMPLE) -> Any:
    images, _ = Mixing(transform)([Pictures(steps)[index] for index in range(4)])
    assert is_lazy(images)
    return images


@pytest.mark.parametrize(
    "then",
    [
        lambda images: images.half(),
        lambda images: images.to("cpu", torch.float64, memory_format=torch.channels_last),
        lambda images: images.contiguous(memory_format=torch.channels_last).clone(),
        lambda images: v2.functional.normalize(images, [0.1], [0.3], inplace=True),
        lambda images: torch.stack([images, images]),
        lambda images: copy.deepcopy(images),
        lambda images: accel.submit(images).result() if isinstance(images, accel.LazyTensor) else images,
    ],
)
def test_what_comes_after(then: Callable[..., Any]) -> None:
    def mixed() -> Any:
        images, _ = Mixing(v2.MixUp(num_classes=3))([Pictures(SIMPLE)[index] for index in range(4)])
        made = then(images)
        made.sum()
        return made

    assert_equal_runs(mixed)


def test_mixed_levels_are_refused_alike() -> None:
    """A float weight does not go into uint8."""

    def mixed() -> Any:
        with pytest.raises(RuntimeError) as raised:
            Mixing(v2.MixUp(num_classes=3))([Pictures([v2.ToImage(), v2.Resize((9, 9))])[n] for n in range(4)])
        return str(raised.value)

    assert_equal_runs(mixed)


def test_a_mixed_batch_is_submitted_with_what_it_is_made_of() -> None:
    accel.set_image_backend("fake", device="cpu", run=-1)
    images = lazy_batch(v2.MixUp(num_classes=3))
    runs = len(fake_accelerator.Fake.runs)
    images.pin_memory()
    images.to("cpu")
    assert len(fake_accelerator.Fake.runs) == runs + 1


@pytest.mark.parametrize(
    "name", [name for name, op in OPS.items() if isinstance(op, KernelOp) and op.elementwise and op.samples]
)
def test_elementwise_kernels_make_the_same_of_a_batch(name: str) -> None:
    """Or images on a device could not go through them together."""
    op = tensor_op(name)
    images = torch.rand(5, 3, 64, 48, generator=torch.Generator().manual_seed(0))
    for batch in (images, (images * 255).to(torch.uint8), images.contiguous(memory_format=torch.channels_last)):
        for params in op.samples:
            alone = torch.stack([op.apply(image, *params) for image in batch])
            assert torch.equal(op.apply(batch, *map(thawed, params)), alone)


def test_images_that_agree_share_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device: what every image has in the end is one call for all of them, whatever came before."""
    calls: list[int] = []
    row = OPS["v2.rgb_to_grayscale"]

    def counted(values: torch.Tensor, channels: int) -> torch.Tensor:
        calls.append(values.ndim)
        return v2.functional.rgb_to_grayscale(values, channels)

    monkeypatch.setitem(OPS, row.name, type(row)(**{**vars(row), "apply": counted}))
    steps = [v2.ToImage(), v2.Resize((30, 30)), v2.RandomApply([v2.ColorJitter(0.4, 0.4)]), v2.Grayscale(3), SCALED]
    accel.set_image_backend("fake", device="cpu", run=-2)
    torch.manual_seed(1)
    images = default_collate([Pictures(steps)[index] for index in range(4)])[0]
    images.to("cpu")
    assert calls == [4]


def test_what_crosses_to_another_process() -> None:
    """One tensor, whatever was drawn: each would take a file descriptor."""
    steps = [v2.ToImage(), v2.Resize((30, 30)), v2.AugMix()]
    steps += [SCALED, v2.GaussianNoise(), v2.RandomErasing(1.0), NORMALIZE]
    with accel.image_backend("cpu"):
        images = default_collate([Pictures(steps)[index] for index in range(4)])[0]
        packed = packing.pack(images.lazy.recipes)
        assert len(packed.sizes) >= 8 + 4  # with the sources
        assert b"_rebuild_tensor" not in pickle.dumps(packed[1:])
        copied = accel.LazyTensor.of(packing.unpack(packed), (4,), (3, 30, 30), torch.float32)
        assert torch.equal(copied.clone() + 0, images.clone() + 0)


def test_a_view_is_of_the_same_memory() -> None:
    """AugMix looks at an image as a batch of one; whoever else does may write into it."""
    with accel.image_backend("cpu"):
        image = v1.ToTensor()(Image.open(io.BytesIO(jpeg(45, 41))))
        image.view(1, 3, 41, 45).zero_()
        assert not image.any()


def test_explained() -> None:
    with accel.image_backend("cpu"):
        text = accel.explain(
            lazy_batch(v2.MixUp(num_classes=3), [v2.ToImage(), v2.Resize((9, 9)), v2.Grayscale(3), SCALED])
        )
        assert "then torchvision's own kernels, on the values, where they are: v2.rgb_to_grayscale -> to_dtype" in text
        assert "then on the whole batch: mixup" in text
        image = v1.AugMix()(Image.open(io.BytesIO(jpeg(45, 41))))
        text = accel.explain(image)
        assert "lazy itself: pil_to_tensor() -> weighted(" in text


def test_orders_of_memory_after_a_step_on_the_batch_are_known() -> None:
    def orders() -> list[Any]:
        torch.manual_seed(3)
        mixed, _ = Mixing(v2.MixUp(num_classes=3))([Pictures(SIMPLE)[index] for index in range(4)])
        last = mixed.contiguous(memory_format=torch.channels_last)
        return [each.stride() for each in (mixed, last, last.clone(), last.half(), last.contiguous())]

    expected = orders()
    with accel.image_backend("cpu"):
        assert orders() == expected


def test_one_broken_image_among_kernels(tmp_path: Any) -> None:
    """It is told by its place in the batch, and the others of a list are there."""
    files = [jpeg(45, 41), jpeg(46, 41), undecodable(45, 41), jpeg(45, 41)]
    pipeline = v2.Compose([v2.ToImage(), v2.Pad(1, fill=0.5), v2.CenterCrop((30, 30)), v2.Grayscale(3), SCALED])
    with accel.image_backend("cpu"):
        batch = torch.stack([pipeline(Image.open(io.BytesIO(file))) for file in files])
        with pytest.raises(accel.DecodeError, match=r"image 2 of a batch of 4"):
            batch.sum()
    with accel.image_backend("cpu", on_error="replace"):
        batch = torch.stack([pipeline(Image.open(io.BytesIO(file))) for file in files])
        assert batch[2].sum() == 0
        assert batch[3].sum() > 0

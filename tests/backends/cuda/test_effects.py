"""The cuda backend's effects: colour, filters, warps and erasing on its own kernels, few launches for any batch."""

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F2

import accel
from accel import testing
from accel.backends.cpu import CpuBackend
from accel.backends.cuda import backend, effects, host
from accel.backends.cuda.compile import KERNELS
from accel.backends.cuda.descriptors import MEASURED
from accel.backends.cuda.effects.arguments import ARGUMENTS
from accel.backends.cuda.execution import Execution
from accel.backends.shared import gaussian
from accel.ops import OPS, row
from accel.planning.plan import plan
from rig.batches import noise
from tests.support import inside
from tests.support.cuda import DEVICE, assert_equals_torchvision, needs_compiler, on_device, stacked
from tests.support.helpers import MEAN, STD, jpeg, pictures, seed_everything, undecodable
from tests.support.steps import STEPS
from tests.support.transforms import made

pytestmark = [needs_compiler, pytest.mark.usefixtures("poisoned")]


@pytest.fixture(autouse=True)
def nothing_lowered() -> None:
    """Descriptors that other tests left are not used."""
    effects.lowered_once.clear()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels run everything."""
    inside.no_host(monkeypatch)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The kernels of every schedule that ran, in order; those that decode left out."""
    found: list[list[str]] = []
    launch = Execution.launch

    def noted(self: Execution) -> None:
        names = [KERNELS[number] for number in self.work.launches[:, 0].tolist()]
        if behind := [name for name in names if not name.startswith("jpeg_")]:
            found.append(behind)
        launch(self)

    monkeypatch.setattr(Execution, "launch", noted)
    return found


def opened(count: int = 10) -> list[Image.Image]:
    return [Image.open(BytesIO(each.data)).convert("RGB") for each in pictures()[:count]]


def batch(transform: Callable[[Image.Image], Any], seed: int, size: int = 40) -> torch.Tensor:
    """Files of every kind, each cut and changed as it is drawn."""
    seed_everything(seed)
    cut = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip()])
    return stacked(opened(), lambda image: F.normalize(F.to_tensor(transform(cut(image))), MEAN, STD))


def test_every_effect_has_a_kernel() -> None:
    on_host = {"reduce", "jpeg", "elastic"}
    assert {name for name, op in OPS.items() if isinstance(op, row.EffectOp)} == ARGUMENTS.keys() | on_host


# -- policies -----------------------------------------------------------------------------------------------

POLICIES = {
    # most launches: weights, the first and the last pass, and one for each effect in a row
    "RandAugment": 5,
    "RandAugment-strong": 7,
    "AutoAugment": 5,
    "AutoAugment-CIFAR10": 5,
    "AutoAugment-SVHN": 5,
    "TrivialAugmentWide": 4,
    "ColorJitter": 6,
    "RandomPhotometricDistort": 7,
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", POLICIES)
def test_a_policys_batch_is_a_handful_of_launches(name: str, launches: list[list[str]]) -> None:
    transform, most = made(name, v2), POLICIES[name]
    for seed in range(5):
        assert_equals_torchvision(partial(batch, transform, seed))
    assert len(launches) == 5
    assert max(map(len, launches)) <= most, launches
    assert all("effects" in each for each in launches), "nothing was drawn"
    drawn = {tuple(each) for each in launches}
    assert all(each.count("pass3") <= 3 for each in drawn)


@pytest.mark.usefixtures("alone")
def test_more_images_are_no_more_launches(launches: list[list[str]]) -> None:
    policy = T.RandAugment()
    images = opened(8)

    def many(count: int) -> torch.Tensor:
        seed_everything(0)
        return stacked((images * 8)[:count], lambda image: F.to_tensor(policy(F.resize(image, [32, 32]))))

    assert_equals_torchvision(lambda: many(64))
    assert_equals_torchvision(lambda: many(8))
    assert len(launches[0]) == len(launches[1]) == 5


@pytest.mark.usefixtures("alone")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(sorted(set(STEPS) - {"tensor"})), st.floats(0, 1, exclude_max=True)), max_size=6
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_mixture(chains: list[list[tuple[str, float]]]) -> None:
    """Every image of a batch has steps of its own."""
    files = pictures()

    def result() -> torch.Tensor:
        made = []
        for number, steps in enumerate(chains):
            image = files[number].open()
            for name, x in steps:
                image = STEPS[name](image, x)
            made.append(F.to_tensor(F.resize(image.convert("RGB"), [20, 24])))
        return torch.stack(made)

    assert_equals_torchvision(result)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(1, 1), (1, 90), (90, 1), (2, 2), (33, 65)], ids=str)
def test_small_and_narrow_images(size: tuple[int, int], mode: str) -> None:
    image = noise(*size, mode)
    for name, step in STEPS.items():
        if name not in ("reflect", "tensor", "blur"):
            for x in (0.1, 0.9):
                assert_equals_torchvision(lambda step=step, x=x: F.to_tensor(step(image, x)))


def test_blurs_of_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernels alone, if it is known in which order torch adds up here, which depends on the processor."""
    for number, (size, kernel) in enumerate([((40, 50), (3, 23)), ((97, 131), (23, 5)), ((70, 140), (139, 69))]):
        for functional in (F, F2):
            image = noise(*size, "RGB" if number % 2 else "L")
            blurred = partial(functional.gaussian_blur, image, list(kernel), [2.3, 4.1])
            params, shape = (*kernel, 2.3, 4.1, 1 if functional is F else 2), (*size, len(image.getbands()))
            with monkeypatch.context() as patched:
                if gaussian.order_of(params, shape) is not None:
                    inside.no_host(patched)
                assert_equals_torchvision(lambda blurred=blurred: torch.stack([F.to_tensor(blurred())]))


@pytest.mark.usefixtures("alone")
def test_statistics_of_statistics(launches: list[list[str]]) -> None:
    """Tables that are made of pixels seen through tables; a resize and a fill see what they have to."""

    def transform(image: Image.Image) -> torch.Tensor:
        image = F.autocontrast(F.posterize(F.equalize(F.adjust_contrast(F.invert(image), 0.6)), 3))
        image = F.adjust_contrast(F.pad(image, [3], fill=9), 1.7)
        return F.to_tensor(F.solarize(F.equalize(F.resize(F.equalize(image), [31, 40])), 130))

    assert_equals_torchvision(lambda: stacked([noise(50, 60 + n, seed=n) for n in range(3)], transform))
    assert launches[0].count("pass3") == 3


def test_a_large_image_is_counted_by_many_blocks() -> None:
    image = noise(300, 400)
    assert 10 * MEASURED < 300 * 400
    for step in (F.autocontrast, F.equalize, lambda image: F.adjust_contrast(image, 0.3)):
        assert_equals_torchvision(lambda step=step: step(image))
        assert_equals_torchvision(lambda step=step: step(Image.fromarray(np.asarray(image) // 3 + 60)))


def test_levels_divided_in_float_are_those_divided_in_double() -> None:
    """Which spares the kernel of hue two divisions in double."""
    levels = np.arange(256)
    turns = levels * 6.0 / 255.0
    sectors = levels * 6 // 255
    assert np.array_equal(sectors, turns.astype(int))
    rest = (levels * 6 - 255 * sectors).astype(np.float32) / np.float32(255)
    assert np.array_equal(rest, (turns - sectors).astype(np.float32))
    assert np.array_equal(levels.astype(np.float32) / np.float32(255), (levels / 255.0).astype(np.float32))


def test_hue_of_many_colours() -> None:
    steps = np.arange(0, 256, 5, dtype=np.uint8)
    colours = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), -1).reshape(52, -1, 3)
    for factor in (-0.5, -0.13, 0.3):
        assert_equals_torchvision(lambda factor=factor: F.adjust_hue(Image.fromarray(colours), factor))


# -- erasing ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("value", [7, "random"])
def test_erasing(value: Any, dtype: torch.dtype, interleaved: bool, launches: list[list[str]]) -> None:
    def result() -> torch.Tensor:
        seed_everything(2)
        erase = T.RandomErasing(0.7, value=value)
        made = stacked(
            opened(), lambda image: erase(erase(F.normalize(F.to_tensor(F.resize(image, [30, 37])), MEAN, STD)))
        )
        made = made.to(dtype)
        return made.contiguous(memory_format=torch.channels_last) if interleaved else made

    assert_equals_torchvision(result)
    assert launches == [["coefficients", "pass3", "patch", "patch"]]


@pytest.mark.usefixtures("alone")
def test_nothing_is_erased(launches: list[list[str]]) -> None:
    for height, width in ((0, 3), (3, 0)):
        assert_equals_torchvision(
            lambda height=height, width=width: torch.stack(
                [F.erase(F.to_tensor(noise(20, 30)), 2, 3, height, width, torch.ones(3, 1, 1))]
            )
        )
    assert launches == [["pass3"]] * 2


def test_erased_pixels_of_images() -> None:
    values = torch.arange(3 * 5 * 7, dtype=torch.uint8).view(3, 5, 7)
    noisy = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0)) * 100
    for value in (values, values[:, :1, :1], values[:1, :, :1], noisy):
        assert_equals_torchvision(lambda value=value: F2.erase(noise(40, 50), 3, 4, 5, 7, value))


# -- what is left to the host -------------------------------------------------------------------------------


def test_one_image_for_the_host_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = inside.runs_of_cuda(monkeypatch)
    before = dict(accel.stats()["fallbacks"])

    def result() -> torch.Tensor:
        return torch.stack(
            [F.to_tensor(F2.jpeg(image, 40) if n == 3 else F.equalize(image)) for n, image in enumerate(cut())]
        )

    def cut() -> list[Image.Image]:
        return [F.resize(image, [30, 30]) for image in opened(6)]

    assert_equals_torchvision(result)
    assert ran == [5]
    reason = "jpeg has no kernel for the device; the host ran it"
    assert accel.stats()["fallbacks"][reason] == before.get(reason, 0) + 1


def test_the_first_broken_file_speaks() -> None:
    """Whoever runs it."""
    for host_ones in ((1,), (4,), (1, 4), ()):
        streams = [undecodable(seed=n) if n in (1, 4) else jpeg(64, 48, seed=n) for n in range(6)]

        def result(streams: Sequence[bytes] = streams, host_ones: tuple[int, ...] = host_ones) -> torch.Tensor:
            images = [Image.open(BytesIO(each)) for each in streams]
            made = [F2.jpeg(image, 40) if n in host_ones else F.equalize(image) for n, image in enumerate(images)]
            return torch.stack([F.to_tensor(image) for image in made])

        with pytest.raises(accel.DecodeError, match=r"\(image 1 of a batch of 6\)"):
            on_device(result)
        found = on_device(result, on_error="replace")
        assert found[1].max() < 2 / 255, "black, or what JPEG makes of it"
        assert found[0].max() > 0.5


def test_should_pillow_do_it_otherwise_the_host_does(monkeypatch: pytest.MonkeyPatch) -> None:
    agrees = CpuBackend.agrees
    monkeypatch.setattr(CpuBackend, "agrees", lambda self, op: op != "equalize" and agrees(self, op))
    ran = inside.effects_on_the_host(monkeypatch)
    assert_equals_torchvision(
        lambda: stacked(opened(2), lambda image: F.to_tensor(F.equalize(F.resize(image, [9, 9]))))
    )
    assert "equalize" in ran


# -- chunks, errors, memory ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("memory", [1, 500_000])
def test_chunks_make_no_difference(memory: int, launches: list[list[str]]) -> None:
    policy = T.Compose([T.RandAugment(), T.RandomRotation(20)])
    assert_equals_torchvision(partial(batch, policy, 5), memory=memory)
    assert len(launches) == len(pictures()) if memory == 1 else 1 < len(launches) < len(pictures())


def test_launched_again_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that blocks count in is zero again when the last one is done."""
    launch = Execution.launch

    def again(self: Execution) -> None:
        launch(self)
        for _ in range(2):
            host.HostDevice().launch_all(self.work.launches)

    monkeypatch.setattr(Execution, "launch", again)
    assert_equals_torchvision(partial(batch, T.Compose([T.RandomEqualize(1), T.ColorJitter(0, 0.5)]), 0))


@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() - {"convert"}))  # a grey file is decoded to three channels
def test_a_wrong_effect_would_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conformance suite fails where the kernel does something else."""
    tell, params = ARGUMENTS[name], OPS[name].samples[0]
    case = testing.Case(name, params, (64, 48), "RGB")
    testing.check(case, "cuda", device=DEVICE)  # a kernel that is wrong at its first use is left to Pillow
    effects.lowered_once.clear()
    others = {"TRANSPOSED": "COPIED", "CONTRAST": "EQUALIZED", "EQUALIZED": "AUTOCONTRAST", "AUTOCONTRAST": "EQUALIZED"}
    monkeypatch.setitem(
        ARGUMENTS,
        name,
        lambda params, shape: (right := tell(params, shape))._replace(op=others.get(right.op, "TRANSPOSED")),
    )
    with pytest.raises(AssertionError, match=r"off by|differ"):
        testing.check(case, "cuda", device=DEVICE)


def test_effects_that_hold_tensors_are_not_kept() -> None:
    image = noise(40, 50)
    on_device(lambda: F.equalize(F2.erase(image, 1, 2, 3, 4, torch.zeros(1, 1, 1))))
    assert [kept.op for kept, _ in effects.lowered_once._known.values()] == ["equalize"]


# -- how much memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["RandAugment-strong", "ColorJitter", "RandomPhotometricDistort"])
def test_the_estimate_covers_what_is_taken(name: str) -> None:
    from accel.backends.cuda.lowering import device_bytes, schedule_of

    with accel.image_backend("cuda", device=DEVICE):
        lazy: Any = batch(made(name, v2), 1)
    wanted = plan(lazy.lazy.recipes)
    schedule = schedule_of(wanted, np.zeros(len(wanted.decodes), np.uint64))
    taken, estimate = schedule.upload.size + schedule.scratch.size, sum(map(device_bytes, wanted.decodes))
    tables = 64 * (len(schedule.sent) + 8 * len(wanted.decodes)) + 4096 * len(wanted.decodes)
    assert taken <= estimate + tables
    assert backend.device_bytes is device_bytes

"""Every op of the table by DALI's operators (``exact=False``): how far it may be from torchvision, or who runs it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel import testing
from accel.backend import backend_of
from accel.ops import OPS
from accel.processes.switch import current
from accel.testing import Case, Within
from tests.support.helpers import jpeg, optional
from tests.support.transforms import made

optional("nvidia.dali")

# On the samples of the table; those that are not listed are equal.
APART = {
    "resize": Within(20, 4),  # other weights, which show most where an axis shrinks to a few pixels
    "resize_nearest": Within(255, 0.8),  # two pixels equally near
    "nearest_exact": Within(255, 0.5),  # the same
    "adjust_gamma": Within(1, 0.2),
    "autocontrast": Within(1, 0.1),
    "equalize": Within(6, 1.5),
    "adjust_saturation": Within(1, 0.01),
    "adjust_sharpness": Within(1, 0.01),
    "gaussian_blur": Within(1, 0.01),
    "affine": Within(130, 1),  # DALI blends with the fill at the border, Pillow cuts
}
CASES = [
    case
    for case in testing.cases()
    if not (case.op == "equalize" and case.size == (7, 5))  # Pillow's steps are large where there are few pixels
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_op(case: Case) -> None:
    testing.check(case, "dali", APART.get(case.op, Within(0, 0)), device="cpu", exact=False, threads=1)


def left(lazy: Any) -> bool:
    """Whether something of it is left to another backend."""
    return any("left to" in line for line in accel.explain(lazy).splitlines())


def test_dali_runs_what_it_has_operators_for() -> None:
    """The cases above would pass if all was left to the cpu backend."""
    found: Counter[tuple[str, bool]] = Counter()
    with accel.image_backend("dali", device="cpu", exact=False):
        for case in CASES:
            if case.size == (64, 48) and case.mode == "RGB":
                lazy = testing.run_op(OPS[case.op], case.params, Image.open(testing.io.BytesIO(picture())))
                found[case.op, left(lazy)] += 1
    by_dali = {op for op, others in found if not others}
    assert by_dali >= {
        *("convert", "crop", "hflip", "vflip", "pad", "resize_nearest", "resize", "nearest_exact"),
        *("adjust_brightness", "adjust_gamma", "invert", "posterize", "solarize"),
        *("adjust_contrast", "autocontrast", "equalize", "adjust_saturation", "to_grayscale", "permute_channels"),
        *("adjust_sharpness", "gaussian_blur", "jpeg", "transpose"),
        *("to_tensor", "pil_to_tensor", "convert_image_dtype", "to_dtype", "normalize", "to", "erase"),
    }
    only_others = {op for op, others in found if others} - by_dali
    assert only_others == {
        *("adjust_hue", "perspective", "elastic", "point", "erase_image", "affine", "reduce", "resize_box"),
        *("box_blur", "pillow_gaussian_blur"),
    }
    assert found["resize", False] == 14  # three filters to four sizes, and two that have nothing to do at one size
    assert found["resize", True] == 6


def picture() -> bytes:
    return testing.picture((64, 48), "RGB")


def photo(width: int = 200, height: int = 150, seed: int = 3) -> Image.Image:
    return Image.open(testing.io.BytesIO(jpeg(width, height, seed=seed)))


def apart(transform: Callable[[], Any]) -> npt.NDArray[np.float64]:
    """By how much DALI's result, of which nothing is left to others, is from torchvision's; in levels or as values."""
    with accel.image_backend("torchvision"):
        wanted = np.asarray(transform(), np.float64)
    with accel.image_backend("dali", device="cpu", exact=False):
        lazy = transform()
        assert not left(lazy)
        return np.abs(np.asarray(testing.computed(lazy), np.float64) - wanted)


@pytest.mark.parametrize("resample", [0, 2])
def test_warps_onto_black(resample: int) -> None:
    """The default fill of torchvision's ``rotate`` and ``affine``."""
    mode = {0: F.InterpolationMode.NEAREST, 2: F.InterpolationMode.BILINEAR}[resample]
    levels = apart(lambda: F.rotate(photo(), 17, mode))
    assert (levels > 2).mean() < 0.02
    assert levels.mean() < 1


@pytest.mark.parametrize("size", [(50, 60), (170, 30), (300, 400)], ids=str)
@pytest.mark.parametrize("flips", [(), ("h",), ("v",), ("h", "v")], ids=str)
def test_windows_and_flips_of_a_resize(size: tuple[int, int], flips: tuple[str, ...]) -> None:
    """A region of DALI's resize, seen from either side, is that part of the whole: the pixels around it take part."""

    def transform() -> Any:
        image: Any = F.hflip(photo()) if "h" in flips else photo()
        image = F.center_crop(F.resize(F.crop(image, 11, 7, 120, 130), list(size)), [30, 26])
        image = F.vflip(image) if "v" in flips else image
        return F.pad(image, [2, 1], fill=9)

    levels = apart(transform)
    assert levels.max() <= 8
    assert levels.mean() < 0.8


@pytest.mark.parametrize("antialias", [True, False])
def test_torchs_filters(antialias: bool) -> None:
    """With and without antialiasing, behind a crop that is flipped by an operator of its own."""

    def transform() -> Any:
        image = v2.functional.to_image(F.autocontrast(F.crop(F.hflip(photo()), 11, 7, 120, 130)))
        return v2.functional.resize(image, [30, 31], antialias=antialias)

    assert apart(transform).mean() < 1.5


def test_what_dali_does_not_do_is_a_following_stage() -> None:
    """DALI's contrast, then the cpu backend's hue, resize and values: and it is said so."""

    def transform(image: Any) -> Any:
        image = F.resize(F.adjust_hue(F.adjust_contrast(image, 0.7), 0.2), [40, 50])
        return F.normalize(F.to_tensor(image), [0.5] * 3, [0.25] * 3)

    before = accel.stats()["fallbacks"]
    with accel.image_backend("torchvision"):
        wanted = torch.stack([transform(photo(seed=seed)) for seed in range(3)])
    with accel.image_backend("dali", device="cpu", exact=False):
        lazy = torch.stack([transform(photo(seed=seed)) for seed in range(3)])
        told = accel.explain(lazy)
        assert "runs: DALI on cpu: decoders.image_slice, contrast" in told
        assert "left to the cpu or cuda backend, of 3 of 3 images: DALI turns the hue" in told
        found = testing.computed(lazy)
    assert ((found - wanted).abs() * 0.25 * 255).mean() < 1
    reason = next(reason for reason in accel.stats()["fallbacks"] if "hue" in reason)
    assert accel.stats()["fallbacks"][reason] == before.get(reason, 0) + 1


def test_images_of_one_batch_may_differ_in_what_dali_does() -> None:
    """Three structures and one image of another backend, each at its place."""

    def transforms(number: int, image: Any) -> Any:
        image = F.resize(image, [32, 40])
        image = (F.vflip, F.invert, F.autocontrast, lambda each: F.adjust_hue(each, 0.1))[number % 4](image)
        return F.to_tensor(image)

    with accel.image_backend("torchvision"):
        wanted = torch.stack([transforms(n, photo(100 + n, 90, n)) for n in range(9)])
    with accel.image_backend("dali", device="cpu", exact=False):
        found = testing.computed(torch.stack([transforms(n, photo(100 + n, 90, n)) for n in range(9)]))
    assert (found - wanted).abs().mean(dim=(1, 2, 3)).max() * 255 < 3
    assert (wanted - wanted.roll(1, 0)).abs().mean(dim=(1, 2, 3)).min() * 255 > 8  # each is another picture


@pytest.mark.parametrize("name", ["RandAugment", "TrivialAugmentWide", "ColorJitter"])
def test_policies(name: str) -> None:
    """They draw other ops for every image; what comes out is near torchvision's."""
    transform = T.Compose([T.RandomResizedCrop(48), made(name, T), T.ToTensor(), T.RandomErasing(1, value=0.5)])

    def run() -> torch.Tensor:
        torch.manual_seed(5)
        return torch.stack([transform(photo(seed=seed).convert("RGB")) for seed in range(12)])

    with accel.image_backend("torchvision"):
        wanted = run()
    with accel.image_backend("dali", device="cpu", exact=False):
        found = testing.computed(run())
        kept: Any = backend_of(current())
    levels = ((found - wanted).abs() * 255).mean(dim=(1, 2, 3))
    assert levels.max() < 12
    assert levels.median() < 1.5
    assert sum(map(len, kept._on(torch.device("cpu"))._idle.values())) <= 16


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_that_nobody_encoded(mode: str) -> None:
    """PNG, CMYK and arrays come as pixels."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)).convert(mode)

    def transform() -> Any:
        return F.to_tensor(F.hflip(F.resize(image, [20, 30])))

    levels = apart(transform) * 255  # of noise, which shows every weight
    assert levels.max() <= 20
    assert levels.mean() < 1
    with accel.image_backend("dali", device="cpu", exact=False):
        assert "runs: DALI on cpu: resize, crop_mirror_normalize" in accel.explain(transform())

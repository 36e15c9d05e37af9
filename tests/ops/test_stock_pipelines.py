"""Random pipelines of stock transforms: fused equals torchvision, and what is refused is refused alike."""

import io
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import functional as F
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F2

import accel
from tests.support.helpers import assert_equal_runs, is_lazy, jpeg, outcome
from tests.support.transforms import KINDS, OF_BOTH, OF_V2

pytestmark = pytest.mark.filterwarnings("ignore:.*(deprecated|passing through).*")

SEVERAL = {"FiveCrop", "TenCrop", "LinearTransformation"}
"""Transforms after which nothing follows, or one size of image alone."""


@st.composite
def pipelines(draw: Any) -> tuple[str, list[str]]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    names = set(OF_BOTH) | (set() if kind.startswith("v1") else set(OF_V2))
    return kind, draw(st.lists(st.sampled_from(sorted(names - SEVERAL)), min_size=1, max_size=5))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines(), st.integers(0, 1000), st.booleans())
@example(("v2-float", ["ConvertImageDtype", "AugMix"]), 105, False)  # of halves, whose strides show in the values
def test_random_pipelines(pipeline: tuple[str, list[str]], seed: int, grey: bool) -> None:
    kind, names = pipeline
    module, before, after = KINDS[kind]
    made = [{**OF_BOTH, **OF_V2}[name](module) for name in names]
    chain = module.Compose([*before, *made, *after])
    data = jpeg(45, 41, "L") if grey else jpeg(45, 41)

    def attempt() -> Any:
        made = outcome(lambda: chain(Image.open(io.BytesIO(data))))
        if isinstance(made, type):
            return made
        return isinstance(made, tv_tensors.Image), (torch.clone(made) + 0).contiguous()  # in torch's order: a view's

    assert_equal_runs(attempt, seed)


WRONG: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("brightness", lambda f, x: f.adjust_brightness(x, -0.1)),
    ("contrast", lambda f, x: f.adjust_contrast(x, -0.1)),
    ("contrast-text", lambda f, x: f.adjust_contrast(x, "a")),
    ("saturation", lambda f, x: f.adjust_saturation(x, -0.1)),
    ("sharpness", lambda f, x: f.adjust_sharpness(x, -0.1)),
    ("hue", lambda f, x: f.adjust_hue(x, 0.6)),
    ("gamma", lambda f, x: f.adjust_gamma(x, -1)),
    ("solarize", lambda f, x: f.solarize(x, 300)),
    ("grey", lambda f, x: f.rgb_to_grayscale(x, 2)),
    ("blur-size", lambda f, x: f.gaussian_blur(x, [4, 3], [1.0, 1.0])),
    ("blur-sigma", lambda f, x: f.gaussian_blur(x, [3, 3], [0.0, 1.0])),
    ("blur-reflect", lambda f, x: f.gaussian_blur(x, [201, 3], [1.0, 1.0])),
    ("rotate-fill", lambda f, x: f.rotate(x, 20, fill=[1.0, 2.0])),
    ("rotate-mode", lambda f, x: f.rotate(x, 20, interpolation=v2.InterpolationMode.BICUBIC)),
    ("affine-scale", lambda f, x: f.affine(x, 0.0, [0, 0], 0.0, [0.0])),
    ("affine-translate", lambda f, x: f.affine(x, 0.0, [0, 0, 0], 1.0, [0.0])),
    ("perspective", lambda f, x: f.perspective(x, [[0, 0]], [[1, 1]])),
    ("pad-mode", lambda f, x: f.pad(x, 3, padding_mode="mirror")),
    ("pad-three", lambda f, x: f.pad(x, [1, 2, 3])),
    ("pad-reflect", lambda f, x: f.pad(x, 90, padding_mode="reflect")),
    ("resize-mode", lambda f, x: f.resize(x, [9, 9], interpolation=v2.InterpolationMode.HAMMING)),
    ("resize-zero", lambda f, x: f.resize(x, [0, 9])),
    ("erase-value", lambda f, x: f.erase(x, 0, 0, 2, 2, torch.zeros(5, 2, 2))),
    ("elastic-shape", lambda f, x: f.elastic_transform(x, torch.zeros(1, 7, 9, 2))),
    ("normalize-length", lambda f, x: f.normalize(x, [0.1, 0.2], [0.1, 0.2])),
    ("normalize-zero", lambda f, x: f.normalize(x, [0.5] * 3, [1.0, 0.0, 1.0])),
    ("resize-most", lambda f, x: f.resize(x, [3], max_size=2)),
    ("crop-text", lambda f, x: f.crop(x, "a", 0, 1, 1)),
    ("brightness-missing", lambda f, x: f.adjust_brightness(x)),
    ("saturation-text", lambda f, x: f.adjust_saturation(x, "much")),
    ("blur-one", lambda f, x: f.gaussian_blur(x, 4)),
]
WRONG_IN_V2: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("posterize", lambda f, x: f.posterize(x, 9)),
    ("permute", lambda f, x: f.permute_channels(x, [0, 1])),
    ("permute-range", lambda f, x: f.permute_channels(x, [0, 1, 7])),
    ("noise", lambda f, x: f.gaussian_noise(x, 0.0, -1.0)),
    ("affine-angle", lambda f, x: f.affine(x, "a", [0, 0], 1.0, [0.0])),
    ("pad-fill", lambda f, x: f.pad(x, 3, fill=[1, 2])),
]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("v2-pure", "v2-pillow")])
def test_wrong_arguments_raise_what_torchvision_raises(kind: str) -> None:
    module, before, _ = KINDS[kind]
    functional = F if kind.startswith("v1") else F2
    calls = dict(WRONG if functional is F else WRONG + WRONG_IN_V2)

    def attempt(call: Callable[[Any, Any], Any]) -> Any:
        image = module.Compose(before)(Image.open(io.BytesIO(jpeg(45, 41))))
        image = functional.adjust_saturation(image, 0.5)
        try:
            result = call(functional, image)
        except Exception as error:
            return type(error), re.sub(r"<class '[^']*Image'>", "<an image>", str(error))
        values = torch.clone(result if isinstance(result, torch.Tensor) else F.pil_to_tensor(result)) + 0
        return values.contiguous()  # torchvision takes it

    assert_equal_runs(lambda: {name: attempt(call) for name, call in calls.items()})


NOT_FINITE: list[tuple[str, Callable[[Any, Any, float], Any]]] = [
    ("brightness", lambda f, x, n: f.adjust_brightness(x, n)),
    ("contrast", lambda f, x, n: f.adjust_contrast(x, n)),
    ("saturation", lambda f, x, n: f.adjust_saturation(x, n)),
    ("sharpness", lambda f, x, n: f.adjust_sharpness(x, n)),
    ("gamma", lambda f, x, n: f.adjust_gamma(x, n)),
    ("solarize", lambda f, x, n: f.solarize(x, n)),
    ("blur", lambda f, x, n: f.gaussian_blur(x, [3, 3], [n, 1.0])),
    ("rotate", lambda f, x, n: f.rotate(x, n)),
    ("affine", lambda f, x, n: f.affine(x, 0.0, [0, 0], 1.0, [n, 0.0])),
    ("affine-fill", lambda f, x, n: f.affine(x, 9.0, [0, 0], 1.0, [0.0], fill=[n])),
    ("pad-fill", lambda f, x, n: f.pad(x, 2, fill=n)),
    ("elastic", lambda f, x, n: f.elastic_transform(x, torch.full((1, 41, 45, 2), n))),
]


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("v2-pure", "v2-pillow")])
def test_numbers_that_are_none_are_refused(kind: str, value: float) -> None:
    module, before, _ = KINDS[kind]
    functional = F if kind.startswith("v1") else F2
    with accel.image_backend("cpu"):
        for name, call in NOT_FINITE:
            image = module.Compose(before)(Image.open(io.BytesIO(jpeg(45, 41))))
            with pytest.raises((ValueError, OverflowError, RuntimeError)):
                call(functional, image, value)
            assert is_lazy(image), name
            values = image if isinstance(image, torch.Tensor) else F.pil_to_tensor(image)
            assert torch.isfinite(F.convert_image_dtype(torch.clone(values) + 0)).all(), name

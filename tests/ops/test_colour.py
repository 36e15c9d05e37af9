"""Colour ops, filters, warps and policies on lazy Pillow images: exact, with nothing computed early."""

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.backends.cpu import effects
from accel.ops import OPS
from accel.ops.row import EffectOp
from accel.planning.plan import plan
from accel.planning.stages import Effect
from tests.support import helpers, inside
from tests.support.steps import STEPS

COLOUR, GREY = helpers.jpeg(97, 70), helpers.jpeg(60, 83, "L")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.floats(0, 1, exclude_max=True)), max_size=7), st.booleans()
)
def test_any_sequence_of_steps(steps: list[tuple[str, float]], grey: bool) -> None:
    """Steps that are fused, composed and cut equal torchvision's, which are done one by one."""

    def transform(image: Any) -> Any:
        for name, x in steps:
            image = STEPS[name](image, x)
        return F.to_tensor(image)

    def result() -> torch.Tensor:
        return transform(Image.open(io.BytesIO(GREY if grey else COLOUR)).copy())  # type: ignore[no-any-return]

    helpers.assert_equal_runs(result, lazy=True)


def test_hue_of_every_colour() -> None:
    """All 2 ** 24 colours to HSV and back, both ways through Pillow's own tables."""
    assert effects.agrees("adjust_hue")
    red_green = np.stack(np.meshgrid(np.arange(256), np.arange(256), indexing="ij"), -1).astype(np.uint8)
    for blue in range(0, 256, 5):
        colours = np.concatenate([red_green, np.full((256, 256, 1), blue, np.uint8)], 2)
        image = Image.fromarray(colours)
        with accel.image_backend("torchvision"):
            expected = np.asarray(F.adjust_hue(image, 0.3))
        for factor in (0.3, 0.303):
            found, _ = effects.run(colours, Effect("adjust_hue", (factor,), (0, 0, 256, 256), 3))
            assert np.array_equal(found, expected) == (factor == 0.3)


def stages(*transforms: Callable[[Any], Any], data: bytes = COLOUR) -> list[str]:
    """The kinds of stage of a pipeline."""
    with accel.image_backend("cpu"):
        lazy = F.to_tensor(T.Compose(transforms)(Image.open(io.BytesIO(data))))
    (item,) = plan(lazy.lazy.recipes).decodes[0].items
    return [stage.kind if isinstance(stage, Effect) else "pass" for stage in item.stages]


def test_tables_cost_no_stage() -> None:
    tables = [T.RandomInvert(1), T.RandomPosterize(4, 1), T.RandomSolarize(99, 1), T.ColorJitter(0.5)]
    assert stages(*tables) == ["pass"]
    assert stages(T.RandomResizedCrop(40), *tables, T.RandomHorizontalFlip(1)) == ["pass"]
    assert stages(*tables, T.Resize(40)) == ["pass", "pass"]
    sixteen = [*tables, T.RandomPosterize(4, 1)]  # levels of which none is 9
    assert stages(*sixteen, T.Pad(4, 9)) == ["pass", "pass"], "the colour that comes in later is not looked up"
    assert stages(T.Pad(4, 9), *tables, T.CenterCrop(30)) == ["pass"]


def test_each_effect_is_one_stage() -> None:
    jitter = T.Compose([T.RandomResizedCrop(40), T.ColorJitter((0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.1, 0.1))])
    for seed in range(5):
        torch.manual_seed(seed)
        kinds = stages(jitter, T.RandomHorizontalFlip())
        assert sorted(kind for kind in kinds if kind != "pass") == ["mix", "mix", "statistic"]
        assert kinds.count("pass") <= 3
    assert stages(T.RandomAutocontrast(1), T.RandomEqualize(1)) == ["pass", "statistic", "statistic", "pass"]
    assert stages(T.RandomRotation((30, 30))) == ["pass", "warp", "pass"]
    assert stages(lambda image: F.affine(image, 0, [5, 3], 1.0, [0.0, 0.0])) == ["pass"], "a shift moves rows apart"
    assert stages(T.Grayscale(), lambda image: image.convert("RGB")) == ["pass", "mix", "mix", "pass"]


def test_a_statistic_is_of_the_whole_image() -> None:
    """A crop that comes later takes nothing from what contrast and autocontrast look at, but from what is mixed."""
    with accel.image_backend("cpu"):
        image = Image.open(io.BytesIO(COLOUR))
        cropped = [F.to_tensor(F.crop(op(image, 0.5), 5, 5, 8, 8)) for op in (F.adjust_contrast, F.adjust_saturation)]
    whole, part = (plan(lazy.lazy.recipes).decodes[0].box for lazy in cropped)  # type: ignore[attr-defined]
    assert whole == (0, 0, 70, 97)
    assert part == (5, 5, 8, 8)


def test_explain_shows_the_stages() -> None:
    with accel.image_backend("cpu"):
        image = F.rotate(F.posterize(F.adjust_contrast(Image.open(io.BytesIO(COLOUR)), 0.5), 3), 20)
    text = accel.explain(image)
    for part in ("statistic: adjust_contrast(contrast_factor=0.5)", "levels looked up", "warp: affine("):
        assert part in text, text


def test_a_map_that_is_not_finite_is_refused_at_once() -> None:
    with accel.image_backend("cpu"):
        image = Image.open(io.BytesIO(COLOUR))
        for value in (math.nan, math.inf, -math.inf):
            with pytest.raises(ValueError, match="finite"):
                image.transform((9, 9), Image.Transform.AFFINE, (1, 0, value, 0, 1, 0))
        assert helpers.is_lazy(image)


def test_pillow_runs_what_a_kernel_gets_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(pixels: Any, params: Any, out: Any) -> None:
        out[:] = pixels

    monkeypatch.setitem(effects.KERNELS, "adjust_saturation", wrong)
    with inside.anew(effects.agrees):
        assert not effects.agrees("adjust_saturation")
        helpers.assert_equal_runs(lambda: F.pil_to_tensor(F.adjust_saturation(Image.open(io.BytesIO(COLOUR)), 0.3)))
        assert any("adjust_saturation" in reason for reason in accel.stats()["fallbacks"])


def test_every_effect_has_a_kernel() -> None:
    from accel.backends.cpu import effects

    by_pillow = {"reduce", "erase_image"}
    named = {op.name for op in OPS.values() if isinstance(op, EffectOp)} - by_pillow
    assert named == set(effects.KERNELS) | set(effects.STATISTICS)


ERASING = {
    "constant": T.Compose([T.ToTensor(), T.RandomErasing(1.0, value=0.3)]),
    "random": T.Compose([T.ToTensor(), T.RandomErasing(1.0, value="random"), T.Normalize((0.4,) * 3, (0.2, 0.3, 0.4))]),
    "twice-inplace": T.Compose(
        [T.ToTensor(), T.RandomErasing(1.0), T.RandomErasing(1.0, value=(1, 2, 3), inplace=True)]
    ),
    "uint8": T.Compose([T.PILToTensor(), T.RandomErasing(1.0, value=7), T.ConvertImageDtype(torch.float32)]),
    "v2": v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.RandomErasing(1.0, value="random")]),
    "v2-flip": v2.Compose([v2.ToImage(), v2.RandomErasing(1.0), v2.RandomHorizontalFlip(1.0)]),
}


@pytest.mark.parametrize("name", ERASING)
def test_erasing(name: str) -> None:
    for seed in range(5):
        made = helpers.assert_equal_runs(lambda: ERASING[name](Image.open(io.BytesIO(COLOUR))), seed, lazy=True)
        assert made.shape == (3, 70, 97)


def test_an_erased_batch_is_one_plan() -> None:
    def batch() -> torch.Tensor:
        image = Image.open(io.BytesIO(COLOUR))
        return torch.stack([ERASING["random"](image), ERASING["constant"](image), F.to_tensor(image)])

    helpers.assert_equal_runs(batch, 3)

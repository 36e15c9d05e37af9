"""The order of steps: what a plan moves ahead gives the same as what was recorded, whatever that was."""

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

import accel
from accel.codec.header import Raw
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops import OPS, tensor_op
from accel.ops.row import IndexOp
from accel.planning import order
from accel.planning.torch_tail import tailed_plans
from accel.processes import packing, switch
from accel.recipes.recipe import Branch, Recipe, Source, Step
from tests.support import helpers

TENSOR: Step = ("pil_to_tensor", ())
FLOATS: Step = ("to_dtype", (torch.float32, True))
NORMALIZE: Step = ("normalize", ((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)))
BRIGHTER: Step = ("v2.adjust_brightness", (1.3,))
CONTRAST: Step = ("v2.adjust_contrast", (0.7,))
INVERT: Step = ("v2.invert", ())
ERASE: Step = ("erase", (2, 3, 5, 4, torch.tensor([[[7.0]], [[0.0]], [[1.0]]])))
HEIGHT, WIDTH = 13, 17

PIXELS: dict[str, Callable[..., torch.Tensor]] = {
    # what torchvision does on a tensor of any dtype
    "hflip": F.horizontal_flip,
    "vflip": F.vertical_flip,
    "crop": F.crop,
    "pad": lambda values, left, top, right, bottom, mode, fill: F.pad(
        values, [left, top, right, bottom], None if fill is None else list(fill), mode
    ),
    "nearest": lambda values, *size: F.resize(values, list(size), InterpolationMode.NEAREST),
    "permute_channels": lambda values, order: F.permute_channels(values, list(order)),
    "gaussian_blur": lambda values, *params: F.gaussian_blur(values, list(params[:2]), list(params[2:4])),
}


def on_pixels(rng: random.Random, height: int, width: int) -> Step:
    """Some step on pixels of an image of this size."""
    top, left = rng.randrange(height), rng.randrange(width)
    inside = "crop", (top, left, rng.randint(1, height - top), rng.randint(1, width - left))
    return rng.choice(
        [
            ("hflip", ()),
            ("vflip", ()),
            inside,
            ("crop", (-2, -1, height + 1, width + 4)),
            ("pad", (1, 0, 2, 1, "constant", (9, 200, 31))),
            ("pad", (1, 1, 1, 0, "edge", None)),
            ("nearest", (rng.randint(2, 20), rng.randint(2, 20))),
            ("permute_channels", ((2, 0, 1),)),
            ("gaussian_blur", (3, 3, 0.8, 0.8, 2)),
        ]
    )


def image() -> torch.Tensor:
    return torch.randint(0, 256, (3, HEIGHT, WIDTH), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def run(values: torch.Tensor, steps: tuple[Step, ...]) -> torch.Tensor:
    """Steps one after another, by torchvision."""
    for name, params in steps:
        values = (PIXELS.get(name) or tensor_op(name).apply)(values, *params)
    return values


def sequence(rng: random.Random) -> tuple[Step, ...]:
    """Some steps on a tensor; on pixels those that may lead the ones before them."""
    steps: tuple[Step, ...] = (TENSOR,)
    for _ in range(rng.randint(2, 7)):
        values = run(image(), steps)
        height, width = values.shape[1:]
        on_values = [BRIGHTER, INVERT, CONTRAST]
        on_values += [NORMALIZE] if values.is_floating_point() else [FLOATS, FLOATS]
        on_values += [ERASE] if height > 7 < width else []
        if rng.random() < 0.5:
            steps = (*steps, rng.choice(on_values))
        elif height > 3 < width:
            step = on_pixels(rng, height, width)
            steps = (*steps, step) if order.may_lead((step,), steps, (height, width)) else steps
    return steps


def run_in_order(values: torch.Tensor, steps: tuple[Step, ...]) -> torch.Tensor | None:
    """Steps in the order of a plan; None where there are steps on pixels left for torchvision."""
    pixels, on_values, kernels = order.parts(steps)
    left = any(name in PIXELS for name, _ in kernels)
    return None if left else run(run(run(values, pixels), on_values), kernels)


def unequal(count: int) -> list[tuple[Step, ...]]:
    """Those of random sequences of which the order of a plan makes anything else."""
    found = []
    for steps in (sequence(random.Random(seed)) for seed in range(count)):
        planned = run_in_order(image(), steps)
        if planned is None or not planned.equal(run(image(), steps)):
            found.append(steps)
    return found


def test_what_is_moved_ahead_gives_the_same() -> None:
    sequences = [sequence(random.Random(seed)) for seed in range(400)]
    moved = [steps for steps in sequences if sum(order.parts(steps), ())[1:] != steps[1:]]
    assert len(moved) > 100
    assert unequal(400) == []


def forget(monkeypatch: pytest.MonkeyPatch, name: str, *steps: Step) -> None:
    monkeypatch.setattr(order, name, getattr(order, name) - {name for name, _ in steps})


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "values that were put in": lambda patch: forget(patch, "_STAY", ERASE),
    "a function that torchvision runs": lambda patch: forget(patch, "_STAY", CONTRAST),
    "a colour that is brought in": lambda patch: patch.setattr(
        order, "shows", lambda step, size: isinstance(OPS[step[0]], IndexOp)
    ),
    "new levels": lambda patch: patch.setattr(order, "shows", lambda step, size: step[0] not in ("crop", "pad")),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_every_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one that is broken would be seen above."""
    BROKEN[rule](monkeypatch)
    assert unequal(400)


def test_what_may_lead_what() -> None:
    flip, inside, outside = ("hflip", ()), ("crop", (1, 2, 5, 5)), ("crop", (-1, 2, 5, 5))
    size, values = (HEIGHT, WIDTH), (TENSOR, FLOATS, NORMALIZE)
    assert order.may_lead((flip, inside), values, size)
    assert not order.may_lead((flip, outside), values, size)
    assert order.may_lead((outside, ("gaussian_blur", (3, 3, 0.8, 0.8, 2))), (TENSOR, flip, inside), size)
    assert not order.may_lead((flip,), (*values, ERASE), size)
    assert not order.may_lead((flip,), (*values, CONTRAST, INVERT), size)
    assert order.may_lead((flip,), (TENSOR, BRIGHTER), size)
    assert not order.may_lead((flip,), (TENSOR, FLOATS, BRIGHTER), size)


def test_parts() -> None:
    """A table is made of what is drawn for an image while it is uint8, and torchvision runs the rest from its first."""
    flip = "hflip", ()
    assert order.parts(()) == ((), (), ())
    assert order.parts((flip, TENSOR, BRIGHTER, flip, FLOATS)) == ((flip, flip), (TENSOR, BRIGHTER, FLOATS), ())
    assert order.parts((TENSOR, FLOATS, flip, BRIGHTER, NORMALIZE)) == (
        (flip,),
        (TENSOR, FLOATS),
        (BRIGHTER, NORMALIZE),
    )
    assert order.parts((TENSOR, FLOATS, INVERT, CONTRAST)) == ((), (TENSOR, FLOATS, INVERT), (CONTRAST,))
    for steps, kernels in (((TENSOR, BRIGHTER), False), ((TENSOR, BRIGHTER, FLOATS, BRIGHTER), True), ((), False)):
        assert order.has_kernels(steps) is kernels
    assert order.is_kernel(BRIGHTER[0], torch.float32)
    assert not order.is_kernel(BRIGHTER[0], torch.uint8)


CALLS: list[Callable[[Any, random.Random], Any]] = [
    lambda value, rng: F.horizontal_flip(value),
    lambda value, rng: F.crop(value, rng.randint(-2, 3), rng.randint(-2, 3), 12, 11),
    lambda value, rng: F.pad(value, [1, 2], fill=rng.choice([0, 1])),
    lambda value, rng: F.pad(value, 1, padding_mode="reflect"),
    lambda value, rng: F.resize(value, [14, rng.randint(9, 15)], rng.choice(list(InterpolationMode)[:3])),
    lambda value, rng: F.resized_crop(value, rng.randint(-1, 2), 0, 9, 9, [12, 12]),
    lambda value, rng: F.permute_channels(value, [1, 2, 0]),
    lambda value, rng: F.gaussian_blur(value, [3, 3], [0.7, 0.7]),
    lambda value, rng: F.to_dtype(value, rng.choice([torch.float32, torch.uint8, torch.float16]), scale=True),
    lambda value, rng: F.normalize(value, [0.4], [0.3]) if value.is_floating_point() else F.invert(value),
    lambda value, rng: F.adjust_brightness(value, rng.uniform(0.5, 1.5)),
    lambda value, rng: F.adjust_contrast(value, rng.uniform(0.5, 1.5)),
    lambda value, rng: F.erase(value, 1, 2, 3, 3, torch.tensor([[[0.5]], [[3.0]], [[0.0]]])),
]


def recorded(seed: int, images: int) -> Any:
    """Some calls, one after another, on a tensor or on a batch of them."""
    rng = random.Random(seed)
    pictures = [helpers.picture(16, 14, "RGB", number) for number in range(images)]
    tensors = [F.to_image(picture) for picture in pictures]
    value = tensors[0] if images == 1 else torch.stack(tensors)
    for call in rng.choices(CALLS, k=rng.randint(2, 6)):
        value = call(value, rng)
    return value


@pytest.mark.parametrize("images", [1, 2])
def test_any_sequence_of_calls(images: int) -> None:
    """Recorded in any order: on one image, where torchvision has a view of it in between, and on a batch."""
    lazy = 0
    for seed in range(150):
        with accel.image_backend("torchvision"):
            expected = helpers.outcome(lambda seed=seed: recorded(seed, images))
        with accel.image_backend("cpu"):
            found = helpers.outcome(lambda seed=seed: recorded(seed, images))
            lazy += isinstance(found, LazyTensorBase) and found.lazy.value is None
        if isinstance(expected, type):
            assert found is expected, seed
        else:
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), seed
            assert torch.equal(found, expected), seed
    assert lazy > 50


def test_a_resized_crop_that_leaves_the_image_lies_as_torchvisions() -> None:
    """Which pads by making a tensor of planes."""

    def resized() -> list[torch.Tensor]:
        image = F.to_image(helpers.picture(50, 40, "RGB", 0))
        return [F.resized_crop(image, -5, 0, *size, size=[16, 16]) for size in ((50, 50), (20, 20))]

    helpers.assert_equal_runs(resized)


def test_branches_share_their_base_on_either_side_of_a_process_border() -> None:
    """What is mixed of one image is made of values that are computed once."""
    pixels = Source(bytes(48), Raw(4, 4, "RGB"), "pixels", switch.current())
    base = TENSOR, FLOATS, ("hflip", ())
    branch = Branch((*base, ("gaussian_noise", (torch.ones(3, 4, 4), True)), ("weighted", (0.5, torch.float32))))
    recipes = (Recipe(pixels, (*base, ("weighted", (0.5, torch.float32)), ("plus", (branch,)))),)
    received = packing.unpack(pickle.loads(pickle.dumps(packing.pack(recipes))))
    for each in (recipes, received):
        whole = tailed_plans(each)
        assert len(whole.owners) == 1
        (_, (_, (inner,))) = whole.tails[0].kernels
        assert inner.base == whole.tails[0].base == 0


def test_an_image_of_a_tensor_has_the_steps_on_its_pixels() -> None:
    with accel.image_backend("cpu"):
        tensor = F.horizontal_flip(F.to_dtype(F.to_image(helpers.picture(8, 6, "RGB", 0)), torch.float32, True))
        assert [name for name, _ in tensor.lazy.recipes[0].steps] == ["pil_to_tensor", "to_dtype", "hflip"]
        again = F.to_pil_image(tensor)
        assert not isinstance(again, torch.Tensor)
        found = again.tobytes()
    assert found == helpers.picture(8, 6, "RGB", 0).transpose(Image.Transpose.FLIP_LEFT_RIGHT).tobytes()

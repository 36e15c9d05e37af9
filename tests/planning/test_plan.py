"""Plans: as few passes and as few pixels as the result needs, as pure data that anybody can run."""

import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F

import accel
from accel.backend import backend_of
from accel.planning import stages as planned_stages
from accel.planning.plan import Box, Plan, plan
from accel.planning.stages import Effect
from accel.processes.switch import select
from accel.recipes.recipe import Recipe
from accel.system import memory
from tests.support import helpers
from tests.support.presets import PRESETS

Array = npt.NDArray[np.uint8]
WIDTH, HEIGHT = 500, 375
PHOTO = helpers.jpeg(WIDTH, HEIGHT)


def recipes_of(*transforms: Callable[[Any], Any], data: bytes = PHOTO) -> tuple[Recipe, ...]:
    """The recipes that transforms record, of one and the same opened file."""
    with accel.image_backend("cpu"):
        image = Image.open(BytesIO(data))
        return tuple(F.to_tensor(transform(image)).lazy.recipes[0] for transform in transforms)


def planned(*transforms: Callable[[Any], Any], data: bytes = PHOTO) -> Plan:
    return plan(recipes_of(*transforms, data=data))


EVAL = T.Compose([T.Resize(256), T.CenterCrop(224)])


def crop_and_resize(image: Any) -> Any:
    return F.resized_crop(image, 100, 200, 120, 90, [64, 64])


LEAN: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    # name: transform, passes, most pixels that may be decoded (of 187500)
    "nothing": (lambda image: image, 1, WIDTH * HEIGHT),
    "crop": (lambda image: F.crop(image, 10, 20, 30, 40), 1, 30 * 40),
    "crop-of-crop": (lambda image: F.crop(F.crop(image, 10, 20, 90, 90), 5, 5, 30, 40), 1, 30 * 40),
    "crop-flip-crop": (lambda image: F.crop(F.hflip(F.crop(image, 10, 20, 90, 90)), 5, 5, 30, 40), 1, 30 * 40),
    "flips": (lambda image: F.vflip(F.hflip(image)), 1, WIDTH * HEIGHT),
    "resize": (lambda image: F.resize(image, [64, 64]), 1, WIDTH * HEIGHT),
    "crop-resize": (crop_and_resize, 1, 120 * 90),
    "crop-resize-flip": (lambda image: F.hflip(crop_and_resize(image)), 1, 120 * 90),
    "flip-resize-flip": (lambda image: F.hflip(F.resize(F.vflip(image), [9, 9])), 1, WIDTH * HEIGHT),
    "eval": (EVAL, 1, 331 * 331),
    "resize-corner": (lambda image: F.crop(F.resize(image, 256), 0, 0, 8, 8), 1, 15 * 15),
    "nearest": (lambda image: F.crop(F.resize(image, 150, Mode.NEAREST), 0, 0, 10, 10), 1, 24 * 24),
    "two-resizes": (lambda image: F.resize(F.resize(image, [99, 88]), [55, 44]), 2, WIDTH * HEIGHT),
    "two-resizes-corner": (
        lambda image: F.crop(F.resize(F.resize(image, [188, 250]), [94, 125]), 0, 0, 4, 4),
        2,
        22 * 22,
    ),
    "pad": (lambda image: F.pad(image, 20), 1, WIDTH * HEIGHT),
    "pad-crop-back": (lambda image: F.crop(F.pad(image, 20), 30, 30, 50, 60), 1, 50 * 60),
    "pad-crop-fill": (lambda image: F.crop(F.pad(image, 20), 0, 0, 10, 10), 1, 1),
    "reflect-corner": (lambda image: F.crop(F.pad(image, 20, padding_mode="reflect"), 0, 0, 10, 10), 1, 10 * 10),
    "outside": (lambda image: F.crop(image, 1000, 1000, 5, 5), 1, 1),
    "copies": (lambda image: image.copy().convert("RGB").copy(), 1, WIDTH * HEIGHT),
}


@pytest.mark.parametrize("name", LEAN)
def test_passes_and_pixels_are_few(name: str) -> None:
    transform, passes, pixels = LEAN[name]
    (decode,) = planned(transform).decodes
    (item,) = decode.items
    assert len(item.stages) == passes
    top, left, height, width = decode.box
    assert top >= 0
    assert left >= 0
    assert top + height <= HEIGHT
    assert left + width <= WIDTH
    assert height * width <= pixels


def outside_of(box: Box, inner: int = 0) -> Array:
    """A mask of what a box (made smaller on all sides that are not the picture's) leaves out."""
    top, left, height, width = box
    bottom, right = top + height, left + width
    mask = np.ones((HEIGHT, WIDTH), np.uint8)
    mask[top + inner * (top > 0) : bottom - inner * (bottom < HEIGHT)][
        :, left + inner * (left > 0) : right - inner * (right < WIDTH)
    ] = 0
    return mask


@pytest.mark.parametrize("mode", [Mode.BILINEAR, Mode.BICUBIC, Mode.LANCZOS, Mode.BOX, Mode.HAMMING, Mode.NEAREST])
@pytest.mark.parametrize("size", [128, 256, 600])
def test_the_decoded_box_is_what_the_result_depends_on(mode: Mode, size: int) -> None:
    """Shown with Pillow: pixels outside do not matter, and those two inside its border do."""
    transform = T.Compose([T.Resize(size, mode), T.CenterCrop(64)])
    box = planned(transform).decodes[0].box
    pixels = np.asarray(helpers.picture(WIDTH, HEIGHT)).copy()
    expected = transform(Image.fromarray(pixels)).tobytes()
    for inner, matters in ((0, False), (2, True)):
        changed = pixels.copy()
        changed[outside_of(box, inner) == 1] ^= 255
        assert (transform(Image.fromarray(changed)).tobytes() != expected) is matters


def test_only_what_the_window_shows_is_computed() -> None:
    (item,) = planned(EVAL).decodes[0].items
    assert item.stages[0].output_size == (224, 224)
    assert (item.stages[0].rows.size, item.stages[0].columns.size) == (256, 341)
    first, last = planned(LEAN["two-resizes-corner"][0]).decodes[0].items[0].stages
    assert last.output_size == (4, 4)
    assert max(first.output_size) <= 12


def test_one_decode_for_ten_crops_of_one_file() -> None:
    with accel.image_backend("cpu"):
        crops = F.ten_crop(Image.open(BytesIO(PHOTO)).resize((90, 80)), [40, 40])
        batch = torch.stack([F.to_tensor(crop) for crop in crops])
    program = plan(batch.lazy.recipes)  # type: ignore[attr-defined]
    (decode,) = program.decodes
    assert [item.position for item in decode.items] == list(range(10))
    assert program.shape == (10, 3, 40, 40)


def test_the_decode_of_several_crops_is_their_union() -> None:
    program = planned(lambda image: F.crop(image, 10, 20, 30, 40), lambda image: F.crop(image, 50, 5, 30, 40))
    assert program.decodes[0].box == (10, 5, 70, 55)


def test_files_opened_apart_are_decoded_apart() -> None:
    assert len(plan(recipes_of(EVAL) + recipes_of(EVAL)).decodes) == 2


def test_grey_files_are_decoded_to_one_channel_unless_colour_is_wanted() -> None:
    grey = helpers.jpeg(50, 40, "L")
    assert planned(EVAL, data=grey).decodes[0].channels == 1
    assert planned(lambda image: EVAL(image).convert("RGB"), data=grey).decodes[0].channels == 3
    both = plan(recipes_of(lambda image: image.convert("RGB"), data=grey))
    assert both.shape == (1, 3, 40, 50)


def test_parameters_are_data_and_not_structure() -> None:
    """Two random crops have plans of the same form."""
    forms = set()
    for seed in range(5):
        helpers.seed_everything(seed)
        (item,) = planned(T.RandomResizedCrop(64, scale=(0.1, 0.5))).decodes[0].items
        (stage,) = item.stages
        forms.add((len(item.stages), stage.resample, stage.output_size, stage.fills, stage.rows.view.table is None))
    assert len(forms) == 1


def test_a_plan_needs_images_that_come_out_alike() -> None:
    with pytest.raises(ValueError, match="at least one image"):
        plan([])
    with pytest.raises(ValueError, match="alike"):
        planned(EVAL, lambda image: F.crop(image, 0, 0, 5, 5))


def run(program: Plan) -> torch.Tensor:
    """A plan, run by Pillow and torchvision alone."""
    result = backend_of(select("reference", {})).run(program, memory.results.empty)  # type: ignore[attr-defined]
    assert isinstance(result, torch.Tensor)
    return result


RUNS: dict[str, Callable[[Any], Any]] = {name: LEAN[name][0] for name in LEAN} | {
    "pads": lambda image: F.pad(F.resize(F.pad(image, (9, 1, 3, 30), 33), 90), 4, 77, "symmetric"),
    "pads-colours": lambda image: F.pad(F.pad(image.resize((20, 30)), 5, 10), (3, 9), 200),
    "center": lambda image: F.center_crop(F.resize(image, [60, 300]), [100, 100]),
    "several": lambda image: F.crop(F.resize(F.hflip(F.resize(image, [99, 88], Mode.LANCZOS)), 50), 3, 4, 30, 20),
}


@pytest.mark.parametrize("transform", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_plan_is_all_that_is_needed_to_run_it(transform: Callable[[Any], Any], mode: str) -> None:
    data = helpers.jpeg(WIDTH, HEIGHT, mode)
    program = planned(transform, data=data)
    expected = F.to_tensor(transform(Image.open(BytesIO(data))))
    assert torch.equal(run(program)[0], expected)


def test_a_fill_goes_through_levels_where_they_can_give_it() -> None:
    """A colour that a table has is the colour in front of it that becomes this one."""

    def padded(colour: int) -> Callable[[Any], Any]:
        return lambda image: F.pad(F.posterize(F.invert(image), 3), 9, fill=colour)

    for colour, passes in ((0, 1), (96, 1), (7, 2)):
        assert len(planned(padded(colour)).decodes[0].items[0].stages) == passes
        helpers.assert_equal_runs(lambda colour=colour: F.to_tensor(padded(colour)(Image.open(BytesIO(PHOTO)))))


def test_a_plan_is_plain_data() -> None:
    program = planned(EVAL, lambda image: F.hflip(EVAL(image)))
    again = pickle.loads(pickle.dumps(program))
    assert isinstance(program, tuple)
    assert torch.equal(run(again), run(program))


def test_the_planner_knows_no_backend() -> None:
    code = """
import sys
from accel.planning.plan import plan
from accel.planning.stages import chain
chain((375, 500), 3, (("crop", (1, 2, 30, 40)), ("resize", (20, 20, 2)), ("hflip", ())))
assert not [name for name in sys.modules if name.startswith(("accel.backends", "numba", "nvidia"))]
"""
    helpers.python(code)


def same(one: Any, other: Any) -> bool:
    """Plans are equal, arrays and all."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)


REMEMBERED = (
    ("crop", (3, 5, 40, 60)),
    ("crop", (-4, -7, 90, 80)),
    ("hflip", ()),
    ("pad", (1, 2, 3, 4, "constant", (9, 200, 31))),
    ("resize", (50, 40, 2)),
    ("resize", (64, 97, 3)),
    ("invert", ()),
    ("posterize", (3,)),
    ("equalize", ()),
    ("adjust_saturation", (1.4,)),
    ("adjust_sharpness", (0.3,)),
    ("to_grayscale", (1,)),
    ("scale_nearest", (50, 40, (1.0, 5.0, 1.0, -7.0), (9, 200, 31))),
    ("transpose", ()),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(REMEMBERED), max_size=7), st.sampled_from([1, 3]))
def test_what_follows_a_resize_is_remembered_apart_from_what_goes_before(steps: list[Any], channels: int) -> None:
    made = planned_stages.chain((80, 97), channels, tuple(steps))
    assert same(made, planned_stages._chain((80, 97), channels, tuple(steps)))
    assert same(made, planned_stages.chain((80, 97), channels, tuple(steps)))


def test_images_of_a_policy_share_what_is_planned_behind_the_resize() -> None:
    behind = (("resize", (50, 40, 2)), ("hflip", ()), ("adjust_sharpness", (0.3,)), ("invert", ()))
    one, other = (planned_stages.chain((80, 97), 3, (("crop", (top, 5, 40, 60)), *behind)) for top in (3, 9))
    assert one.box != other.box
    assert one.stages[1] is other.stages[1]
    assert one.stages[1:] == other.stages[1:]


# -- how many stages presets take, whatever was drawn ----------------------------------------------------------------


LARGE = helpers.jpeg(500, 375)
_SEEDS = 60


def photo() -> Any:
    return Image.open(BytesIO(LARGE)).convert("RGB")


@pytest.mark.parametrize("name", PRESETS)
def test_stages(name: str) -> None:
    make, expected = PRESETS[name]
    with accel.image_backend("cpu"):
        transform, found = make(), set()
        for number in range(_SEEDS):
            helpers.seed_everything(number)
            lazy = transform(photo())
            assert helpers.is_lazy(lazy), f"seed {number}: the pipeline is not recorded"
            stages = plan(lazy.lazy.recipes).decodes[0].items[0].stages
            assert accel.explain(lazy).count("\n  stage ") == len(stages)
            found.add(len(stages))
    assert found <= expected
    assert max(found) == max(expected)


@pytest.mark.parametrize("name", ["classification-ra-v1", "detection-ssd-v1", "detection-ssd-v2", "timm", "timm-rand"])
def test_what_the_stages_give(name: str) -> None:
    make = PRESETS[name][0]

    def images() -> list[torch.Tensor]:
        transform = make()
        found = []
        for number in range(6):
            helpers.seed_everything(number)
            found.append(transform(photo()))
        return found

    helpers.assert_equal_runs(images)


def test_no_stage_only_looks_up_levels() -> None:
    """Every stage between the first pass and the last one is an effect, or moves pixels."""
    with accel.image_backend("cpu"):
        for number in range(_SEEDS):
            helpers.seed_everything(number)
            lazy = T.Compose([T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomInvert(), T.ToTensor()])(photo())
            _, *between, _ = plan(lazy.lazy.recipes).decodes[0].items[0].stages
            assert all(isinstance(stage, Effect) for stage in between)
            assert [stage.op for stage in between].count("adjust_brightness") == 0

"""Plans of rows by columns: the same numbers as the plans of their recipes, one by one."""

import pickle
from io import BytesIO
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F

import accel
from accel.codec.header import Raw
from accel.ops.resample import Aten, rows_first
from accel.planning import columns
from accel.planning.columns import ColumnPlan
from accel.planning.plan import Plan, plan
from accel.planning.stages import Pass
from accel.recipes.options import Options, Selection
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Form, Pictures, Rows, Slot, Structure
from accel.system import memory
from tests.support import helpers, inside
from tests.support.rows import random_rows

SELECTION = Selection("cpu", Options())
SIZES = [(60, 45), (31, 90), (1, 1), (17, 16), (2, 77), (64, 64), (13, 4)]
SOURCES = [
    Source(bytes(h * w * (3 if n % 2 else 1)), Raw(w, h, "RGB" if n % 2 else "L"), "a picture", SELECTION)
    for n, (h, w) in enumerate(SIZES)
]


def check(found: ColumnPlan, wanted: Plan) -> None:
    numbers = found.columns
    assert (found.shape, found.dtype, found.interleaved) == (wanted.shape, wanted.dtype, wanted.interleaved)
    for place, decode in enumerate(wanted.decodes):
        (item,) = decode.items
        (stage,) = item.stages
        assert isinstance(stage, Pass)
        assert item.position == place
        assert (numbers.channels, tuple(numbers.boxes[place])) == (decode.channels, decode.box)
        assert torch.equal(numbers.table, item.table)
        for axis, own in zip((stage.rows, stage.columns), numbers.axes[:, place].tolist(), strict=True):
            assert (axis.view.start, axis.view.step, axis.view.length, axis.size) == tuple(own[:4])
            shown = own[4] + own[5] * np.arange(axis.window.length)
            outside = (shown < 0) | (shown >= axis.size)
            window = axis.window.array()
            assert (np.where(outside, -1, shown) == np.maximum(window, -1)).all()
            assert {stage.fills[-1 - code] for code in window[outside]} <= {numbers.fill}
        assert stage.resample in (0, numbers.resample)
        sizes = stage.rows.view.length, stage.columns.view.length, stage.rows.size, stage.columns.size
        assert numbers.rows_first[place] == rows_first(numbers.resample, *sizes)
        assert numbers.resampled[:, place].tolist() == [stage.rows.resampled, stage.columns.resampled]


@pytest.mark.parametrize("pillow", [(12, 1), (12, 2), (13, 0)])
def test_the_order_of_the_axes_by_the_version_of_pillow(
    pillow: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [(400, 3), (30, 29), (1000, 9), (5, 400), (90, 60), (299, 3), (2, 2), (64, 9), (40, 10), (7, 7)]
    pictures = [Source(bytes(h * w), Raw(w, h, "L"), "a picture", SELECTION) for h, w in sizes]
    real = columns.order_of
    monkeypatch.setattr(columns, "order_of", lambda code: real(code, pillow))
    found = set()
    with inside.anew(columns._program):
        for code, new in product((2, 3, Aten.BILINEAR), ((7, 7), (32, 5), (3, 30), (300, 3))):
            rows = Rows(pictures, Structure.of(Form("resize", (*new, code))), np.zeros((len(sizes), 0), np.int64))
            planned = columns.plan(rows)
            assert planned is not None
            own = [bool(rows_first(code, *size, *new, pillow=pillow)) for size in sizes]
            assert planned.columns.rows_first.tolist() == own
            found |= {*own}
    assert found == ({False} if pillow < (12, 2) else {False, True})


@pytest.mark.parametrize("seed", range(150))
def test_as_one_by_one(seed: int) -> None:
    rows = random_rows(np.random.default_rng(seed), SOURCES)
    found = columns.plan(rows, interleaved=bool(seed % 2))
    assert found is not None
    check(found, plan(list(rows), interleaved=bool(seed % 2)))


def test_who_does_not_know_columns_has_the_plan() -> None:
    rows = random_rows(np.random.default_rng(0), SOURCES)
    found, wanted = columns.plan(rows), plan(list(rows))
    assert found is not None
    assert [each.box for each in found.decodes] == [each.box for each in wanted.decodes]
    part = found._replace(decodes=found.decodes[:2])
    assert type(part) is Plan
    assert len(part.decodes) == 2


CROP = Form("crop", (Slot(0), 0, 1, 1))
TO = Form("pil_to_tensor")


@pytest.mark.parametrize(
    "forms",
    [
        (CROP, Form("equalize"), TO),
        (CROP, Form("invert"), TO),
        (CROP, Form("resize", (5, 5, 2)), Form("resize", (4, 4, 2)), TO),
        (CROP, Form("resize", (5, 5, Aten.BICUBIC_POINT)), TO),
        (CROP, Form("pad", (1, 1, 1, 1, "constant", None)), Form("resize", (4, 4, 2)), TO),
        (CROP, Form("pad", (1, 1, 1, 1, "reflect", None)), TO),
        (CROP, Form("pad", (1, 1, 1, 1, "constant", None)), TO),
        (CROP, Form("crop", (0, 0, 2, 1)), TO),
        (Form("crop", (-1, Slot(0), 1, 1)), TO),
        (CROP, TO, Form("erase", (0, 0, 1, 1, torch.zeros(1, 1, 1)))),
        (CROP, TO, Form("normalize", ((0.5,), (0.5,)), 0)),
        (Form("convert", ("RGB",), 0), TO),
    ],
)
def test_what_columns_cannot_say(forms: Any) -> None:
    rows = Rows(SOURCES[:2], Structure.of(*forms), np.zeros((2, 1), np.int64))
    assert columns.plan(rows) is None


def test_one_source_twice_is_decoded_once() -> None:
    rows = Rows([SOURCES[0]] * 2, Structure.of(CROP, TO), np.zeros((2, 1), np.int64))
    assert columns.plan(rows) is None
    assert len(plan(rows).decodes) == 1


def test_unequal_results_are_no_plan() -> None:
    rows = Rows(SOURCES[1:4:2], Structure.of(Form("hflip"), TO), np.zeros((2, 0), np.int64))
    assert columns.plan(rows) is None
    with pytest.raises(ValueError, match="come out alike"):
        plan(rows)


def test_images_of_several_sizes_lie_apart() -> None:
    rows = Rows(SOURCES[1::2], Structure.of(Form("resize", (Slot(0), 9, 2)), TO), np.array([[5], [20], [64]]))
    found = columns.plan_apart(rows)
    assert found is not None
    assert found.columns.parts.tolist() == [[0, 5, 9], [5 * 9 * 3, 20, 9], [25 * 9 * 3, 64, 9]]
    result, bits = found.target(memory.results.empty)
    assert result.shape == bits.shape == (89 * 9 * 3,)
    for place, recipe in enumerate(rows):
        wanted, own = columns.plan(Rows.of([recipe]) or rows), found.columns
        assert wanted is not None
        assert (wanted.columns.boxes[0] == own.boxes[place]).all()
        assert (wanted.columns.axes[:, 0] == own.axes[:, place]).all()


def test_pictures_are_sources() -> None:
    pixels = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    pictures = Pictures(pixels, "a picture", SELECTION)
    assert [bytes(source.data) for source in pictures] == [each.tobytes() for each in pixels]
    assert pictures[1] is pictures[-1]
    assert pictures[0].header == Raw(4, 3, "RGB")
    rows = Rows(pictures, Structure.of(Form("hflip"), TO), np.zeros((2, 0), np.int64))
    found = columns.plan(rows)
    assert found is not None
    check(found, plan(list(rows)))
    assert next(iter(rows[1:])).source.data == pictures[1].data
    with pytest.raises(ValueError, match="pictures are no"):
        Pictures(pixels.transpose(0, 2, 1, 3), "turned", SELECTION)


# -- rows, and the recipes made of them again ------------------------------------------------------------------------


PHOTOS = [helpers.jpeg(width, height) for width, height in ((500, 375), (320, 240), (93, 311))]
CROPS = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5,), (0.25,))])


def recorded(transform: Any, count: int = 12) -> list[Recipe]:
    with accel.image_backend("cpu"):
        torch.manual_seed(0)
        images = (Image.open(BytesIO(PHOTOS[n % len(PHOTOS)])).convert("RGB") for n in range(count))
        return [transform(image).lazy.recipes[0] for image in images]


def rows_of(recipes: list[Recipe]) -> Rows:
    rows = Rows.of(recipes)
    assert rows is not None
    return rows


@pytest.mark.parametrize(
    "transform",
    [
        CROPS,
        T.Compose([T.Resize(70), T.CenterCrop(64), T.ToTensor()]),
        T.Compose([T.RandomCrop(80, 5, True), T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.PILToTensor()]),
        T.Compose([T.RandomHorizontalFlip(), T.Resize((20, 20)), T.RandomHorizontalFlip(), T.ToTensor()]),
        T.Compose([T.ColorJitter(0.5), T.ToTensor()]),
    ],
)
def test_the_same_recipes(transform: Any) -> None:
    recipes = recorded(transform)
    rows = rows_of(recipes)
    assert list(rows) == recipes
    assert [rows[n] for n in range(-3, len(rows))] == [*recipes[-3:], *recipes]
    assert list(rows[3:7]) == recipes[3:7]
    assert [type(value) for recipe in rows for _, params in recipe.steps for value in params] == [
        type(value) for recipe in recipes for _, params in recipe.steps for value in params
    ]
    again = pickle.loads(pickle.dumps(rows))
    assert again.structure is rows.structure
    assert [recipe.steps for recipe in again] == [recipe.steps for recipe in recipes]


def test_columns_are_what_differs() -> None:
    rows = rows_of(recorded(CROPS))
    assert [form.name for form in rows.structure.forms if form.drawn >= 0] == ["hflip"]
    assert rows.structure.columns == 5  # a crop and a flip
    assert rows_of(list(rows)).structure is rows.structure


def test_more_steps() -> None:
    recipes = recorded(CROPS)
    rows = rows_of(recipes).then(("to", (torch.float16,)))
    assert list(rows) == [Recipe(source, (*steps, ("to", (torch.float16,)))) for source, steps in recipes]


def test_what_has_no_structure_in_common() -> None:
    flips = [lambda image: F.hflip(F.vflip(image)), lambda image: F.vflip(F.hflip(image))]
    with accel.image_backend("cpu"):
        image = Image.open(BytesIO(PHOTOS[0]))
        mixed = [F.to_tensor(flip(image)).lazy.recipes[0] for flip in flips]
        others = [F.to_tensor(image).lazy.recipes[0], F.to_tensor(F.crop(image, 0, 0, 9, 9)).lazy.recipes[0]]
    assert Rows.of(mixed) is None
    assert Rows.of(others) is None
    assert Rows.of([]) is None


def test_floats_are_kept_in_every_bit() -> None:
    source = recorded(CROPS, 1)[0].source
    structure = Structure.of(Form("adjust_brightness", (Slot(0, real=True),)), Form("to_tensor"))
    floats = np.array([0.1, -0.0, 1e-310, 1 / 3])
    rows = Rows([source] * 4, structure, floats.view(np.int64)[:, None])
    found = [recipe.steps[0][1][0] for recipe in rows]
    assert [each.hex() for each in found] == [each.hex() for each in floats.tolist()]


def test_a_constant_is_no_slot() -> None:
    one = Structure.of(Form("crop", (Slot(0), 0, 1, 1)))
    assert Structure.of(Form("crop", ((0, False), 0, 1, 1))) is not one


def test_numbers_must_fit() -> None:
    rows = rows_of(recorded(CROPS))
    with pytest.raises(ValueError, match="no numbers of shape"):
        Rows(rows.sources[:-1], rows.structure, rows.numbers)


def test_a_plan_takes_them() -> None:
    recipes = recorded(CROPS)
    first, second = plan(recipes), plan(rows_of(recipes))
    assert first.decodes == second.decodes or repr(first) == repr(second)

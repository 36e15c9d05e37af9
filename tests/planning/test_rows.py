"""Rows: recipes of one structure, and the recipes made of them again."""

import pickle
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F

import accel
from accel.planning.plan import plan
from accel.recipes.recipe import Recipe
from accel.recipes.rows import Form, Rows, Slot, Structure
from tests.support import helpers

PHOTOS = [helpers.jpeg(width, height) for width, height in ((500, 375), (320, 240), (93, 311))]
TRAIN = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5,), (0.25,))])


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
        TRAIN,
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
    rows = rows_of(recorded(TRAIN))
    assert [form.name for form in rows.structure.forms if form.drawn >= 0] == ["hflip"]
    assert rows.structure.columns == 5  # a crop and a flip
    assert rows_of(list(rows)).structure is rows.structure


def test_more_steps() -> None:
    recipes = recorded(TRAIN)
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
    source = recorded(TRAIN, 1)[0].source
    structure = Structure.of(Form("adjust_brightness", (Slot(0, real=True),)), Form("to_tensor"))
    floats = np.array([0.1, -0.0, 1e-310, 1 / 3])
    rows = Rows([source] * 4, structure, floats.view(np.int64)[:, None])
    found = [recipe.steps[0][1][0] for recipe in rows]
    assert [each.hex() for each in found] == [each.hex() for each in floats.tolist()]


def test_a_constant_is_no_slot() -> None:
    one = Structure.of(Form("crop", (Slot(0), 0, 1, 1)))
    assert Structure.of(Form("crop", ((0, False), 0, 1, 1))) is not one


def test_numbers_must_fit() -> None:
    rows = rows_of(recorded(TRAIN))
    with pytest.raises(ValueError, match="no numbers of shape"):
        Rows(rows.sources[:-1], rows.structure, rows.numbers)


def test_a_plan_takes_them() -> None:
    recipes = recorded(TRAIN)
    first, second = plan(recipes), plan(rows_of(recipes))
    assert first.decodes == second.decodes or repr(first) == repr(second)

"""Batches drawn in one loop of compiled code, beside the same drawn image by image."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

import accel
from accel.hooks.compiled import compositions, program
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import drawing, draws
from accel.hooks.compiled.transforms.fixed import RGB
from accel.recipes.recipe import Recipe
from accel.recipes.rows import Form
from tests.hooks.compiled.support import PIPELINES, TOGETHER, check

CODED = ["train", "train of v2", "retries", "no crop fits", "padded", "padded by v2", "whole or not", "grey"]
SIZED = {"padded", "padded by v2", "whole or not", "grey"}
SIZES = {
    "one size": lambda source: [(source.randint(40, 90), source.randint(40, 90))] * 20,
    "photos": lambda source: [(source.randint(1, 700), source.randint(1, 700)) for _ in range(60)],
    "long": lambda source: [(source.choice((3, 40, 2000)), source.choice((5, 300, 3000))) for _ in range(30)],
}


def steps(drawn: program.Outcome) -> list[Any]:
    recipes = drawn.recipes([object()] * len(drawn.sizes))  # type: ignore[list-item]
    return [recipe.steps for recipe in recipes if isinstance(recipe, Recipe)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", CODED)
def test_compiled_code_draws_what_is_drawn_one_by_one(name: str, sizes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with accel.image_backend("cpu"):
        own = compositions.program_of(PIPELINES[name](), RGB)
        for seed in range(10):
            source = random.Random(seed)
            given = np.array(SIZES[sizes](source))
            grey = np.array([source.random() < 0.2 * (seed % 3) for _ in given])
            torch.manual_seed(seed)
            torch.rand(seed * 60)
            found = own.run(given, grey)
            with monkeypatch.context() as patch:
                patch.setattr(drawing, "numbers_of", lambda *given: None)
                expected = own.run(given, grey)
            assert steps(found) == steps(expected)
            assert (found.sizes, found.tape.at) == (expected.sizes, expected.tape.at)
            assert expected.numbers is None
            assert (found.numbers is None) == (len({*map(tuple, given.tolist())}) > 1 and name in SIZED)


def test_python_draws_one_image_of_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(*given: Any) -> Any:
        raise AssertionError

    with accel.image_backend("cpu"):
        own = compositions.program_of(PIPELINES["train"](), RGB)
        own.run(np.array([(40, 50), (60, 70)]), np.array([False, False]))
        monkeypatch.setattr(draws.ResizedCrop, "draw", draw)
        assert own.run(np.array([(80, 90), (30, 20)]), np.array([False, True])).numbers is not None


def test_compiled_code_that_draws_otherwise_is_not_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = drawing._draw

    def wrong(*given: Any) -> int:
        at = own(*given)
        given[-1][-1, 3] += given[4][0, 0] == 3  # of images of height 3 alone
        return at

    monkeypatch.setattr(drawing, "_draw", wrong)
    monkeypatch.setattr(program, "_programs", {})
    reason = "batches are drawn by Python: when it was tried, compiled code did not draw the same numbers"
    before = accel.stats()["fallbacks"].get(reason, 0)
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    assert check(dataset) == {TOGETHER: 52}
    assert accel.stats()["fallbacks"][reason] > before


@pytest.mark.parametrize(
    ("scale", "ratio", "known"),
    [
        ((0.08, 1.0), (0.75, 4 / 3), True),
        ((0.0, 2.0), (1e-9, 1e9), True),
        ((-1e-6, 1.0), (0.75, 4 / 3), False),
        ((0.08, 1e300), (0.75, 4 / 3), False),
        ((0.08, 1.0), (-0.75, 4 / 3), False),
        ((0.08, 1.0), (0.0, 1.0), False),
        ((0.08, 1.0), (1.0, 1e38), False),
    ],
)
def test_bounds_of_which_python_may_raise_are_left_to_python(scale: Any, ratio: Any, known: bool) -> None:
    """The root of a negative number, or of one that is no number: compiled code would go on."""
    crop = draws.ResizedCrop((8, 8), scale, ratio, draws.log_bounds(ratio), Form("resize"), False)
    assert drawing.knows([crop]) == known


def test_a_crop_that_pillow_warns_of_is_left_to_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    with accel.image_backend("cpu"):
        own = compositions.program_of(PIPELINES["no crop fits"](), RGB)
        given = np.array([(20, 20), *[(40, 40)] * 5])
        assert own.run(given, np.zeros(6, bool)).numbers is not None
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
        with pytest.raises(Refused, match="larger"):
            own.run(given, np.zeros(6, bool))

"""Draws that are just at a probability, or at a bound: they are compared as torchvision compares them."""

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import accel
from accel.hooks.compiled import compositions, program
from accel.hooks.compiled.random_numbers import tape
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import drawing, draws
from accel.hooks.compiled.transforms.fixed import RGB
from accel.recipes.recipe import Recipe
from accel.recipes.rows import Form
from tests.hooks.compiled.support import PIPELINES, TOGETHER, check
from tests.support import helpers, inside

BY_CHANCE: dict[str, Callable[[Any, float], Any]] = {
    "flip": lambda v, p: v.RandomHorizontalFlip(p),
    "grey": lambda v, p: v.RandomGrayscale(p),
    "invert": lambda v, p: v.RandomInvert(p),
    "posterize": lambda v, p: v.RandomPosterize(2, p),
    "solarize": lambda v, p: v.RandomSolarize(9, p),
    "autocontrast": lambda v, p: v.RandomAutocontrast(p),
    "equalize": lambda v, p: v.RandomEqualize(p),
    "sharpness": lambda v, p: v.RandomAdjustSharpness(2, p),
    "perspective": lambda v, p: v.RandomPerspective(p=p),
    "apply": lambda v, p: v.RandomApply([v.RandomInvert(1.0)], p),
    "zoom": lambda v, p: v2.RandomZoomOut(p=p),
    "distort": lambda v, p: v2.RandomPhotometricDistort(p=p),
}


def _near(drawn: float) -> Iterator[float]:
    """A number, the next ones, and those that are rounded to it in float32, or just not."""
    for towards in (-math.inf, math.inf):
        yield drawn
        yield float(np.nextafter(drawn, towards))
        beside = float(np.nextafter(np.float32(drawn), np.float32(towards)))
        yield beside
        middle = (drawn + beside) / 2
        yield from (middle, float(np.nextafter(middle, 0)), float(np.nextafter(middle, 1)))


def recorded(transform: Any, seed: int) -> tuple[Any, Any]:
    """The steps of an image, and the random states afterwards: as a program has them, and as the transforms do."""
    found = []
    own = program.compiled(transform)
    own.prepare(transform)
    for compiled in (True, False):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        if compiled:
            drawn = own.run(np.array([(40, 50)]), None)
            drawn.tape.commit()
            steps = drawn.runs[0].steps()
        else:
            steps = transform(RGB.image((40, 50), ())).lazy.recipes[0].steps
        found.append((steps, helpers.random_states()))
    return found[0], found[1]


@pytest.mark.parametrize("version", [T, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", BY_CHANCE)
def test_draws_at_a_probability(name: str, version: Any) -> None:
    with accel.image_backend("cpu"):
        for seed in range(3):
            torch.default_generator.manual_seed(seed)
            for probability in _near(torch.rand(1).item()):
                transform = version.Compose([BY_CHANCE[name](version, probability), version.PILToTensor()])
                one, other = recorded(transform, seed)
                assert program.equal(one[0], other[0])
                assert one[1] == other[1]


def test_bounds_of_one_image() -> None:
    torch.manual_seed(2)
    told = tape.Tape(torch.get_rng_state(), 4000)
    for number in range(3000):
        bounds = -number * 0.03, number * number * 0.7
        assert torch.empty(1).uniform_(*bounds).item() == told.once(bounds)
    assert torch.equal(told.after(), torch.get_rng_state())


@pytest.mark.parametrize(
    "bounds", [(0.3, 0.301), (0.08, 1.0), (1.0, 1.5), (-0.25, 0.0), (-0.3, 0.3), (2.0, 2.0)], ids=str
)
def test_bounds_of_many(bounds: tuple[float, float]) -> None:
    """Also where numbers are rounded to the upper bound, which torch 2.14 replaces by the lower one."""
    generator, count = torch.Generator().manual_seed(9), 1 << 20
    told = tape.Tape(generator.get_state(), count)
    (found,) = told.tables(((False, bounds),))
    expected = torch.empty(count).uniform_(*bounds, generator=generator)
    assert torch.equal(torch.from_numpy(found), expected)
    places = [*torch.nonzero(expected <= bounds[0])[:3, 0].tolist(), 0, count - 1]
    for told.at in places:
        assert told.once(bounds) == expected[told.at - 1].item()


@pytest.mark.parametrize("scales", [True, False])
def test_bounds_are_left_to_torch(scales: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch computes otherwise, or the last bit cannot be told."""
    monkeypatch.setattr(tape, "_scales", lambda: scales)
    monkeypatch.setattr(tape, "_scaled", lambda drawn, bounds: None)
    torch.manual_seed(3)
    told = tape.Tape(torch.get_rng_state(), 100)
    for _ in range(20):
        assert torch.rand(1).item() == told.uniform((0.0, 1.0))
        assert torch.empty(1).uniform_(-3.0, 0.7).item() == told.once((-3.0, 0.7))
    assert torch.equal(told.after(), torch.get_rng_state())


def test_how_much_a_function_draws() -> None:
    weights = torch.tensor([0.1, 0.2, 0.7])
    taken = tape.outputs_of(lambda generator: torch.multinomial(weights, 1, generator=generator))
    told = tape.Tape(torch.random.manual_seed(4).get_state(), 0)
    for _ in range(50):
        expected = torch.multinomial(weights, 1).item()
        assert told.by(lambda generator: torch.multinomial(weights, 1, generator=generator).item(), taken) == expected
    assert torch.equal(told.after(), torch.get_rng_state())
    assert tape.outputs_of(lambda generator: torch.randn(1, generator=generator)) == -1  # the second is kept
    assert tape.outputs_of(lambda generator: torch.empty(5).uniform_(generator=generator)) == 5


# -- compiled code that draws ----------------------------------------------------------------------------------------


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
    def wrong(own: Any, *given: Any) -> int:
        at: int = own(*given)
        given[-1][-1, 3] += given[4][0, 0] == 3  # of images of height 3 alone
        return at

    inside.wrap(monkeypatch, drawing, "_draw", wrong)
    inside.forget_programs(monkeypatch)
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

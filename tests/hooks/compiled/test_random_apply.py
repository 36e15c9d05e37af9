"""Draws that are just at a probability, or at a bound: they are compared as torchvision compares them."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms as T
from torchvision.transforms import v2

import accel
from accel.hooks.compiled import program
from accel.hooks.compiled.random_numbers import tape
from accel.hooks.compiled.transforms.fixed import RGB
from tests.support import helpers

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

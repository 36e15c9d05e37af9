"""Which steps are taken for ones that come each time."""

import random
from collections.abc import Callable

import pytest

from accel.planning.prefix import ENOUGH, Prefixes, text
from accel.recipe import Step

Steps = tuple[Step, ...]
Pipeline = Callable[[random.Random, int, int], Steps]


def train(dice: random.Random, height: int, width: int) -> Steps:
    crop = ("crop", (dice.randrange(40), dice.randrange(40), 100, 90 + dice.randrange(9)))
    return (crop, ("resize", (224, 224, 2)), *[("hflip", ())] * dice.randrange(2))


def _resized(height: int, width: int) -> tuple[int, int]:
    short = min(height, width)
    return 256 * height // short, 256 * width // short


def resized(dice: random.Random, height: int, width: int) -> Steps:
    size = _resized(height, width)
    crop = ("crop", (dice.randrange(size[0] - 223), dice.randrange(size[1] - 223), 224, 224))
    return (("resize", (*size, 2)), crop, *[("hflip", ())] * dice.randrange(2))


def flipped(dice: random.Random, height: int, width: int) -> Steps:
    return (("resize", (*_resized(height, width), 2)), *[("hflip", ())] * dice.randrange(2))


def evaluation(dice: random.Random, height: int, width: int) -> Steps:
    size = _resized(height, width)
    crop = ("crop", (round((size[0] - 224) / 2), round((size[1] - 224) / 2), 224, 224))
    return ("resize", (*size, 3)), crop


def of_grey_files_too(dice: random.Random, height: int, width: int) -> Steps:
    return (*[("convert", ("RGB",))] * dice.randrange(2), *evaluation(dice, height, width))


def scaled(dice: random.Random, height: int, width: int) -> Steps:
    size = 200 + dice.randrange(100)
    return (("resize", (size, size, 2)),)


CASES: list[tuple[Pipeline, list[str]]] = [
    (train, []),
    (resized, ["resize"]),
    (flipped, ["resize"]),
    (evaluation, ["resize", "crop"]),
    (of_grey_files_too, ["convert", "resize", "crop"]),
    (scaled, []),
]


def seen(prefixes: Prefixes, pipeline: Pipeline, count: int, seed: int = 0) -> Steps:
    dice, steps = random.Random(seed), ()
    for _ in range(count):
        size = 300 + dice.randrange(100), 300 + dice.randrange(300)
        steps = pipeline(dice, *size)
        prefixes.note(size, steps)
    return steps


@pytest.mark.parametrize(("pipeline", "expected"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_what_comes_each_time(pipeline: Pipeline, expected: list[str]) -> None:
    prefixes = Prefixes()
    steps = seen(prefixes, pipeline, 40)
    count = prefixes.length(steps)
    assert count is not None
    names = [name for name, _ in steps]
    assert names[:count] == [name for name in expected if name in names]


def test_it_takes_some_images_to_know() -> None:
    prefixes = Prefixes()
    steps = seen(prefixes, evaluation, ENOUGH - 1)
    assert prefixes.length(steps) is None
    steps = seen(prefixes, evaluation, 1)
    assert prefixes.length(steps) == 2


def test_pipelines_of_one_process_are_told_apart() -> None:
    prefixes = Prefixes()
    last = {pipeline: seen(prefixes, pipeline, 20) for pipeline in (train, evaluation, resized)}
    assert [prefixes.length(steps) for steps in last.values()] == [0, 2, 1]


def test_texts_tell_steps_apart() -> None:
    steps = [
        (("resize", (256, 341, 2)),),
        (("resize", (256, 341, 2)), ("hflip", ())),
        (("rotate", (0.0,)),),
        (("rotate", (-0.0,)),),
        (("rotate", (0,)),),
    ]
    assert len({text(each) for each in steps}) == len(steps)
    assert text((("erase", (1, 2, [3])),)) is None  # type: ignore[arg-type]

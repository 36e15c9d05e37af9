"""Which steps are taken for ones that come each time."""

import random
from collections.abc import Callable

import pytest

from accel.planning.prefix import ENOUGH, Prefixes, Size, text
from accel.recipes.recipe import Step

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


def seen(prefixes: Prefixes, pipeline: Pipeline, count: int, batch: int = 8, seed: int = 0) -> tuple[Size, Steps]:
    """The last image of so many that came in batches."""
    dice, images = random.Random(seed), list[tuple[Size, Steps]]()
    for _ in range(count):
        size = 300 + dice.randrange(100), 300 + dice.randrange(300)
        images.append((size, pipeline(dice, *size)))
    for start in range(0, count, batch):
        prefixes.note(images[start : start + batch])
    return images[-1]


@pytest.mark.parametrize("batch", [1, 3, 8, 20])
@pytest.mark.parametrize(("pipeline", "expected"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_what_comes_each_time(pipeline: Pipeline, expected: list[str], batch: int) -> None:
    prefixes = Prefixes()
    size, steps = seen(prefixes, pipeline, 40, batch)
    count = prefixes.length(size, steps)
    assert count is not None
    names = [name for name, _ in steps]
    assert names[:count] == [name for name in expected if name in names]


@pytest.mark.parametrize("batch", [1, 4])
def test_it_takes_some_images_to_know(batch: int) -> None:
    prefixes = Prefixes()
    assert prefixes.length(*seen(prefixes, evaluation, ENOUGH - batch, batch)) is None
    assert prefixes.length(*seen(prefixes, evaluation, batch, batch)) == 2


def test_pipelines_of_one_process_are_told_apart() -> None:
    prefixes = Prefixes()
    last = [seen(prefixes, pipeline, 20) for pipeline in (train, evaluation, resized)]
    assert [prefixes.length(*each) for each in last] == [0, 2, 1]


def cropped(dice: random.Random, height: int, width: int) -> Steps:
    """``evaluation`` of the same filter as ``resized``."""
    resize, crop = evaluation(dice, height, width)
    return ("resize", (*resize[1][:2], 2)), crop


def smaller(dice: random.Random, height: int, width: int) -> Steps:
    short = min(height, width)
    return (("resize", (232 * height // short, 232 * width // short, 2)),)


def test_pipelines_that_begin_alike_are_told_apart() -> None:
    """Another crop of the same resize, and another resize of the same filter, as training and evaluation take turns."""
    prefixes = Prefixes()
    for seed in range(4):
        last = [seen(prefixes, pipeline, 64, 16, seed) for pipeline in (resized, cropped, smaller)]
    assert [prefixes.length(*each) for each in last] == [1, 2, 1]


def test_several_resizes_of_one_batch_are_told_apart_and_random_ones_are_none() -> None:
    sizes: list[Size] = [(300, 400)] * 32
    several, by_chance, dice = Prefixes(), Prefixes(), random.Random(2)
    for _ in range(40):
        several.note([(size, (("resize", (256 - 24 * (n % 3), 341, 2)), CROPS[n])) for n, size in enumerate(sizes)])
        by_chance.note([(size, (("resize", (dice.randrange(200, 260), 341, 2)), CROPS[0])) for size in sizes])
    for short in (256, 232, 208):
        steps = ("resize", (short, 341, 2)), CROPS[5]
        assert several.length(sizes[0], steps) == 1
        assert by_chance.length(sizes[0], steps) == 0


CROPS: list[Step] = [("crop", (place, 2 * place, 100, 100)) for place in range(32)]


def test_a_step_by_chance_is_none_that_comes_each_time() -> None:
    """Nine of ten images are turned grey: all of some batches are."""

    def grey(dice: random.Random, height: int, width: int) -> Steps:
        return (("resize", (*_resized(height, width), 2)), *[("to_grayscale", (3,))] * (dice.random() < 0.9))

    prefixes = Prefixes()
    lengths = []
    for seed in range(200):
        size, steps = seen(prefixes, grey, 8, 8, seed)
        lengths.append(prefixes.length(size, (steps[0], ("to_grayscale", (3,)))))
    assert set(lengths[8:]) == {1}


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

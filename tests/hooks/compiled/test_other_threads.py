"""Threads that draw random numbers of their own while accel tries pipelines and draws batches."""

import io
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import default_collate
from torchvision import transforms as T
from torchvision.datasets import CIFAR10, ImageFolder

import accel
from accel.hooks import own_generators, tv_transforms
from accel.hooks.compiled import batch, program
from accel.hooks.compiled.random_numbers import live, tape
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import fixed
from accel.recipes.recipe import recording
from tests.hooks.compiled.support import PIPELINES, TOGETHER, ways
from tests.support import helpers, inside
from tests.support.processes import in_threads

CHOICE = T.RandomChoice([T.RandomHorizontalFlip(0.4), T.RandomVerticalFlip(0.6)], [0.3, 0.7])
OF_ONE_COUNT: dict[str, Callable[[], Any]] = {
    "of torch": lambda: T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor()]),
    "of many kinds": lambda: T.Compose([T.RandomAffine(20, (0.1, 0.2)), T.ColorJitter(0.4, 0.3), T.ToTensor()]),
    "of Python, too": lambda: T.Compose(
        [CHOICE, T.RandomOrder([T.RandomInvert(), T.RandomSolarize(90)]), T.ToTensor()]
    ),
}
"""Pipelines that take the same number of outputs from a generator, whatever is drawn."""


@pytest.fixture(autouse=True)
def _in_all_threads() -> None:
    accel.set_image_backend("cpu")


def in_memory(transform: Any, count: int = 16) -> Any:
    """A dataset without files."""
    dataset = CIFAR10.__new__(CIFAR10)
    images = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    dataset.__dict__.update(root="x", train=True, data=images, targets=[0] * count)
    dataset.__dict__.update(transform=transform, target_transform=None, transforms=None)
    return dataset


def states() -> tuple[bytes, Any]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate()


def drawn_by_others(torchs: int, pythons: int) -> None:
    """Have another thread draw."""
    in_threads([lambda: (torch.rand(torchs), [random.random() for _ in range(pythons)])])


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_is_tried_beside_threads_that_draw_without_touching_their_generators(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads, such as those of OpenMP, pin_memory and tqdm, change nothing: they are not even looked at."""
    seen, make, stop = set[Any](), fixed.ImageKind.image, threading.Event()

    def image(*given: Any) -> Any:
        seen.update(in_threads([states]))
        return make(*given)

    waiting = threading.Thread(target=stop.wait, daemon=True)
    waiting.start()
    try:
        inside.forget_programs(monkeypatch)
        program.compiled(PIPELINES[name]()).prepare(PIPELINES[name]())
        monkeypatch.setattr(fixed.ImageKind, "image", image)
        inside.forget_programs(monkeypatch)
        monkeypatch.setattr(program, "_SIZES", ((375, 500), (500, 333), (3, 400), (600, 2)))
        helpers.seed_everything(5)
        program.compiled(PIPELINES[name]()).prepare(PIPELINES[name]())
        assert seen == {states()}
    finally:
        stop.set()
        waiting.join()


def test_shortcuts_are_tried_without_touching_the_generators() -> None:
    seen = set[Any]()
    helpers.seed_everything(5)
    before = states()

    def draw(*given: Any) -> float:
        seen.add(states())
        return torch.rand(1).item() + torch.empty(1).uniform_(1, 2).item()

    def other(*given: Any) -> float:
        return draw()

    assert tv_transforms.checked(draw, other, lambda generator: ())  # type: ignore[arg-type]
    assert seen == {before} == {states()}


def test_what_cannot_be_given_a_generator_is_not_compiled_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, make = torch.Generator(), fixed.ImageKind.image

    def image(*given: Any) -> Any:
        torch.native_dropout(torch.ones(2), 0.5, True)
        return make(*given)

    before = states()
    with pytest.raises(Refused, match="native_dropout takes no generator"), own_generators.Own(generator):
        image()
    inside.forget_programs(monkeypatch)
    monkeypatch.setattr(program.Program, "one", lambda self, size, tape: (None, size))
    monkeypatch.setattr(fixed.ImageKind, "image", image)
    monkeypatch.setattr(program.known, "built", lambda found, begin: ([], fixed.ImageKind(torch.Tensor, 3)))  # type: ignore[arg-type]
    assert "native_dropout takes no generator" in str(accel.explain(OF_ONE_COUNT["of torch"]()))
    assert states() == before


@pytest.mark.parametrize("torchs", [0, 1, 700, 40_000])
@pytest.mark.parametrize("pythons", [0, 3])
@pytest.mark.parametrize("name", OF_ONE_COUNT)
def test_every_number_is_given_out_once(name: str, torchs: int, pythons: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread draws while a batch is; the batch has the numbers behind what that thread got."""
    dataset, indices = in_memory(OF_ONE_COUNT[name]()), [*range(16)]
    assert batch.fetched(dataset, indices, stacks=True) is not None
    accel.set_image_backend("torchvision")
    helpers.seed_everything(3)
    drawn_by_others(torchs, pythons)
    expected = default_collate([dataset[each] for each in indices])[0]
    after = states()
    accel.set_image_backend("cpu")
    helpers.seed_everything(3)
    run, left = program.Program.run, [None]

    def meanwhile(*given: Any) -> Any:
        drawn = run(*given)
        if left:
            left.pop()
            drawn_by_others(torchs, pythons)
        return drawn

    monkeypatch.setattr(program.Program, "run", meanwhile)
    before = accel.stats()["drawn again"]
    made = batch.fetched(dataset, indices, stacks=True)
    assert made is not None
    again = accel.stats()["drawn again"] - before
    assert again == bool(torchs or (pythons and name == "of Python, too"))
    assert states() == after
    if torchs < 40_000:  # else the outputs lack a bit
        assert torch.equal(default_collate(made.samples())[0] + 0, expected)
    for _ in range(2):  # and so it goes on
        monkeypatch.undo()
        assert batch.fetched(dataset, indices, stacks=True) is not None
    assert accel.stats()["drawn again"] - before == again


def refusing() -> Any:
    """A composition that draws before it turns out that an image is too small."""
    return T.Compose([CHOICE, T.RandomVerticalFlip(), T.RandomCrop(40), T.ToTensor()])


def images_alone(transform: Any) -> list[Any]:
    files = [helpers.jpeg(*size) for size in ((50, 60), (60, 50), (30, 20))]
    found: list[Any] = []
    for number in range(40):
        try:
            found.append(transform(Image.open(io.BytesIO(files[number % 3]))) + 0)
        except ValueError as error:
            found.append(str(error))
        found.append(states())
    return found


def test_an_image_that_is_refused_after_draws_has_the_same_numbers(
    from_the_first: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    accel.set_image_backend("torchvision")
    helpers.seed_everything(7)
    expected = images_alone(refusing())
    accel.set_image_backend("cpu")
    helpers.seed_everything(7)
    monkeypatch.setattr(random, "setstate", lambda state: pytest.fail("a generator is set"))
    monkeypatch.setattr(torch, "set_rng_state", lambda state: pytest.fail("a generator is set"))
    before = accel.stats()["ways"]
    found = images_alone(refusing())
    now = accel.stats()["ways"]
    assert now["alone, compiled"] > before.get("alone, compiled", 0)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_numbers_drawn_for_a_refused_image_are_given_to_nobody_if_others_drew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = live.Rewindable()
    torch.manual_seed(4)
    own.begin()
    drawn = own.uniform((0.0, 1.0))
    drawn_by_others(1, 0)
    assert own.left_to(lambda transform: torch.rand(1).item(), None) != drawn
    plain = torch.Generator().manual_seed(4)
    torch.rand(3, generator=plain)
    assert torch.equal(torch.get_rng_state(), plain.get_state())


def test_numbers_drawn_for_a_refused_image_are_given_again_once() -> None:
    own = live.Rewindable()
    torch.manual_seed(4)
    own.begin()
    drawn = own.uniform((0.0, 1.0))
    assert [own.left_to(lambda transform: torch.rand(1).item(), None) == drawn for _ in range(2)] == [True, False]


def test_threads_and_batches_share_the_outputs() -> None:
    """Whatever comes in between, the state is that after all the draws."""
    dataset, indices, stop = in_memory(OF_ONE_COUNT["of torch"]()), [*range(16)], threading.Event()
    assert batch.fetched(dataset, indices, stacks=True) is not None
    counts = [0]

    def other() -> None:
        while not stop.is_set():
            torch.rand(4)
            counts[0] += 4

    torch.manual_seed(0)
    thread = threading.Thread(target=other)
    thread.start()
    try:
        for _ in range(100):
            assert batch.fetched(dataset, indices, stacks=True) is not None
    finally:
        stop.set()
        thread.join()
    plain = torch.Generator().manual_seed(0)
    torch.empty(100 * 16 * 3 + counts[0], dtype=torch.float32).uniform_(generator=plain)
    assert torch.equal(torch.get_rng_state(), plain.get_state())


def test_one_call_draws_what_many_do_of_pythons_generator() -> None:
    one, other = random.Random(5), random.Random(5)
    ahead = tape.Python(lambda: one.getrandbits(32))
    made, expected = random.Random(5), [0] * 3
    assert [ahead.random(), ahead.choices(range(9), k=3), ahead.randrange(7)] == [
        made.random(),
        made.choices(range(9), k=3),
        made.randrange(7),
    ]
    expected = other.getrandbits(32 * len(ahead.used)).to_bytes(4 * len(ahead.used), "little")
    assert np.array(ahead.used, "<u4").tobytes() == expected
    assert one.getstate() == other.getstate() == made.getstate()


def test_modes_give_every_kind_of_draw_the_generator() -> None:
    draws: list[Callable[[], torch.Tensor]] = [
        lambda: torch.rand(1),
        lambda: torch.rand(()),
        lambda: torch.randint(5, ()),
        lambda: torch.randint(2, 9, (3,)),
        lambda: torch.randperm(4),
        lambda: torch.empty(1).uniform_(1, 2),
        lambda: torch.empty(2, dtype=torch.int64).random_(0, 5),
        lambda: torch.multinomial(torch.ones(3), 1),
        lambda: torch.randn(3),
    ]
    for draw in draws:
        torch.manual_seed(6)
        expected, before = draw(), states()
        with own_generators.Own(torch.Generator().manual_seed(6)):
            assert torch.equal(draw(), expected)
        assert states() == before


# -- threads that make batches at once, as loaders without workers that have a thread each ---------------------------


def batch_of(dataset: Any) -> Any:
    indices = [*range(len(dataset))]
    made = batch.fetched(dataset, indices, stacks=True)
    if isinstance(made, batch.RecordedBatch):
        return default_collate(made.samples())[0] + 0
    with recording.batch(f"one by one: {made}", by_batch=True):
        return default_collate([dataset[each] for each in indices])[0] + 0


def test_a_pipeline_is_compiled_though_another_thread_draws_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = fixed.ImageKind.image

    def disturbed(*given: Any) -> Any:
        in_threads([lambda: torch.rand(1)])
        return original(*given)

    monkeypatch.setattr(fixed.ImageKind, "image", disturbed)
    inside.forget_programs(monkeypatch)
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    before = accel.stats()["ways"]
    batch_of(dataset)
    assert ways(before) == {TOGETHER: len(dataset)}


def test_first_batches_that_come_at_once_are_drawn_in_one_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.forget_programs(monkeypatch)
    sets = [ImageFolder(str(root), PIPELINES["train of v2"]()) for _ in range(4)]
    before = accel.stats()["ways"]
    in_threads([lambda each=each: batch_of(each) for each in sets])  # type: ignore[misc]
    assert ways(before) == {TOGETHER: sum(map(len, sets))}


def test_no_two_batches_have_the_same_numbers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, original, meeting = ImageFolder(str(root), PIPELINES["train"]()), program.Program.run, threading.Barrier(2)

    def meets(*given: Any) -> Any:
        drawn = original(*given)
        with suppress(threading.BrokenBarrierError):
            meeting.wait(0.3)  # for the other, if it may draw now
        return drawn

    helpers.seed_everything(3)
    expected = [batch_of(dataset) for _ in range(2)]
    state = torch.get_rng_state()
    monkeypatch.setattr(program.Program, "run", meets)
    helpers.seed_everything(3)
    found = in_threads([lambda: batch_of(dataset)] * 2)
    assert torch.equal(torch.get_rng_state(), state)
    if not torch.equal(found[0], expected[0]):
        found.reverse()
    assert all(map(torch.equal, found, expected))

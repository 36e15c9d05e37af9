"""The checks at first use of a program, and what is said of it."""

import ctypes
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.hooks.compiled import batch, draws, generator_state, program, tape, tape_trials
from tests.hooks.compiled.support import PIPELINES, TOGETHER, assert_one_by_one, check
from tests.hooks.compiled.test_datasets import Doubled
from tests.support import helpers


def test_a_tape_tells_what_torch_draws() -> None:
    torch.manual_seed(11)
    torch.rand(600)  # the generator's next block of numbers is made on the way
    told = tape.Tape(torch.get_rng_state(), 1500)
    bounds = (0.08, 1.0), (-0.3, 0.29), (0.0, 1.0)
    for number in range(450):
        assert torch.empty(1).uniform_(*bounds[number % 3]).item() == told.uniform(bounds[number % 3])
        assert torch.exp(torch.empty(1).uniform_(*bounds[number % 3])).item() == told.exp(bounds[number % 3])
        limit = 1 + number * number * 1000
        assert torch.randint(0, limit, (1,)).item() == told.below(limit)
    drawn = torch.get_rng_state()
    assert torch.equal(told.after(), drawn)
    torch.manual_seed(11)
    torch.rand(600)
    told.commit()
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_tape_goes_on_where_nobody_else_has_drawn() -> None:
    torch.manual_seed(12)
    plain = torch.Generator().manual_seed(12)
    tapes, again = list[tape.Tape](), 0
    tape.forget()
    for number in range(200):
        while True:
            told = tape.of_default(5)
            assert told.left >= 5
            tapes.append(told)
            drawn = [told.uniform((0.0, 1.0)) for _ in range(number % 5)]
            before = torch.get_rng_state()
            if number % 13 == 12 or told.commit():  # or as a batch that is refused
                break
            again += 1
            assert torch.equal(torch.get_rng_state(), before)
        if number % 13 != 12:
            assert drawn == [torch.rand(1, generator=plain).item() for _ in drawn]
        if number % 29 == 28 or number > 190:
            torch.rand(1)
            torch.rand(1, generator=plain)
        assert torch.equal(torch.get_rng_state(), plain.get_state())
    assert len(set(map(id, tapes))) < 100
    assert 5 < again < 14  # and not for every batch between which others draw


def test_a_tape_that_others_drew_beside_leaves_pythons_generator() -> None:
    torch.manual_seed(12)
    tape.forget()
    for _ in range(2):
        told = tape.of_default(5)
        told.uniform((0.0, 1.0))
        assert told.commit()
    torch.rand(1)
    random.seed(3)
    state = random.getstate()
    again = tape.of_default(5)
    assert again is told
    again.uniform((0.0, 1.0))
    again.python.random()
    assert not again.commit()
    assert random.getstate() == state


@pytest.mark.parametrize(("drawn", "kept"), [(1, True), (20, True), (21, True), (22, False), (2000, False)])
def test_a_tape_goes_on_behind_the_few_numbers_that_others_drew(drawn: int, kept: bool) -> None:
    plain = torch.Generator().manual_seed(12)
    torch.manual_seed(12)
    torch.rand(600)
    torch.rand(600, generator=plain)
    tape.forget()

    def batch() -> list[float]:
        while True:
            tapes.append(tape.of_default(700))
            found = [tapes[-1].uniform((0.0, 1.0)) for _ in range(20)]
            found.append(tapes[-1].by(lambda generator: torch.rand(1, generator=generator).item(), 1))
            if tapes[-1].commit():
                return found

    tapes = list[tape.Tape]()
    for number in range(4):
        tapes.clear()
        if number == 3:
            torch.rand(drawn)
            torch.rand(drawn, generator=plain)
        assert batch() == [torch.rand(1, generator=plain).item() for _ in range(21)]
        assert torch.equal(torch.get_rng_state(), plain.get_state())
    assert len(tapes) == 2
    assert (tapes[0] is tapes[1]) == kept


def test_a_batch_is_not_drawn_again_where_others_draw_between_all_batches() -> None:
    plain = torch.Generator().manual_seed(13)
    torch.manual_seed(13)
    tape.forget()
    tapes, again = list[tape.Tape](), 0
    for number in range(60):
        torch.rand(number % 4 + 1)
        torch.rand(number % 4 + 1, generator=plain)
        while True:
            tapes.append(tape.of_default(8))
            found = [tapes[-1].uniform((0.0, 1.0)) for _ in range(8)]
            if tapes[-1].commit():
                break
            again += 1
        assert found == [torch.rand(1, generator=plain).item() for _ in range(8)]
        assert torch.equal(torch.get_rng_state(), plain.get_state())
    assert again == 0
    assert len(set(map(id, tapes))) < 15


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_numbers_that_are_equal_do_not_keep_a_tape(count: int) -> None:
    torch.manual_seed(12)
    tape.forget()
    for _ in range(2):
        told = tape.of_default(30)
        told.uniform((0.0, 1.0))
        assert told.commit()
    state = torch.get_rng_state()
    state[24 + 8 * 600] ^= 1  # of an output that comes far behind
    torch.set_rng_state(state)
    again = tape.of_default(count)
    assert again is told
    for _ in range(count):
        again.below(100)
    assert not again.commit()
    assert torch.equal(torch.get_rng_state(), state)


def test_nobody_draws_while_a_state_is_advanced() -> None:
    """Else what another thread draws meanwhile would be given out again."""
    state = torch.Generator().manual_seed(5).get_state()
    assert generator_state.advance(state, state.clone(), 1, 0) == 0
    with_the_gil = ctypes.PYFUNCTYPE(None)._flags_
    assert generator_state._advance._entry._flags_ == with_the_gil != ctypes.CFUNCTYPE(None)._flags_


@pytest.mark.parametrize(("place", "value"), [(1, 0), (1, 625), (2, 625), (2, -1)])
def test_a_state_that_torch_does_not_make_is_refused(place: int, value: int) -> None:
    state = torch.Generator().manual_seed(5).get_state()
    state.view(torch.int64)[place] = value
    with pytest.raises(ValueError, match="state"):
        tape.Tape(state, 5).outputs()
    with pytest.raises(ValueError, match="state"):
        generator_state.advance(state, state.clone(), 5, 5)


@pytest.mark.parametrize(
    ("owner", "name", "why"),
    [
        (draws.Flip, "draw", "something else"),
        (draws.ResizedCrop, "place", "something else"),
        (tape.Tape, "exp", "torch"),
        (tape_trials, "advance", "torch"),
    ],
)
def test_what_differs_is_found_before_it_is_used(
    owner: Any, name: str, why: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = getattr(owner, name)

    def wrong(self: Any, *given: Any) -> Any:
        found = own(self, *given)
        if name == "draw":
            given[0].row[-1] = not given[0].row[-1]
        elif name == "place":
            found = (found[0], found[1], found[2], max(found[3] - 1, 1)) if given[1:] == (3, 400) else found
        elif name == "advance":
            found = found or -1
        else:
            found = float(np.nextafter(np.float32(found), np.float32(9)))
        return found

    monkeypatch.setattr(owner, name, wrong)
    monkeypatch.setattr(program, "_programs", {})
    tape_trials.agrees.cache_clear()
    try:
        assert_one_by_one(ImageFolder(str(root), PIPELINES["train"]()), why)
    finally:
        tape_trials.agrees.cache_clear()


def test_what_torch_draws_is_tried_as_usual_under_another_default() -> None:
    """For what was found then holds as long as the process."""
    tape_trials.agrees.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        assert tape_trials.agrees()
    finally:
        torch.set_default_dtype(torch.float32)
        tape_trials.agrees.cache_clear()


def test_explain_and_stats_say_which_way(root: Path) -> None:
    with accel.image_backend("cpu"):
        dataset = ImageFolder(str(root), PIPELINES["train"]())
        state = helpers.random_states()
        assert "drawn in one go" in accel.explain(dataset)
        assert "drawn in one go" in accel.explain(DataLoader(dataset))
        assert accel.explain(dataset.transform).startswith("Compose: compiled")
        assert "not compiled: Lambda" in accel.explain(T.Compose([T.Lambda(abs)]))
        assert "one by one: Doubled has" in accel.explain(Doubled(str(root), PIPELINES["train"]()))
        assert helpers.random_states() == state
        images, _ = next(iter(DataLoader(dataset, 4)))
        assert "together:" in accel.explain(images)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch_size": None}, "no batches"),
        ({}, "so few"),
        ({"batch_size": 8, "collate_fn": list}, "in memory"),
    ],
)
def test_explain_knows_what_a_loader_asks_for(
    options: dict[str, Any], why: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "FEW", 4)
    loader = DataLoader(ImageFolder(str(root), PIPELINES["train of v2"]()), **options)
    with accel.image_backend("cpu"):
        assert "one by one" in accel.explain(loader)
        assert why in accel.explain(loader)
        assert "drawn in one go" in accel.explain(DataLoader(loader.dataset, 4))


def test_a_batch_of_few_is_made_one_by_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = check(ImageFolder(str(root), PIPELINES["train"]()), batch_size=5)
    assert found == {TOGETHER: 40, "one by one: a batch of so few would take longer": 12}

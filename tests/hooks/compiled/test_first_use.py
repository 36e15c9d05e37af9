"""The checks at first use of a program, and what is said of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.hooks.compiled import batch
from accel.hooks.compiled.random_numbers import tape
from accel.hooks.compiled.transforms import draws
from tests.hooks.compiled.own import Doubled
from tests.hooks.compiled.support import PIPELINES, TOGETHER, assert_one_by_one, check
from tests.support import helpers, inside


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
    assert told.commit() is None
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_tape_goes_on_where_nobody_else_has_drawn() -> None:
    torch.manual_seed(12)
    plain = torch.Generator().manual_seed(12)
    tapes = list[tape.Tape]()
    for number in range(200):
        told = tape.of_default(5)
        assert told.length - told.at >= 5
        tapes.append(told)
        drawn = [told.uniform((0.0, 1.0)) for _ in range(number % 5)]
        if number % 13 != 12:  # else as a batch that is refused
            assert told.commit() is None
            assert drawn == [torch.rand(1, generator=plain).item() for _ in drawn]
        if number % 29 == 28 or number > 190:
            torch.rand(1)
            torch.rand(1, generator=plain)
        assert torch.equal(torch.get_rng_state(), plain.get_state())
    assert 20 < len(set(map(id, tapes))) < 100


def test_numbers_that_are_equal_do_not_keep_a_tape() -> None:
    torch.manual_seed(12)
    told = tape.of_default(30)
    told.uniform((0.0, 1.0))
    assert told.commit() is None
    assert tape.of_default(5) is told
    assert told.commit() is None
    state = torch.get_rng_state()
    state[24 + 8 * 600] ^= 1  # of an output that comes far behind
    torch.set_rng_state(state)
    assert tape.of_default(5) is not told


@pytest.mark.parametrize(
    ("owner", "name", "why"),
    [
        (draws.Flip, "draw", "something else"),
        (draws.ResizedCrop, "place", "something else"),
        (tape.Tape, "exp", "torch"),
        (tape.Tape, "outputs", "torch"),
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
        elif name == "outputs":
            found = found ^ 1 << 30
        else:
            found = float(np.nextafter(np.float32(found), np.float32(9)))
        return found

    monkeypatch.setattr(owner, name, wrong)
    inside.forget_programs(monkeypatch)
    tape.agrees.cache_clear()
    try:
        assert_one_by_one(ImageFolder(str(root), PIPELINES["train"]()), why)
    finally:
        tape.agrees.cache_clear()


def test_what_torch_draws_is_tried_as_usual_under_another_default() -> None:
    """For what was found then holds as long as the process."""
    tape.agrees.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        assert tape.agrees()
    finally:
        torch.set_default_dtype(torch.float32)
        tape.agrees.cache_clear()


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

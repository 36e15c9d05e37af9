"""Plans of rows by columns of descriptors: the same values as the plans of their recipes, one by one."""

from typing import Any

import numpy as np
import pytest
import torch

import accel
from accel.backends.cuda import columns, lowering
from accel.planning import columns as planning
from accel.planning.columns import ColumnPlan
from accel.planning.plan import plan
from accel.processes.switch import active
from accel.recipes.rows import Form, Pictures, Rows, Slot, Structure
from tests.backends.cuda.cropped import COLOUR, DAMAGED, FILES, cropped, outcome, sources, values
from tests.support.rows import lacking, random_rows


def equal(rows: Rows, again: Rows, interleaved: bool) -> None:
    found, wanted = values(rows, interleaved), values(list(again), interleaved)
    assert found.stride() == wanted.stride()
    assert torch.equal(found, wanted)


@pytest.fixture
def by_columns(monkeypatch: pytest.MonkeyPatch) -> list[ColumnPlan]:
    """The plans that were lowered by columns."""
    found: list[ColumnPlan] = []
    original = columns.schedule_of

    def lowered(plan: ColumnPlan, addresses: Any) -> Any:
        found.append(plan)
        return original(plan, addresses)

    monkeypatch.setattr(columns, "schedule_of", lowered)
    return found


@pytest.mark.parametrize("decoder", ["accel", "host"])
@pytest.mark.parametrize("seed", range(20))
def test_files(seed: int, decoder: str, by_columns: list[ColumnPlan]) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1, decode=decoder):
        rows = random_rows(np.random.default_rng(seed), sources(FILES))
        equal(rows, Rows(sources(FILES), rows.structure, rows.numbers), bool(seed % 2))
    codes = {params[2] & 7 for name, params, _ in rows.structure.forms if name == "resize"}
    assert len(by_columns) == (not codes & {1, 5})


@pytest.mark.parametrize("seed", range(12))
def test_pictures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    with accel.image_backend("cuda", device="cpu", threads=1):
        selection = active()
        assert selection is not None
        pixels = rng.integers(0, 256, ((20, 32, 32, 3), (20, 28, 28))[seed % 2], np.uint8)
        rows = random_rows(rng, Pictures(pixels, "pictures", selection))
        equal(rows, rows, bool(seed % 3))


@pytest.mark.parametrize("seed", range(20))
def test_bytes(seed: int) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = random_rows(np.random.default_rng(seed), sources(FILES))
    by_columns, one_by_one = planning.plan(rows), plan(list(rows))
    assert by_columns is not None
    assert columns.device_bytes(by_columns).tolist() == [lowering.device_bytes(each) for each in one_by_one.decodes]
    if columns.accepts(by_columns):
        found, wanted = (
            module.schedule_of(given, np.zeros(len(FILES), np.uint64))  # type: ignore[attr-defined]
            for module, given in ((columns, by_columns), (lowering, one_by_one))
        )
        assert [sorted(level) for level in found.levels] == [sorted(level) for level in wanted.levels]
        assert [launch.total for level in found.levels for launch in level.values()] == [
            launch.total for level in wanted.levels for launch in level.values()
        ]
        assert found.scratch.size == wanted.scratch.size


def test_chunks(by_columns: list[ColumnPlan]) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1, memory=100_000):
        equal(cropped(COLOUR), cropped(COLOUR), False)
    assert not by_columns  # a part of the rows is no plan of rows


@pytest.mark.parametrize("decoder", ["accel", "host"])
def test_a_damaged_file(decoder: str, by_columns: list[ColumnPlan]) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1, decode=decoder):
        assert outcome(cropped(DAMAGED)) == outcome(list(cropped(DAMAGED)))
    with accel.image_backend("cuda", device="cpu", threads=1, decode=decoder, on_error="replace"):
        equal(cropped(DAMAGED), cropped(DAMAGED), False)
    assert len(by_columns) == 2


def test_steps_that_some_images_lack(by_columns: list[ColumnPlan]) -> None:
    files = [*COLOUR, FILES[-2], *COLOUR, FILES[-2]]
    with accel.image_backend("cuda", device="cpu", threads=1):
        equal(lacking(sources(files)), lacking(sources(files)), False)
    assert by_columns


@pytest.mark.parametrize(("height", "width"), [(1, 6), (6, 1), (3, 3)])
def test_windows_that_show_nothing_of_a_picture(height: int, width: int, by_columns: list[ColumnPlan]) -> None:
    """Along one axis, both or neither, in one batch; some show a part that is away from the picture's corner."""
    corners = [(top, left) for top in (0, 5, 8, 10, 15) for left in (0, 5, 8, 10, 15)]
    steps = (
        Form("convert", ("RGB",)),
        Form("resize", (height, width, 4)),
        Form("pad", (8, 8, 8, 8, "constant", (7, 8, 9))),
        Form("crop", (Slot(0), Slot(1), height, width)),
        Form("pil_to_tensor"),
    )
    files = [FILES[n % len(FILES)] for n in range(len(corners))]
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = Rows(sources(files), Structure.of(*steps), np.array(corners, np.int64))
        equal(rows, rows, False)
    assert len(by_columns) == 1

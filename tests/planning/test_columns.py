"""Plans of rows by columns: the same numbers as the plans of their recipes, one by one."""

from typing import Any

import numpy as np
import pytest
import torch

from accel.codec.header import Raw
from accel.ops.resample import Aten, rows_first
from accel.planning import columns
from accel.planning.columns import ColumnPlan
from accel.planning.plan import Plan, plan
from accel.planning.stages import Pass
from accel.recipes.options import Options, Selection
from accel.recipes.recipe import Source
from accel.recipes.rows import Form, Pictures, Rows, Slot, Structure
from accel.system import memory
from tests.support.rows import random_rows

SELECTION = Selection("cpu", Options())
SIZES = [(60, 45), (31, 90), (1, 1), (17, 16), (2, 77), (64, 64), (13, 4)]
SOURCES = [
    Source(bytes(h * w * (3 if n % 2 else 1)), Raw(w, h, "RGB" if n % 2 else "L"), "a picture", SELECTION)
    for n, (h, w) in enumerate(SIZES)
]


def check(found: ColumnPlan, wanted: Plan) -> None:
    numbers = found.columns
    assert (found.shape, found.dtype, found.interleaved) == (wanted.shape, wanted.dtype, wanted.interleaved)
    for place, decode in enumerate(wanted.decodes):
        (item,) = decode.items
        (stage,) = item.stages
        assert isinstance(stage, Pass)
        assert item.position == place
        assert (numbers.channels, tuple(numbers.boxes[place])) == (decode.channels, decode.box)
        assert torch.equal(numbers.table, item.table)
        for axis, own in zip((stage.rows, stage.columns), numbers.axes[:, place].tolist(), strict=True):
            assert (axis.view.start, axis.view.step, axis.view.length, axis.size) == tuple(own[:4])
            shown = own[4] + own[5] * np.arange(axis.window.length)
            outside = (shown < 0) | (shown >= axis.size)
            window = axis.window.array()
            assert (np.where(outside, -1, shown) == np.maximum(window, -1)).all()
            assert {stage.fills[-1 - code] for code in window[outside]} <= {numbers.fill}
        assert stage.resample in (0, numbers.resample)
        sizes = stage.rows.view.length, stage.columns.view.length, stage.rows.size, stage.columns.size
        assert numbers.rows_first[place] == rows_first(numbers.resample, *sizes)
        assert numbers.resampled[:, place].tolist() == [stage.rows.resampled, stage.columns.resampled]


@pytest.mark.parametrize("pillow", [(12, 1), (12, 2), (13, 0)])
def test_the_order_of_the_axes_by_the_version_of_pillow(
    pillow: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [(400, 3), (30, 29), (1000, 9), (5, 400), (90, 60), (299, 3), (2, 2), (64, 9), (40, 10), (7, 7)]
    pictures = [Source(bytes(h * w), Raw(w, h, "L"), "a picture", SELECTION) for h, w in sizes]
    real = columns.order_of
    monkeypatch.setattr(columns, "order_of", lambda code: real(code, pillow))
    columns._program.cache_clear()
    found = set()
    for code in (2, 3, Aten.BILINEAR):
        for new in ((7, 7), (32, 5), (3, 30), (300, 3)):
            rows = Rows(pictures, Structure.of(Form("resize", (*new, code))), np.zeros((len(sizes), 0), np.int64))
            planned = columns.plan(rows)
            assert planned is not None
            own = [bool(rows_first(code, *size, *new, pillow=pillow)) for size in sizes]
            assert planned.columns.rows_first.tolist() == own
            found |= {*own}
    columns._program.cache_clear()
    assert found == ({False} if pillow < (12, 2) else {False, True})


@pytest.mark.parametrize("seed", range(150))
def test_as_one_by_one(seed: int) -> None:
    rows = random_rows(np.random.default_rng(seed), SOURCES)
    found = columns.plan(rows, interleaved=bool(seed % 2))
    assert found is not None
    check(found, plan(list(rows), interleaved=bool(seed % 2)))


def test_who_does_not_know_columns_has_the_plan() -> None:
    rows = random_rows(np.random.default_rng(0), SOURCES)
    found, wanted = columns.plan(rows), plan(list(rows))
    assert found is not None
    assert [each.box for each in found.decodes] == [each.box for each in wanted.decodes]
    part = found._replace(decodes=found.decodes[:2])
    assert type(part) is Plan
    assert len(part.decodes) == 2


CROP = Form("crop", (Slot(0), 0, 1, 1))
TO = Form("pil_to_tensor")


@pytest.mark.parametrize(
    "forms",
    [
        (CROP, Form("equalize"), TO),
        (CROP, Form("invert"), TO),
        (CROP, Form("resize", (5, 5, 2)), Form("resize", (4, 4, 2)), TO),
        (CROP, Form("resize", (5, 5, Aten.BICUBIC_POINT)), TO),
        (CROP, Form("pad", (1, 1, 1, 1, "constant", None)), Form("resize", (4, 4, 2)), TO),
        (CROP, Form("pad", (1, 1, 1, 1, "reflect", None)), TO),
        (CROP, Form("pad", (1, 1, 1, 1, "constant", None)), TO),
        (CROP, Form("crop", (0, 0, 2, 1)), TO),
        (Form("crop", (-1, Slot(0), 1, 1)), TO),
        (CROP, TO, Form("erase", (0, 0, 1, 1, torch.zeros(1, 1, 1)))),
        (CROP, TO, Form("normalize", ((0.5,), (0.5,)), 0)),
        (Form("convert", ("RGB",), 0), TO),
    ],
)
def test_what_columns_cannot_say(forms: Any) -> None:
    rows = Rows(SOURCES[:2], Structure.of(*forms), np.zeros((2, 1), np.int64))
    assert columns.plan(rows) is None


def test_one_source_twice_is_decoded_once() -> None:
    rows = Rows([SOURCES[0]] * 2, Structure.of(CROP, TO), np.zeros((2, 1), np.int64))
    assert columns.plan(rows) is None
    assert len(plan(rows).decodes) == 1


def test_unequal_results_are_no_plan() -> None:
    rows = Rows(SOURCES[1:4:2], Structure.of(Form("hflip"), TO), np.zeros((2, 0), np.int64))
    assert columns.plan(rows) is None
    with pytest.raises(ValueError, match="come out alike"):
        plan(rows)


def test_images_of_several_sizes_lie_apart() -> None:
    rows = Rows(SOURCES[1::2], Structure.of(Form("resize", (Slot(0), 9, 2)), TO), np.array([[5], [20], [64]]))
    found = columns.plan_apart(rows)
    assert found is not None
    assert found.columns.parts.tolist() == [[0, 5, 9], [5 * 9 * 3, 20, 9], [25 * 9 * 3, 64, 9]]
    result, bits = found.target(memory.results.empty)
    assert result.shape == bits.shape == (89 * 9 * 3,)
    for place, recipe in enumerate(rows):
        wanted, own = columns.plan(Rows.of([recipe]) or rows), found.columns
        assert wanted is not None
        assert (wanted.columns.boxes[0] == own.boxes[place]).all()
        assert (wanted.columns.axes[:, 0] == own.axes[:, place]).all()


def test_pictures_are_sources() -> None:
    pixels = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    pictures = Pictures(pixels, "a picture", SELECTION)
    assert [bytes(source.data) for source in pictures] == [each.tobytes() for each in pixels]
    assert pictures[1] is pictures[-1]
    assert pictures[0].header == Raw(4, 3, "RGB")
    rows = Rows(pictures, Structure.of(Form("hflip"), TO), np.zeros((2, 0), np.int64))
    found = columns.plan(rows)
    assert found is not None
    check(found, plan(list(rows)))
    assert next(iter(rows[1:])).source.data == pictures[1].data
    assert [source.data for source in pictures.apart()] == [source.data for source in pictures]
    with pytest.raises(ValueError, match="pictures are no"):
        Pictures(pixels.transpose(0, 2, 1, 3), "turned", SELECTION)

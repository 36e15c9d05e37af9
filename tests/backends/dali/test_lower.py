"""Lowering of plans by the dali backend, before DALI has any part in it: these tests need no DALI."""

from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.backends.dali import lowering, lut
from accel.backends.dali.index_maps import _region, _run
from accel.backends.dali.lowering import NOT_INTACT, TOO_LARGE
from accel.backends.dali.partition import Partition, partition
from accel.codec.header import claim
from accel.ops import OPS
from accel.ops.index import Index
from accel.ops.resample import Aten
from accel.planning import lut as tables
from accel.planning.plan import plan
from accel.processes.switch import current
from accel.recipes.recipe import Recipe, Source, Step
from tests.support.helpers import jpeg, pictures

TENSOR: Step = ("to_tensor", (torch.float32,))
NORMALIZE: Step = ("normalize", ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def source(data: bytes) -> Source:
    header = claim(data)
    assert header is not None
    return Source(data, header, "file", current())


def shares(*recipes: Recipe, exact: bool = False, on_host: bool = True) -> Partition:
    return partition(plan(recipes), exact=exact, on_host=on_host)


def operators(*steps: Step, values: tuple[Step, ...] = (TENSOR, NORMALIZE)) -> tuple[list[str], list[str]]:
    """The names of what DALI does for an RGB image of 200 x 150, and why it does no more."""
    found = shares(Recipe(source(jpeg(200, 150)), steps + values))
    return [name for work in found.given for name in work.structure.names[1:]], list(found.reasons)


CORE = [("crop", (10, 20, 100, 120)), ("resize", (50, 60, 2)), ("hflip", ())]


def test_the_core_five_are_three_operators() -> None:
    assert operators(*CORE) == (["resize", "crop_mirror_normalize"], [])  # the decoder crops, the resize flips
    assert operators(("crop", (10, 20, 100, 120)), ("hflip", ())) == (["crop_mirror_normalize"], [])
    assert operators(("vflip", ())) == (["flip", "crop_mirror_normalize"], [])


def test_parameters_are_no_part_of_the_structure() -> None:
    """Images with other sizes, crops, scales and flips are one pipeline's."""
    recipes = []
    for number in range(6):
        steps: list[Step] = [("crop", (number, 2 * number, 50 + number, 70)), ("resize", (40, 30, 2))]
        steps += [("hflip", ())] * (number % 2)
        steps += [("vflip", ())] * (number % 3 == 0)
        recipes.append(Recipe(source(jpeg(100 + number, 90 + number)), (*steps, TENSOR, NORMALIZE)))
    found = shares(*recipes)
    assert len({work.structure for work in found.finished}) == 1
    assert len({work.fed for work in found.finished}) == 6
    assert not found.begun
    assert not found.left


def test_regions_only_are_decoded() -> None:
    work = shares(Recipe(source(jpeg(200, 150)), (*CORE, TENSOR))).finished[0]
    assert work.box == (10, 20, 100, 120)
    resize = work.fed[:3]
    assert resize == ((50, 60), (0.0, 120.0), (100.0, 0.0))  # from the right to the left: flipped


def test_a_window_of_a_resize_is_all_that_is_resized() -> None:
    steps = (("resize", (75, 100, 2)), ("crop", (10, 20, 40, 50)))
    work = shares(Recipe(source(jpeg(200, 150)), (*steps, TENSOR))).finished[0]
    size, start, end = work.fed[:3]
    top, left = work.box[:2]
    assert size == (40, 50)
    assert [a + b for a, b in zip(start, (top, left), strict=True)] == [20.0, 40.0]
    assert [a + b for a, b in zip(end, (top, left), strict=True)] == [100.0, 140.0]
    assert work.box[2] < 150
    assert work.box[3] < 200


@pytest.mark.parametrize(
    ("code", "filter"),
    [
        (Aten.BILINEAR, ("LINEAR", True)),
        (Aten.BILINEAR_POINT, ("LINEAR", False)),
        (Aten.BICUBIC, ("CUBIC", True)),
        (Aten.BICUBIC_POINT, ("CUBIC", False)),
    ],
)
def test_filters_antialias_as_torchs_do(code: Aten, filter: tuple[str, bool]) -> None:
    work = shares(Recipe(source(jpeg(200, 150)), (("resize", (50, 60, code)), TENSOR))).finished[0]
    assert work.structure.operators[0] == ("resize", filter)


def test_few_columns_are_decoded_with_their_neighbours() -> None:
    """libjpeg-turbo's chroma of a few columns is not that of the whole picture."""
    for left, width, first in ((0, 1, 0), (30, 3, 30), (199, 1, 195), (197, 2, 195)):
        work = shares(Recipe(source(jpeg(200, 150)), (("crop", (0, left, 9, width)), TENSOR)), exact=True).begun[0]
        assert work.box == (0, first, 9, 5)
        assert work.structure.names == ["decoders.image_slice", "crop"]
        assert work.fed == ((0, left - first), (9, width))


def test_exact_decodes_and_no_more() -> None:
    work = shares(Recipe(source(jpeg(200, 150)), (*CORE, TENSOR)), exact=True).begun[0]
    assert work.structure.names == ["decoders.image_slice"]
    assert work.rest is None  # all of it


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((("resize", (40, 50, 4)),), "no box and no Hamming"),
        ((("pad", (1, 2, 3, 4, "reflect", None)),), "no border but a constant one"),
        ((("pad", (1, 2, 3, 4, "constant", (1, 2, 3))), ("resize", (40, 50, 2))), "padded"),
        ((("adjust_hue", (0.2,)),), "hue"),
        ((("affine", (40, 50, (1.0, 0.2, 0.0, 0.1, 1.0, 0.0), 3, (0, 0, 0))),), "bilinearly only"),
        ((("affine", (40, 50, (1.0, 0.2, 0.0, 0.1, 1.0, 0.0), 2, (1, 2, 3))),), "one grey only"),
        ((("perspective", (40, 50, (1, 0, 0, 0, 1, 0, 0, 0), 2, (0, 0, 0))),), "perspective"),
        ((("point", (bytes(level * 7 % 256 for level in range(256)) * 3,)),), "table of levels"),
    ],
    ids=str,
)
def test_what_dali_cannot_do_is_left_with_a_reason(steps: tuple[Step, ...], reason: str) -> None:
    names, reasons = operators(("adjust_contrast", (0.7,)), *steps)
    assert names == ["contrast"]
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_where_it_does_not_finish_on_a_gpu_it_decodes_and_leaves_the_rest() -> None:
    recipe = Recipe(source(jpeg(200, 150)), (("adjust_contrast", (0.7,)), ("adjust_hue", (0.2,)), TENSOR))
    assert shares(recipe).begun[0].structure.names == ["decoders.image_slice", "contrast"]
    assert shares(recipe, on_host=False).begun[0].structure.names == ["decoders.image_slice"]


def test_values_that_dali_cannot_give_are_left() -> None:
    for step, reason in ((("to", (torch.float64,)), "float64"), (("to", (torch.bfloat16,)), "bfloat16")):
        names, reasons = operators(("hflip", ()), values=(TENSOR, step))
        assert names == ["flip"]
        assert reason in reasons[0]


def test_files_that_are_not_plainly_intact_are_left() -> None:
    data = jpeg(64, 48)
    two_scans = data[:-2] + b"\xff\xda" + data[-2:]
    for stream in (data[:-2], two_scans):
        found = shares(Recipe(source(stream), (TENSOR,)))
        assert list(found.reasons) == [NOT_INTACT]
        assert len(found.left) == 1
    assert not shares(*[Recipe(source(data), (TENSOR,))]).left


def test_giant_regions_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    most = partial(monkeypatch.setattr, lowering, "_LARGEST")
    most(100 * 100 * 3)
    whole, part = Recipe(source(jpeg(200, 150)), (TENSOR,)), Recipe(source(jpeg(200, 150)), (*CORE, TENSOR))
    assert shares(whole).reasons == {TOO_LARGE: 1}
    assert shares(whole, exact=True).reasons == {TOO_LARGE: 1}
    assert shares(part).reasons == {TOO_LARGE: 1}  # 100 x 120
    most(100 * 120 * 3)
    assert not shares(part).left


def test_every_kind_of_file_is_taken() -> None:
    for named in pictures():
        assert len(shares(Recipe(source(named.data), (("convert", ("RGB",)), TENSOR))).finished) == 1, named


def recognised(name: str, *params: Any) -> Any:
    table = tables.table(name, params, 3)
    return lut._recognised(table.tobytes(), 3)


def test_tables_of_levels_are_recognised() -> None:
    assert recognised("posterize", 3) == ("mask", (0xE0,))
    assert recognised("posterize", 8) == ("", ())
    assert recognised("solarize", 100.5) == ("fold", (101,))
    name, (factor, shift) = recognised("invert")
    assert (name, round(factor, 6), round(shift, 4)) == ("line", -1, 255)
    name, (factor, shift) = recognised("adjust_brightness", 1.3)
    assert name == "line"
    assert abs(factor - 1.3) < 0.01
    name, (exponent, gain) = recognised("adjust_gamma", 2.2, 1.0)
    assert name == "power"
    assert abs(exponent - 2.2) < 0.05
    assert abs(gain - 1) < 0.05
    assert recognised("point", bytes(level * 7 % 256 for level in range(768))) is None


def test_channels_with_tables_of_their_own_are_not_recognised() -> None:
    table = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
    table[1] = table[1][::-1]
    assert recognised("point", table.tobytes()) is None


@pytest.mark.parametrize("dtype", lut.DTYPES)
def test_values_on_a_line_are_recognised(dtype: torch.dtype) -> None:
    table = torch.arange(256).expand(3, 256).contiguous()
    values = table.to(dtype) if dtype == torch.uint8 else ((table / 255 - 0.4) / 0.2).to(dtype)
    found = lut.line(values)
    assert found is not None
    mean, std = (torch.tensor(each, dtype=torch.float64)[:, None] for each in found)
    made = (table - mean) / std
    assert (made - values.double()).abs().max() <= (0.01 if dtype == torch.float16 else 1e-4)
    bent = values.clone()
    bent[0, 100] = values[0, 120]
    assert lut.line(bent) is None
    assert lut.line(torch.zeros_like(values)) is None


@pytest.mark.parametrize("name", ["resize_nearest", "nearest", "nearest_exact"])
@pytest.mark.parametrize(("length", "size"), [(200, 77), (50, 111), (64, 48), (640, 224), (7, 100)])
def test_nearest_resizes_are_recognised(name: str, length: int, size: int) -> None:
    lower = OPS[name].lower
    assert lower is not None
    rows, columns = lower((Index.identity(length), Index.identity(length)), (size, size), -1)
    for index in (rows, columns.flip()):
        region = _region(index, length)
        if region is not None:  # not all of torch's dialect are DALI's
            assert region in ((0, length), (length, 0))
            assert (region[0] < region[1]) == (index is rows)
        else:
            assert name == "nearest"


def test_flipped_maps_begin_at_their_last_position() -> None:
    assert _run(Index.identity(10).flip()) == (0, 10, True, 0, 0, 0)
    assert _run(Index.identity(10).flip().crop(2, 5, 0)) == (3, 5, True, 0, 0, 0)


def test_maps_with_holes_are_not_taken_for_crops() -> None:
    assert _run(Index.listed([-1, 3, 4, 5, -1])) == (3, 3, False, 1, 1, -1)
    assert _run(Index.listed([5, 4, 3, -2])) == (3, 3, True, 0, 1, -2)
    for table in ([3, 4, 6], [3, -1, 4], [-1, 3, -2], [-1, -1], [2, 2, 3]):
        assert _run(Index.listed(table)) is None
    assert _region(Index.listed([0, 1, 1, 0]), 4) is None


def test_recipes_that_torchvision_records_reach_dali_whole() -> None:
    """Through the switch, with plain torchvision functions."""
    pytest.importorskip("nvidia.dali")
    with accel.image_backend("dali", exact=False):
        image = Image.open(BytesIO(jpeg(200, 150)))
        lazy = F.normalize(F.to_tensor(F.hflip(F.resized_crop(image, 5, 6, 100, 90, [32, 32]))), [0.5] * 3, [0.2] * 3)
        assert "runs: DALI on cpu: decoders.image_slice, resize, crop_mirror_normalize" in accel.explain(lazy)

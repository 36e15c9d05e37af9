"""Rows of the table: a class for each kind, and facts that hold for all of them."""

import io
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import testing
from accel.hooks.recording.images import Call
from accel.ops import OPS, tensor_op
from accel.ops.row import EffectOp, IndexOp, KernelOp, LutOp, Op, Picture, TensorOp, ValueOp
from accel.planning.plan import plan
from accel.planning.stages import Effect
from accel.testing import picture

SHAPE = 3, 64, 48
HOOKED = [(row, hook) for row in OPS.values() for hook in row.hooks]
ON_IMAGES = [row for row in OPS.values() if row.takes == "image" and not isinstance(row, TensorOp) and row.samples]


class State:
    """What a check sees of a lazy tensor."""

    shape = SHAPE

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


@pytest.mark.parametrize("kind", [IndexOp, LutOp, EffectOp, ValueOp, KernelOp])
def test_a_row_has_what_its_kind_needs(kind: Any) -> None:
    with pytest.raises(TypeError, match="missing"):
        kind("new", lambda image, params: image, (), ((),))
    with pytest.raises(TypeError, match="memory"):
        LutOp("new", lambda image, params: image, (), ((),), levels=lambda *_: None, memory="planar")  # type: ignore


def test_ops_on_pixels_have_no_values() -> None:
    with pytest.raises(AssertionError, match="no op on values"):
        tensor_op("crop")


@pytest.mark.parametrize(("row", "hook"), HOOKED, ids=lambda value: getattr(value, "name", value))
def test_checks_take_the_samples_and_nothing_else(row: Op, hook: str) -> None:
    function = accel.hooks.patch.found(hook)
    call = Call.of(function, row.hooks[hook])
    dtype = torch.uint8 if row.takes == "pixels" else torch.float32
    of = Picture(SHAPE) if row.takes == "image" else State(dtype)
    assert call.params(of, (object(),) * (len(call.names) + 1), {}) is None
    assert call.params(of, (), {"no such parameter": 1}) is None
    assert all(call.params(of, sample, dict.fromkeys(call.names[:1])) is None for sample in row.samples if sample)
    if call.names != row.params:  # other forms of it: of blurs and displacements, or a whole call of Pillow's
        return
    taken = [call.params(of, tuple(map(_given, sample)), {}) for sample in row.samples]
    assert None not in taken
    named = [call.params(of, (), dict(zip(row.params, map(_given, sample), strict=True))) for sample in row.samples]
    assert str(named) == str(taken)
    if row.params:
        assert call.params(of, tuple(object() for _ in row.params), {}) is None


def _given(value: Any) -> Any:
    """A parameter as a caller gives it."""
    return list(value) if isinstance(value, tuple) else value


def test_every_hook_is_one_row_s() -> None:
    hooks = [hook for _, hook in HOOKED]
    assert len(hooks) == len(set(hooks)) > 60


@pytest.mark.parametrize("row", ON_IMAGES, ids=lambda row: row.name)
def test_info_is_handed_down_as_pillow_does(row: Op) -> None:
    if row.name == "jpeg":
        return  # it is that of another file
    data = picture((64, 48), "RGB")
    for params in row.samples:
        expected = row.reference(Image.open(io.BytesIO(data)), params).info
        with accel.image_backend("cpu"):
            image = row.reference(Image.open(io.BytesIO(data)), params)
            assert isinstance(image, accel.LazyImage)
            assert image.info == expected, params


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_what_is_kept_is_in_no_plan_and_the_same(mode: str) -> None:
    data, channels = picture((64, 48), mode), len(mode)
    kept = [(row, sample) for row in OPS.values() for sample in row.samples if row.keeps(channels, sample)]
    assert kept
    for row, sample in kept:
        image = Image.open(io.BytesIO(data))
        before = F.to_tensor(image) if isinstance(row, TensorOp) else image
        after = row.reference(before, sample)
        assert F.pil_to_tensor(image).equal(F.pil_to_tensor(after)) if before is image else before.equal(after)
        with accel.image_backend("cpu"):
            lazy = F.to_tensor(row.reference(Image.open(io.BytesIO(data)), sample)) if before is image else None
            if lazy is not None:
                (item,) = plan(lazy.lazy.recipes).decodes[0].items
                assert not any(isinstance(stage, Effect) for stage in item.stages), row.name


def test_a_table_of_levels_is_made_by_torchvision_itself() -> None:
    """Also while its function is hooked, which would record it."""
    assert OPS["adjust_gamma"].reference is not None
    for name in ("adjust_brightness", "adjust_gamma", "invert", "posterize", "solarize"):
        testing.check(testing.Case(name, OPS[name].samples[0], (7, 5), "RGB"), "cpu")

"""Every op of the table on every backend that runs here."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import testing
from accel.hooks.recording.images import Call
from accel.ops import OPS, tensor_op
from accel.ops.row import EffectOp, IndexOp, KernelOp, LutOp, Op, Picture, TensorOp, ValueOp
from accel.planning import values
from accel.planning.plan import plan
from accel.planning.stages import Effect
from accel.testing import picture
from tests.support import helpers, inside
from tests.support.backends import REFERENCE, Backend
from tests.support.cuda import needs_compiler
from tests.support.gaussian import fallbacks
from tests.support.helpers import Named, assert_equal_runs, assert_same, is_lazy
from tests.support.steps import FILTERS, ON_IMAGES, ON_TENSORS, PICTURES, SIZE, TO_TENSOR, Step, outcome

CASES = list(testing.cases())
ON_THE_HOST = ("reduce", "jpeg", "elastic")
SMALL = testing.SIZES[::2]
CASES_OF: dict[str, list[testing.Case]] = {}
for case in CASES:
    CASES_OF.setdefault(case.op, []).append(case)


@pytest.mark.parametrize("op", CASES_OF)
def test_op(op: str, backend: Backend, thorough: bool) -> None:
    """With all parameters, at each size colour or grey; the sweep has both at all."""
    before = fallbacks()
    cases = CASES_OF[op] if thorough else [case for case in CASES_OF[op] if (case.mode == "L") == (case.size in SMALL)]
    with backend.chosen():  # once, as putting the hooks in place takes longer than most cases
        for case in cases:
            testing.check(case, backend.name, **backend.options)
    if backend.name == "cuda" and op not in ON_THE_HOST:
        assert fallbacks() == before, "something else ran it"


@pytest.mark.parametrize("op", CASES_OF)
def test_the_definition_of_an_op(op: str) -> None:
    for case in CASES_OF[op]:
        testing.check(case, REFERENCE.name)


@pytest.mark.gpu
def test_ops_on_a_gpu() -> None:
    for case in CASES:
        testing.check(case, "cuda")


@needs_compiler
@pytest.mark.parametrize("name", ON_THE_HOST)
def test_ops_without_a_kernel_on_the_device_say_so(name: str) -> None:
    case = next(case for case in CASES if case.op == name)
    reason = f"{name} has no kernel for the device; the host ran it"
    before = accel.stats()["fallbacks"].get(reason, 0)
    testing.check(case, "cuda", device="cpu")
    assert accel.stats()["fallbacks"][reason] > before


def test_every_op_is_tried() -> None:
    of_several = {"plus", "weighted", "mixup", "cutmix", "gaussian_noise", "linear_transformation"}
    of_several |= {"contiguous", "in_memory", "threads", "to_levels"}
    warns = {"v2.jpeg"}  # with a newer torchvision, and is refused for it here; all are tried in test_stock.py
    assert {case.op for case in CASES} | warns == set(OPS) - of_several
    assert all(not OPS[name].samples for name in of_several)
    assert len(CASES) > 200


def test_a_wrong_op_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = OPS["crop"]
    monkeypatch.setitem(OPS, "crop", replace(row, lower=lambda axes, params, code: OPS["hflip"].lower(axes, (), code)))
    with pytest.raises((AssertionError, ValueError)):
        testing.check(testing.Case("crop", (0, 0, 64, 48), (64, 49), "RGB"), "cpu")


def test_a_wrong_table_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = OPS["to"]
    monkeypatch.setitem(OPS, "to", replace(row, apply=lambda values, dtype: values.to(dtype) + 1))
    with inside.anew(values._table), pytest.raises(AssertionError, match="differ"):
        testing.check(testing.Case("to", (torch.float64,), (64, 48), "RGB"), "cpu")


# -- rows of the table -----------------------------------------------------------------------------------------------


SHAPE = 3, 64, 48
HOOKED = [(row, hook) for row in OPS.values() for hook in row.hooks]
OF_IMAGES = [row for row in OPS.values() if row.takes == "image" and not isinstance(row, TensorOp) and row.samples]


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


@pytest.mark.parametrize("row", OF_IMAGES, ids=lambda row: row.name)
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


# -- properties ------------------------------------------------------------------------------------------------------


def touched(value: Any) -> Any:
    """The same value with its pixels computed: what comes next is not fused with what was."""
    if isinstance(value, Image.Image):
        value.load()
        return value
    _ = value == 0
    return value


def test_fused_equals_stepwise_equals_torchvision(thorough: bool) -> None:
    """The sweep tries many; what is fused of files and of pixels is tried in test_geometry and test_from_pixels too."""

    examples = 400 if thorough else 200

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.sampled_from(PICTURES), st.lists(ON_IMAGES, max_size=6), TO_TENSOR, st.lists(ON_TENSORS, max_size=4))
    def check(picture: Named, images: list[Step], to_tensor: Callable[[Any], Any], tensors: list[Step]) -> None:
        chain: list[Any] = [*images, to_tensor, *tensors]
        fused = assert_equal_runs(lambda: outcome(picture.open, chain))
        with accel.image_backend("cpu"):
            assert_same(outcome(picture.open, chain, touched), fused)

    check()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    chosen=st.lists(st.sampled_from(PICTURES), min_size=1, max_size=5),
    images=st.lists(ON_IMAGES, max_size=4),
    size=SIZE,
)
def test_batches_of_any_sequence(chosen: list[Named], images: list[Step], size: list[int]) -> None:
    """Different files and steps, one shape: one program, equal to torchvision's stack."""

    def batch() -> Any:
        tensors = []
        for number, named in enumerate(chosen):
            image = named.open().convert("RGB")
            for step in images[number:]:
                image = step(image)
            tensors.append(F.to_tensor(F.resize(image, size, FILTERS[number])))
        return torch.stack(tensors)

    assert_equal_runs(lambda: helpers.outcome(batch))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(images=st.lists(ON_IMAGES.filter(lambda step: step.function is not F.pad), max_size=6))
def test_recorded_steps_stay_lazy(images: list[Step]) -> None:
    with accel.image_backend("cpu"):
        image = PICTURES[0].open()
        for step in images:
            image = step(image)
        assert is_lazy(image)
        assert is_lazy(F.to_tensor(image))

"""Every op of the table on every backend that runs here."""

from dataclasses import replace

import pytest
import torch

import accel
from accel import testing
from accel.ops import OPS
from accel.planning import values
from tests.support.backends import REFERENCE, Backend
from tests.support.cuda import needs_compiler
from tests.support.gaussian import fallbacks

CASES = list(testing.cases())
ON_THE_HOST = ("reduce",)
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
    values._table.cache_clear()
    with pytest.raises(AssertionError, match="differ"):
        testing.check(testing.Case("to", (torch.float64,), (64, 48), "RGB"), "cpu")
    values._table.cache_clear()

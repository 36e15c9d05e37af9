"""The backends that run here, for tests that ask of each of them the same."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
from torchvision import tv_tensors

import accel
from accel import testing
from accel.backend import find
from tests.support import helpers
from tests.support.cuda import DEVICE, needs_compiler


class Backend(NamedTuple):
    """A backend and its options; an accelerator's computes on the host, unless $ACCEL_TEST_DEVICE names a device."""

    name: str
    options: dict[str, Any]

    def chosen(self, **options: Any) -> AbstractContextManager[Any]:
        return accel.image_backend(self.name, **self.options, **options)

    def computed(self, value: Any) -> Any:
        """A lazy value, or each of a list, computed by this backend itself, not by its host backend; others as is."""
        if not find(self.name).devices:
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.computed, value))
        if not helpers.is_lazy(value):
            return value
        made = testing.computed(value)
        return made.as_subclass(tv_tensors.Image) if isinstance(value, tv_tensors.Image) else made

    def made(self, function: Callable[[], Any], seed: int = 0, **options: Any) -> tuple[Any, tuple[Any, ...]]:
        """The function's recordings under this backend, computed; and the random states that it leaves."""
        with self.chosen(**options):
            helpers.seed_everything(seed)
            made, states = function(), helpers.random_states()
            return self.computed(made), states

    def equals_torchvision(self, function: Callable[[], Any], seed: int = 0, **options: Any) -> Any:
        """The function's result, which is torchvision's in every bit, as are the random states after it."""
        expected, states = helpers.run("torchvision", function, seed)
        found, states_after = self.made(function, seed, **options)
        assert states_after == states
        helpers.assert_same(found, expected)
        return found


def fallbacks() -> dict[str, int]:
    """What fell back, and how often; but for pixels that the tests themselves ask for."""
    return {reason: count for reason, count in accel.stats()["fallbacks"].items() if "asked for" not in reason}


CPU = Backend("cpu", {})
CUDA = Backend("cuda", {"device": DEVICE})
DALI = Backend("dali", {"device": "cpu", "threads": 1})
REFERENCE = Backend("reference", {})
"""Slow, so it is no one of those that a test asks for by ``backend``: the definition of what they do."""

BACKENDS = [
    pytest.param(CPU, id="cpu"),
    pytest.param(CUDA, id="cuda", marks=needs_compiler),
    *([pytest.param(DALI, id="dali")] if find_spec("nvidia") and find_spec("nvidia.dali") else []),
]


def on_backends(cases: Iterable[Any], sensible: Callable[[Any, Backend], bool]) -> pytest.MarkDecorator:
    """Parametrizes a test of ``case`` and ``backend`` with those pairs of them that are worth the time."""
    kept = list(cases)
    pairs = [
        pytest.param(case, param.values[0], id=f"{case}-{param.id}", marks=param.marks)
        for param in BACKENDS
        for case in kept
        if sensible(case, param.values[0])  # type: ignore[arg-type]
    ]
    return pytest.mark.parametrize(("case", "backend"), pairs)

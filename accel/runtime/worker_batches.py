"""Batches that a worker has finished ahead of a device: whether its work gives what is wanted, or how it is converted.

A worker does not know in which dtype and memory order its first batches will be used (``processes.uses``). What it
finished otherwise is computed as it is, and a second pass on the device makes the rest, which is as exact: a float
rounds to another as on the host. A cast from floats to integers, and any other step, is not: such a batch is planned
again, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from accel.planning.plan import FinishedPlan, Plan
from accel.recipes.arrived import Arrived
from accel.recipes.recipe import Recipe, Step
from accel.system import counters

Steps = tuple[Step, ...]


def exact(dtype: torch.dtype, steps: Sequence[Step]) -> bool:
    """Whether casts and memory orders of values of this dtype have the same result on a device and on the host."""
    for name, params in steps:
        if name == "to":
            (into,) = params
            if dtype.is_floating_point and not into.is_floating_point:
                return False
            dtype = into
    return True


def from_worker(
    recipes: Arrived, interleaved: bool, run: Callable[[FinishedPlan], torch.Tensor]
) -> torch.Tensor | None:
    """The images that a worker has finished, as they are wanted; None, counted: they must be planned again.

    ``run``: runs the finished plan, on a device.
    """
    ahead, casts = recipes.ahead, _left(recipes)
    if isinstance(casts, str):
        counters.fallback(f"a batch that a worker had finished was planned again: {casts}")
        return None
    made = run(FinishedPlan.of(recipes.with_only(ahead.casts)))
    if not casts and interleaved == ahead.interleaved:
        return made
    counters.count(counters.CONVERTED, len(recipes))
    for _, (dtype,) in casts[:-1]:
        made = made.to(dtype)
    with torch.inference_mode(False):
        wanted = Plan((), ahead.shape, casts[-1][1][0] if casts else ahead.dtype, interleaved)
        return wanted.empty(lambda shape, dtype: torch.empty(shape, dtype=dtype, device=made.device)).copy_(made)


def describe(recipes: Sequence[Recipe], interleaved: bool) -> list[str]:
    """Lines for ``accel.explain``: what a worker has finished, and what becomes of it."""
    if not isinstance(recipes, Arrived):
        return []
    ahead, casts = recipes.ahead, _left(recipes)
    if isinstance(casts, str):
        then = f"; as it is now, the main process plans it again: {casts}"
    else:
        others = [_name(casts[-1][1][0])] if casts else []
        others += [_order(interleaved)] if interleaved != ahead.interleaved else []
        then = f"; a second pass on the device makes it {' '.join(others)}" if others else ""
    return [f"finished by a worker, as {_name(ahead.dtype)} {_order(ahead.interleaved)}{then}"]


def _left(recipes: Arrived) -> Steps | str:
    """The casts that are still to be done to what was finished; a text if that cannot give what is wanted: why not."""
    ahead, done = recipes.ahead, recipes.ahead.casts
    casts = recipes.since[len(done) :]
    if recipes.since[: len(done)] != done:
        return f"it is not used as {_name(ahead.dtype)}, as earlier ones were"
    if other := next((name for name, _ in casts if name != "to"), None):
        return f"{other} was recorded since"
    if not exact(ahead.dtype, casts):
        return "a device may cast floats to integers otherwise"
    return casts


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _order(interleaved: bool) -> str:
    return "channels_last" if interleaved else "contiguous"

"""Helpers of the libraries' tests: a pipeline, and the proof that accel ran it."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import accel
from tests.support import helpers


def proven(run: Callable[[], Any], images: int, early: int = 0, seed: int = 0) -> Any:
    """The result of ``run`` without accel, which it has with accel too, in every bit, random states included.

    ``images`` were computed by accel, each once, ``early`` of them one by one before there was a batch. Only what is
    early is a fallback.
    """
    expected, states = helpers.run("torchvision", run, seed)
    before = accel.stats()
    actual, states_after = helpers.run("cpu", run, seed)
    for value in tree_leaves(actual):
        if isinstance(value, torch.Tensor):
            value.sum()  # used, as training does: a clone that is made before would be computed by itself
    after = accel.stats()
    helpers.assert_same(actual, expected)
    assert states_after == states
    did = {key: after[key] - before[key] for key in ("images", "computed early")}
    assert did == {"images": images, "computed early": early}, did
    assert early or after["fallbacks"] == before["fallbacks"], after["fallbacks"]
    return expected

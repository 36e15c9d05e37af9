"""Memory for results: used again once nobody looks at it, and bounded."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest
import torch

from accel.planning import stages
from accel.system import memory
from accel.system.memory import Results

SIZES = [(3, 480, 640 - 7 * number) for number in range(40)]


def held(results: Results) -> int:
    return sum(len(idle.block) for idle in results._idle)


def test_lists_of_images_use_their_memory_again() -> None:
    results, order = Results(), random.Random(0)
    places: set[int] = set()
    for _ in range(4):
        tensors = [results.empty(size, torch.float32) for size in order.sample(SIZES, len(SIZES))]
        assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)
        places |= {tensor.data_ptr() for tensor in tensors}
        del tensors
    assert len(places) < 1.5 * len(SIZES)


def test_what_somebody_looks_at_is_not_used_again() -> None:
    results = Results()
    first = results.empty((3, 500, 500), torch.float32).fill_(1)
    view = first[1, 3:5].numpy()
    del first
    second = results.empty((3, 500, 500), torch.float32).fill_(2)
    assert (view == 1).all()
    assert view.ctypes.data != second.data_ptr()
    place = second.data_ptr()
    del second
    assert results.empty((3, 500, 490), torch.float32).data_ptr() == place


def test_idle_memory_is_bounded() -> None:
    results = Results()
    tensors = [results.empty((1 << 22,), torch.float32) for _ in range(40)]  # of 16 MiB
    del tensors
    assert 0 < held(results) <= 1 << 28
    tensors = [results.empty((1 << 27,), torch.float32) for _ in range(3)]
    del tensors
    assert held(results) <= 1 << 30


def test_idle_memory_that_does_not_fit_is_given_back() -> None:
    results = Results()
    tensors = [results.empty(size, torch.float32) for size in SIZES]
    del tensors
    assert held(results) > 0
    for _ in range(300):
        results.empty((1 << 19,), torch.float32)
    assert held(results) < 4 << 20


@pytest.mark.parametrize("size", [8, 1 << 19])
def test_memory_of_a_giant_is_given_back_after_a_while(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small results, which have memory of torch's, must not keep it either."""
    now = 100.0
    monkeypatch.setattr(memory.time, "monotonic", lambda: now)
    results = Results()
    giant = results.empty((1 << 26,), torch.float32)
    del giant
    now += 9
    results.empty((size,), torch.float32)
    assert held(results) >= 1 << 28
    now += 2
    results.empty((size,), torch.float32)
    assert held(results) < 1 << 23


def test_what_is_remembered_of_plans_is_bounded() -> None:
    """Random policies plan every image anew: what is kept of that must not grow with the images."""
    order = random.Random(0)

    def planned(images: int) -> int:
        """Bytes that planning has kept after that many more images."""
        for _ in range(images):
            drawn = tuple(("adjust_sharpness", (order.uniform(0.5, 1.5),)) for _ in range(2))
            stages.chain((300, order.randrange(300, 400)), 3, drawn)
            stages.chain((300, 400), 3, (("crop", (0, 0, 200, 200)), ("resize", (224, 224, 2)), *drawn))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = planned(0)
        assert planned(8000) - before < 10 << 20
    finally:
        tracemalloc.stop()

"""torch's range around each batch of a DataLoader, as its profiler shows it."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import accel
from accel.hooks import torch_profiler

RANGE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LOADER = DataLoader(TensorDataset(torch.arange(9.0)), 2)


class Numbers(IterableDataset[int]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from range(5)


def _ranges() -> list[str]:
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as found:
        assert len(list(LOADER)) == 5
    return [event.name for event in found.events() if event.name == RANGE]


def test_a_profiler_sees_it() -> None:
    expected = _ranges()
    assert expected
    with accel.image_backend("cpu"):
        assert _ranges() == expected


def test_batches_are_the_same() -> None:
    expected = [(batch,) for (batch,) in LOADER]
    counted = []
    with accel.image_backend("cpu"):
        iterator = iter(LOADER)
        for (batch,), (other,) in zip(iterator, expected, strict=True):
            assert torch.equal(batch, other)
            counted.append(iterator._num_yielded)  # type: ignore[attr-defined]
        assert [batch.tolist() for batch in DataLoader(Numbers(), 2)] == [[0, 1], [2, 3], [4]]
    assert counted == [1, 2, 3, 4, 5]


def test_another_torch_is_left_as_it_is() -> None:
    def original(iterator: object) -> str:
        return "torch's"

    assert torch_profiler._next(original) is not original
    original.__code__ = original.__code__.replace(co_names=("unknown",))
    assert torch_profiler._next(original) is original


def test_a_range_that_is_replaced_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list[str]()

    def counted(name: str) -> Any:
        names.append(name)
        return nullcontext()

    with accel.image_backend("cpu"):
        monkeypatch.setattr("torch.autograd.profiler.record_function", counted)
        assert len(list(LOADER)) == 5
    assert names == [RANGE] * 6


def test_what_a_batch_raises_shows_no_frame_of_accels() -> None:
    with accel.image_backend("cpu"), pytest.raises(IndexError) as error:
        next(iter(DataLoader(LOADER.dataset, sampler=[99])))
    assert not any("torch_profiler" in str(entry.path) for entry in error.traceback)

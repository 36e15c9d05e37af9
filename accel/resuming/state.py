"""The state of a loader as plain data: what it is made of, and whether it fits a loader."""

from __future__ import annotations

import platform
from contextlib import suppress
from copy import copy
from hashlib import blake2b
from typing import Any

import numpy as np
import PIL
import torch
import torchvision
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from accel.errors import ResumeError
from accel.resuming import random_states
from accel.resuming.progress import Progress
from accel.system.version import __version__

FORMAT = 1
"""The version of this format; another one is refused."""

_PARTS = frozenset(
    {"accel_resume", "versions", "loader", "sampler", "refused", "running", "replays", "handed", "turn"}
    | {"epochs", "base_seed", "order", "main", "workers", "checksum"}
)


def of(
    loader: DataLoader[Any], progress: Progress | None, own: random_states.Generators | None, why: str = ""
) -> dict[str, Any]:
    """The state of a loader: plain types and uint8 tensors.

    Args:
        progress: of its iterator; None: it is between two epochs.
        own: the generators of the user's in this process; None: the random states of this process are left out.
        why: the reason why no loader could go on exactly from it; "" if one can.
    """
    running = progress is not None and not progress.ended
    state: dict[str, Any] = {
        "accel_resume": FORMAT,
        "versions": versions(),
        "loader": described(loader),
        "sampler": sampler_of(loader),
        "refused": why,
        "running": running,
        "replays": isinstance(loader.dataset, IterableDataset),
        **dict.fromkeys(("handed", "turn", "epochs", "base_seed"), 0),
        "order": None,
        "main": None if own is None else random_states.current(own),
        "workers": [None] * max(loader.num_workers, 1),
    }
    if progress is not None:
        state |= progress.saved_parts()
    return sealed(state)


def sealed(state: dict[str, Any]) -> dict[str, Any]:
    """A state as plain types and tensors, with its checksum."""
    state = random_states.plain({key: value for key, value in state.items() if key != "checksum"})
    return {**state, "checksum": _checksum(state)}


def parsed(state: Any) -> dict[str, Any]:
    """A state as it was before it was made plain.

    Raises:
        ResumeError: it is no state of accel's, of another version of the format, or damaged.
    """
    try:
        return _parsed(state)
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, RecursionError) as error:
        if isinstance(error, ResumeError):
            raise
        raise ResumeError(f"the state is damaged: {error}") from error


def _parsed(state: Any) -> dict[str, Any]:
    if not isinstance(state, dict) or "accel_resume" not in state:
        raise ResumeError("this is no state that a DataLoader under accel has saved")
    if state["accel_resume"] != FORMAT:
        raise ResumeError(f"the state has format {state['accel_resume']}, this version of accel reads format {FORMAT}")
    if missing := _PARTS - state.keys():
        raise ResumeError(f"the state is cut short: it lacks {', '.join(sorted(missing))}")
    state = {key: state[key] for key in _PARTS}  # Accelerate adds to it
    if state["checksum"] != _checksum({key: value for key, value in state.items() if key != "checksum"}):
        raise ResumeError("the state is damaged: its checksum differs")
    if state["refused"]:
        raise ResumeError(f"from this state no loader can go on exactly: {state['refused']}")
    found: dict[str, Any] = random_states.of_plain(state)
    return found


def versions() -> dict[str, str]:
    """The versions of what a batch depends on."""
    own = {"accel": __version__, "torch": str(torch.__version__), "torchvision": torchvision.__version__}
    return {**own, "Pillow": PIL.__version__, "NumPy": np.__version__, "Python": platform.python_version()}


def described(loader: DataLoader[Any]) -> dict[str, Any]:
    """What must be the same for a loader that goes on."""
    samples = None
    if not isinstance(loader.dataset, IterableDataset):
        with suppress(TypeError):  # it has no length
            samples = len(loader.dataset)  # type: ignore[arg-type]
    context = loader.multiprocessing_context
    method = (torch.multiprocessing if context is None else context).get_start_method()
    return {
        "dataset": type(loader.dataset).__qualname__,
        "samples": samples,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "start_method": method if loader.num_workers else None,
    }


def sampler_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """The classes of a loader's samplers, and their attributes that are plain values."""
    name, found = "sampler" if loader.batch_sampler is None else "batch_sampler", dict[str, Any]()
    sampler: Any = getattr(loader, name)
    for _ in range(4):
        if sampler is not None:
            values = {key: _plain(value) for key, value in getattr(sampler, "__dict__", {}).items()}
            found[name] = type(sampler).__qualname__
            found |= {f"{name}.{key}": value for key, value in values.items() if value is not None}
        sampler, name = getattr(sampler, "sampler", None), f"{name}.sampler"
    return found


def _plain(value: Any) -> Any:
    """A number or a text without the class of its own that it may have; None for other values."""
    if isinstance(value, str):
        return str.__str__(value)
    kinds: tuple[Any, ...] = (bool, int, float)
    return next((kind(value) for kind in kinds if isinstance(value, kind)), None)


def check(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ``ResumeError`` if values differ from those that were saved; it names them."""
    absent = "absent"
    names = [name for name in {**saved, **now} if repr(saved.get(name, absent)) != repr(now.get(name, absent))]
    if names:
        each = [f"{name} was {saved.get(name, absent)!r} and is {now.get(name, absent)!r}" for name in names]
        raise ResumeError(f"the state is of another loader, so it cannot go on exactly: {'; '.join(each)}")


def divided_anew(saved: dict[str, Any], loader: DataLoader[Any]) -> list[int] | None:
    """The samples of the epoch that are left for this rank, if the number of ranks was another; None: it was not.

    Only of torch's ``DistributedSampler``. As at an epoch's end, all ranks get as many: some are repeated or left out.
    """
    sampler, name = loader.sampler, "batch_sampler.sampler.num_replicas"
    replicas = saved["sampler"].get(name)
    if type(sampler) is not DistributedSampler or replicas in (None, sampler.num_replicas) or not loader.batch_size:
        return None
    of_ranks = {name, *(f"batch_sampler.sampler.{each}" for each in ("rank", "num_samples", "total_size"))}
    now = {key: value for key, value in sampler_of(loader).items() if key not in of_ranks}
    check(saved["sampler"], saved["sampler"] | now)
    whole = copy(sampler)
    whole.num_replicas, whole.rank, whole.num_samples = 1, 0, len(sampler.dataset)  # type: ignore[arg-type]
    whole.total_size = whole.num_samples
    order = list(whole)
    rest = order[saved["handed"] * loader.batch_size * replicas :]
    over = len(rest) % sampler.num_replicas
    if over:
        rest = rest[:-over] if sampler.drop_last else rest + order[: sampler.num_replicas - over]
    return rest[sampler.rank :: sampler.num_replicas]


def _checksum(state: Any) -> str:
    hasher = blake2b(digest_size=16)
    _add(hasher, state)
    return hasher.hexdigest()


def _add(hasher: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        hasher.update(value.cpu().numpy().tobytes())
    elif isinstance(value, dict):
        for key, each in sorted(value.items()):
            hasher.update(f"{key}:".encode())
            _add(hasher, each)
    elif isinstance(value, (list, tuple)):
        hasher.update(f"[{len(value)}]".encode())
        for each in value:
            _add(hasher, each)
    else:
        hasher.update(f"{value!r};".encode("utf-8", "surrogatepass"))

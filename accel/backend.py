"""The base classes of backends, and the entry points ``accel.backends``, which name them.

A backend is a class that runs plans, named by an entry point of accel or of any installed distribution:

    [project.entry-points."accel.backends"]
    mine = "my_package:MyBackend"

It derives from ``HostBackend`` and has a ``run``, or from ``AcceleratorBackend`` and has ``devices`` and a ``run_on``;
for all else there are defaults. A class that derives from neither is taken as well if it has every member of the one
or the other but ``supports``, without which it runs every plan itself.

Nothing of a backend is imported before somebody asks for it by name.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch

from accel.errors import BackendUnavailable, attempt, meant, only
from accel.planning.places import Place, looked_up
from accel.planning.plan import Plan
from accel.planning.stages import Stage
from accel.recipes import options as plain
from accel.recipes.options import AcceleratorOptions, Options, Selection
from accel.recipes.sources import Files
from accel.system import fork
from accel.system.imports import importing
from accel.system.memory import Allocate

__all__ = ["AcceleratorBackend", "AcceleratorOptions", "Backend", "HostBackend", "Options"]

GROUP = "accel.backends"


class Backend:
    """Base class of ``HostBackend`` and ``AcceleratorBackend``, one of which every backend derives from.

    There is one instance per set of options; threads share it, and it must work in a forked child.
    """

    Options: ClassVar[type[plain.Options]] = plain.Options
    """The class of its options, a frozen dataclass derived from ``accel.backend.Options``."""

    devices: ClassVar[tuple[str, ...]] = ()
    """The types of torch devices it computes on, such as ("cuda",); () for a host backend.

    DataLoader workers of an accelerator backend send recipes; those of a host backend compute their batches."""

    auto_rank: ClassVar[int | None] = None
    """The rank under ``"auto"``: the backend of the lowest rank that can run here is taken; None keeps it out."""

    host: ClassVar[str] = "cpu"
    """The name of the backend that runs what this one does not support, and an accelerator's images on the host."""

    runs_columns: ClassVar[bool] = False
    """Whether it runs plans of rows by their columns (``accel.planning.columns``); ``supports`` then checks only the
    filter of a pass."""

    runs_apart: bool = False
    """Whether it runs plans of rows whose results differ in size (``accel.planning.columns.ApartPlan``)."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def unavailable(cls, options: Any = None) -> str | None:
        """Say what is missing to run with these options (None: the defaults), and how to get it; None if nothing is.

        Cheap; imports no engine."""
        return None

    def prepare(self) -> None:
        """Load and compile what a run needs, so that forked workers inherit it."""

    def describe(self, plan: Plan) -> list[str]:
        """Return lines for ``accel.explain``: which engines would run this plan, and why."""
        return []

    def supports(self, stage: Stage, device: torch.device | None = None) -> str | None:
        """Say why it cannot run a stage (on ``device``, once that is known); None if it can.

        Images with such a stage, and all others of the same sources, go to its host backend and are counted. So the
        plan that it gets may leave places of the batch unfilled."""
        return None

    @fork.cached_property
    def on_host(self) -> HostBackend:
        """The instance of the backend ``host``, with the options that both have."""
        return companion(self.host, self.options)


def supports_all(backend: Backend) -> bool:
    """Whether a backend supports every stage, and so leaves nothing to its host backend."""
    return not isinstance(backend, Backend) or type(backend).supports is Backend.supports


class HostBackend(Backend):
    """A backend that computes in host memory. It overrides ``run`` or ``run_all``; each defaults to the other."""

    def run(self, plan: Plan, allocate: Allocate) -> torch.Tensor:
        """Compute a plan's values, as a plain tensor in memory from ``allocate``.

        Args:
            plan: what to decode, and what to make of it (``accel.planning.plan.Plan``).
            allocate: takes a shape and a dtype, and gives an uninitialised tensor on the host.

        Returns:
            A tensor [images, channels, height, width] of the plan's shape and dtype, as ``plan.empty`` makes it.

        Raises:
            DecodeError: an image could not be decoded and ``on_error`` is ``"raise"``.
        """
        return only(self.run_all([plan], allocate))

    def run_all(self, plans: Sequence[Plan], allocate: Allocate) -> list[torch.Tensor | Exception]:
        """Compute several plans at once, in memory from ``allocate`` as ``run`` does.

        Returns:
            For each plan its values, or the exception that ``run`` would raise.
        """
        return [attempt(self.run, plan, allocate) for plan in plans]

    def place(self, jobs: Sequence[tuple[npt.NDArray[np.uint8], torch.Tensor, Place]], out: torch.Tensor) -> None:
        """Look up pixels of images, and put the values in their places in one tensor.

        Args:
            jobs: for each image its pixels, uint8 [height, width, channels], C-contiguous, a table [channels, 256] of
                their values, of the dtype of ``out``, and the place. No two places meet.
            out: a tensor on the host, of any shape and strides, whose memory the places are in.
        """
        for pixels, table, place in jobs:
            place.put(looked_up(pixels, table), out)


class AcceleratorBackend(Backend):
    """A backend that computes on torch devices; its options are ``AcceleratorOptions``, or derived from them."""

    Options: ClassVar[type[plain.Options]] = AcceleratorOptions

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        """Compute a plan's values on ``device``, which has an index where its type has them.

        The host's part is done, or waited for, in the calling thread; uploads and launches go to torch's current
        stream of the device, and nothing waits for the result. Several threads may call it at the same time.

        Returns:
            A plain tensor [images, channels, height, width] on the device, of the plan's shape and dtype.

        Raises:
            DecodeError: an image could not be decoded and ``on_error`` is ``"raise"``.
        """
        raise NotImplementedError

    def room_ahead(self, plan: Plan, files: Files) -> int:
        """The most bytes that ``ahead`` returns for a plan of these files, 0 or more.

        0: ``ahead`` is not called (the host backend has a part).

        Args:
            plan: as for ``ahead``.
            files: as for ``ahead``.
        """
        return 0

    def ahead(self, plan: Plan, files: Files) -> Sequence[Any]:
        """Compute in a DataLoader worker what needs no device: at most 40 arrays; none: nothing is computed ahead.

        They are sent with the batch, and ``run_on`` gets them as bytes, in the ``recipes.ahead`` of a ``FinishedPlan``.

        Args:
            plan: a plan of distinct files, in their order.
            files: the files. Each begins at a multiple of 64 bytes, also where ``run_on`` gets them.
        """
        return ()


def find(name: str) -> type[Backend]:
    """The backend class called ``name``.

    Raises:
        ValueError: no installed distribution offers it.
        BackendUnavailable: its entry point cannot be imported.
    """
    known = _entry_points(anew=False)
    if name not in known:
        known = _entry_points()
    if name not in known:
        names = ["torchvision", "auto", *sorted(known)]
        raise ValueError(f"unknown image backend {name!r}; known are {', '.join(map(repr, names))}{meant(name, names)}")
    return _load(known[name])


def availability() -> dict[str, str | None]:
    """Every known backend's name, with None where it can run here, else the reason why it cannot."""
    return {name: _reason(entry) for name, entry in sorted(_entry_points().items())}


def _reason(entry: EntryPoint, options: Options | None = None) -> str | None:
    """The reason why a backend cannot run here; None if it can. A backend whose check fails cannot."""
    reason = attempt(lambda: _load(entry).unavailable(options))
    if isinstance(reason, BackendUnavailable):
        return str(reason)
    return f"asking it failed: {type(reason).__name__}: {reason}" if isinstance(reason, Exception) else reason


def best() -> str:
    """The backend ``"auto"`` stands for here."""
    known = availability()
    ranks = {name: find(name).auto_rank for name, reason in known.items() if reason is None}
    if ranked := [(rank, name) for name, rank in ranks.items() if rank is not None]:
        return min(ranked)[1]
    reasons = "; ".join(f"{name}: {reason}" for name, reason in known.items())
    raise BackendUnavailable(f"no image backend can run here ({reasons or 'none is installed'})")


_instances: dict[tuple[str, Options], Backend] = {}
_instances_lock = fork.Lock()  # a backend may be made of another one


def instance(name: str, options: Options) -> Backend:
    """The one instance of a backend with these options in this process."""
    found = _instances.get((name, options))
    if found is None:
        with _instances_lock:
            found = _instances.get((name, options)) or _instances.setdefault((name, options), find(name)(options))
    return found


def backend_of(selection: Selection) -> Backend:
    """The backend of a selection."""
    return instance(selection.name, selection.options)


def host_of(selection: Selection) -> HostBackend:
    """The backend that computes a selection's values on the host."""
    backend = backend_of(selection)
    return companion(backend.host, selection.options) if backend.devices else cast(HostBackend, backend)


def companion(name: str, options: Options) -> HostBackend:
    """The instance of backend ``name`` with those of the given options that it shares."""
    kind = find(name).Options
    threads = {"threads": getattr(options, "threads", "auto")} if "threads" in kind.__dataclass_fields__ else {}
    return cast(
        HostBackend,
        instance(name, kind(exact=options.exact, on_error=options.on_error, cache=options.cache, **threads)),
    )


def parse_options(name: str, options: dict[str, Any]) -> Options:
    """The options of backend ``name``, checked.

    Raises:
        TypeError: it does not know one of them. ValueError: a value is out of range.
        BackendUnavailable: it cannot run here.
    """
    backend = find(name)
    known = [field.name for field in dataclasses.fields(backend.Options)]
    for option in options:
        if option not in known:
            raise TypeError(f"backend {name!r} has no option {option!r}; it takes {', '.join(known)}")
    parsed = backend.Options(**options)
    if isinstance(parsed, AcceleratorOptions) and parsed.device is not None:
        kind = torch.device(parsed.device).type
        if kind not in (*backend.devices, "cpu"):
            raise ValueError(f"backend {name!r} computes on {', '.join(backend.devices)}, got device={parsed.device!r}")
    if (reason := _reason(_entry_points(anew=False)[name], parsed)) is not None:
        raise BackendUnavailable(f"image backend {name!r} cannot run here: {reason}")
    return parsed


def _entry_points(*, anew: bool = True) -> dict[str, EntryPoint]:
    """The entry points of this environment, by name; not ``anew``: those found before, while ``sys.path`` is the same.

    A new search takes milliseconds: it reads every installed distribution's metadata.
    """
    global _found
    path = entry_points, tuple(sys.path)
    if anew or _found[0] != path:
        _found = path, {entry.name: entry for entry in entry_points(group=GROUP)}
    return _found[1]


_found: tuple[Any, dict[str, EntryPoint]] = None, {}


def _load(entry: EntryPoint) -> type[Backend]:
    title = f"image backend {entry.name!r} ({entry.value})"
    try:
        with importing:
            loaded = entry.load()
    except Exception as error:
        raise BackendUnavailable(f"{title} cannot be imported: {type(error).__name__}: {error}") from error
    if (lacking := _lacking(loaded)) is not None:
        raise BackendUnavailable(f"{title} has no {lacking}")
    if loaded.devices and not issubclass(loaded.Options, AcceleratorOptions):
        raise BackendUnavailable(f"{title}: its Options are no AcceleratorOptions")
    return loaded  # type: ignore[no-any-return]


_OPTIONAL = ("supports", "on_host", "runs_columns", "runs_apart", "place")
"""Members that a backend may lack if it derives from no class of accel's."""


def _lacking(loaded: Any) -> str | None:
    """The first member that a class lacks to be a backend; None if it has all."""
    kinds = loaded.__mro__ if isinstance(loaded, type) else ()
    accelerator = AcceleratorBackend in kinds or bool(getattr(loaded, "devices", None))
    base, runs = (AcceleratorBackend, ["run_on"]) if accelerator else (HostBackend, ["run", "run_all"])
    if Backend not in kinds:
        members = [name for name in vars(Backend) if not name.startswith("_") and name not in _OPTIONAL]
        return next((repr(name) for name in (*members, *runs) if not hasattr(loaded, name)), None)
    if accelerator and not loaded.devices:
        return "'devices'"
    own = [name for name in runs if getattr(loaded, name, vars(base)[name]) is not vars(base)[name]]
    return None if own else " or ".join(map(repr, runs))

"""Running plans on the host: each image is decoded and computed by one thread, straight into the batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel.backend import HostBackend, Options
from accel.backends.cpu import effects, passes, placing, regions, rows, stages
from accel.backends.cpu.shares import Share
from accel.backends.shared.options import check_threads
from accel.backends.shared.pixels import Pixels
from accel.cache import reading
from accel.codec import decode, store, stream_index
from accel.codec.files import reader
from accel.codec.jpeg import planes as jpeg_planes
from accel.ops.resample import SUPPORT
from accel.planning import columns
from accel.planning.columns import ColumnPlan
from accel.planning.places import Place
from accel.planning.plan import Decode, Plan, bits
from accel.recipes.sources import PicturesApart
from accel.runtime import read
from accel.runtime.memo import cached
from accel.runtime.memo.result_pixels import StoredResults
from accel.runtime.parallel import ParallelFor
from accel.system import fork
from accel.system.memory import Allocate
from accel.system.native import units


@dataclass(frozen=True)
class CpuOptions(Options):
    """The cpu backend's options.

    Args:
        threads: the number of threads that share a batch, in each process. "auto": one for each core that this process
            may use; in a DataLoader worker its share of them, and fewer while its batches wait.
        decode: the JPEG decoder: "auto", or one of ``accel.codec.decode.ENGINES``.
    """

    threads: int | str = "auto"
    decode: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threads(self.threads)
        if self.decode not in decode.ENGINES:
            raise ValueError(f"decode must be one of {', '.join(decode.ENGINES)}, got {self.decode!r}")


class CpuBackend(HostBackend):
    """The backend on the host. Always exact: ``exact=False`` changes nothing."""

    Options = CpuOptions
    auto_rank = 100
    options: CpuOptions

    def __init__(self, options: CpuOptions) -> None:
        super().__init__(options)
        self._parallel = ParallelFor(options.threads, "accel-cpu")
        self._prepared = False

    @classmethod
    def unavailable(cls, options: CpuOptions | None = None) -> str | None:
        if find_spec("numba") is None:
            return "numba is missing: pip install numba"
        return None

    def prepare(self) -> None:
        with _preparing:
            if not self._prepared:
                of_cache = [] if self.options.cache_size is None else [jpeg_planes.UNIT, reading.UNIT]
                units.ready([columns.UNIT, passes.UNIT, regions.UNIT, store.UNIT, *decode.UNITS, *of_cache])
                decode.prepare(self.options.decode)
                reader.agrees()  # checked here, so that forked workers inherit it
                stages.resizes_as_pillow()
                self._prepared = True

    def run_all(self, plans: Sequence[Plan], allocate: Allocate) -> list[torch.Tensor | Exception]:
        if not self._prepared:
            self.prepare()
        targets = [plan.target(allocate) for plan in plans]
        failed: dict[tuple[int, int], Exception] = {}

        def work(task: tuple[int, int, rows.Work]) -> None:
            number, *first = task
            todo: list[Any] = [first]
            for position, run in todo:
                try:
                    todo.extend(run() or ())  # images that a call for many leaves are run one by one
                except Exception as error:
                    failed[number, position] = error

        self._parallel.each(
            [
                (number, *task)
                for number, (plan, (_, target)) in enumerate(zip(plans, targets, strict=True))
                for task in self._tasks(plan, target)
            ],
            work,
        )
        results: list[torch.Tensor | Exception] = [tensor for tensor, _ in targets]
        for number, position in sorted(failed, reverse=True):  # a plan's first image that failed decides
            results[number] = failed[number, position]
        failed.clear()  # the errors' tracebacks refer to it
        return results

    def place(self, jobs: Sequence[tuple[Pixels, torch.Tensor, Place]], out: torch.Tensor) -> None:
        placing.place(jobs, out, self._parallel)

    def _tasks(self, plan: Plan, target: npt.NDArray[Any]) -> Iterable[rows.Task]:
        of = plan.shape[0]

        def pixels(wanted: Decode) -> Pixels:
            return read.pixels(wanted, of, self.options, self.options.decode)

        if isinstance(plan, ColumnPlan) and (plan.columns.resample not in SUPPORT or stages.resizes_as_pillow()):
            return rows.Run(plan, target, pixels).tasks(self._parallel.size, self._shared(plan))
        planar = not plan.interleaved
        return [
            (wanted.items[0].position, partial(self._image, wanted, pixels, target, planar=planar))
            for wanted in plan.decodes
        ]

    def _shared(self, plan: ColumnPlan) -> Sequence[Share]:
        """The images of the plan that compiled calls process together; all others are run one by one."""
        columns, sources, shared = plan.columns, plan.rows.sources, list[Share]()
        if isinstance(sources, (StoredResults, PicturesApart)) and (sources.mode == "RGB") != (columns.channels == 3):
            return ()
        if isinstance(sources, StoredResults):
            return [Share(columns, regions.ResultRegions(columns, sources))]
        if isinstance(sources, PicturesApart):
            return [Share(columns, regions.PictureRegions(columns, sources))]
        if cached.in_use:
            shared.append(Share(columns, regions.PlaneRegions(columns, sources)))
        if self.options.decode in ("auto", "accel") and decode.agrees("accel"):
            shared.append(Share(columns, regions.FileRegions(columns, sources, self.options.cache)))
        return shared

    def describe(self, plan: Plan) -> list[str]:
        engines = {decode.choose(wanted.source.header, self.options.decode) for wanted in plan.decodes} - {"none"}
        shown = [
            f"{each} on the host, {'regions only' if each == 'accel' else 'whole files'}" for each in sorted(engines)
        ]
        keys = [each.source.key for each in plan.decodes]
        return [
            f"decoder: {', '.join(shown) or 'none needed'}",
            *(stream_index.describe(keys, self.options.cache) if "accel" in engines else ()),
            f"runs: one compiled pass per stage, on {self._parallel.size} threads",
            *effects.left_to_torchvision(plan),
        ]

    @property
    def runs_apart(self) -> bool:  # type: ignore[override]
        """Whether rows of several sizes can be run by their columns; they cannot be run otherwise."""
        return stages.resizes_as_pillow()

    def agrees(self, op: str) -> bool:
        """Whether the kernel of an op, or of "resize", equals the installed Pillow and torchvision.

        Called by accelerators whose kernels repeat the same arithmetic.
        """
        return stages.resizes_as_pillow() if op == "resize" else effects.agrees(op)

    def _image(self, wanted: Decode, read: rows.Read, target: npt.NDArray[Any], *, planar: bool) -> None:
        """Decode one source and write all images made from it into ``target``."""
        pixels = read(wanted)
        part = pixels
        for position, chain, table, patches in wanted.items:
            if not pixels.flags.c_contiguous:  # a view of a larger picture: copy only what this image reads
                first, *later = chain
                top, left, height, width = box = first.reads
                part = np.ascontiguousarray(pixels[top : top + height, left : left + width])
                chain = (first.onto(box), *later)
            stages.run(part, chain, stages.value_table(table), target[position], planar=planar)
            for top, left, height, width, values in patches:
                image = target[position] if planar else target[position].transpose(2, 0, 1)
                image[:, top : top + height, left : left + width] = bits(values)


_preparing = fork.Lock()
"""One lock for all instances, as they import and compile the same."""

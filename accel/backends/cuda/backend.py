"""Running plans on a GPU: decoding, uploading, and one fused launch for every stage of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from accel.backend import AcceleratorBackend, AcceleratorOptions
from accel.backends.cuda import columns, compile, effects, finished, host, jpeg
from accel.backends.cuda.budget import Budget
from accel.backends.cuda.decoder import Decoder
from accel.backends.cuda.device import CudaDevice, Device
from accel.backends.cuda.execution import Execution, locked
from accel.backends.cuda.finished import Finished, Section
from accel.backends.cuda.jpeg import Decoding, requests
from accel.backends.cuda.lowering import device_bytes, schedule_of
from accel.backends.shared.options import check_positive, check_threads, missing_gpu
from accel.codec import decode, store, stream_index
from accel.codec.engines import Box
from accel.errors import DecodeError
from accel.ops.resample import SUPPORT
from accel.planning.plan import Decode, FinishedPlan, Item, Plan
from accel.planning.stages import Effect, Stage
from accel.recipes.recipe import Source
from accel.recipes.rows import Pictures
from accel.recipes.sources import Files, table_of
from accel.runtime import read
from accel.runtime.memo import cached, indexes
from accel.runtime.parallel import ParallelFor
from accel.system import counters, fork, memory
from accel.system.native import units

_IN_CHUNKS = "a batch that a worker had planned took more memory than it may; the parent planned it again, in chunks"
_WITHOUT_GPU = "set_image_backend('cuda', device='cpu') runs the kernels on the host, for tests"


@dataclass(frozen=True)
class CudaOptions(AcceleratorOptions):
    """The cuda backend's options.

    Args:
        exact: changes no value, as all of it is exact.
        decode: "accel" or "auto": accel's own decoder on the device, which is exact, and the host for files that it
            does not take; "host": the host decodes the regions and sends pixels.
        threads: the number of threads that decode on the host; "auto" for one for each core that this process may use.
        memory: the most bytes that a batch may take on the device besides its result, and on the host to be sent; a
            larger batch runs in chunks, with the same result. None is an eighth of the device's free memory, looked
            at every second, but at most 16 GiB, and a sixteenth of the host's memory. At most four batches are
            computed at a time on a device, by however many threads: more wait.
    """

    decode: Literal["auto", "accel", "host"] = "auto"
    threads: int | str = "auto"
    memory: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode not in ("auto", "accel", "host"):
            raise ValueError(f"decode must be 'auto', 'accel' or 'host', got {self.decode!r}")
        check_threads(self.threads)
        check_positive(self, "memory")

    @property
    def decoder(self) -> str:
        """The decoder without "auto": "accel" on the device, or "host"."""
        return "accel" if self.decode == "auto" else self.decode


class CudaBackend(AcceleratorBackend):
    """Always exact: ``exact=False`` changes no value. ``device="cpu"`` runs the same kernels on the host."""

    Options = CudaOptions
    devices = ("cuda",)
    runs_columns = True
    auto_rank = 10
    options: CudaOptions

    def __init__(self, options: CudaOptions) -> None:
        super().__init__(options)
        self._parallel = ParallelFor(options.threads, "accel-cuda")
        self._engines: dict[torch.device, _Engine] = {}
        fork.register(in_child=self._forget)

    def _forget(self) -> None:
        """Abandon all objects of the parent's GPU, which a forked child must neither use nor release."""
        fork.leave_to_parent(self._engines)
        self._engines = {}

    @classmethod
    def unavailable(cls, options: CudaOptions | None = None) -> str | None:
        device = torch.device((options and options.device) or "cuda")
        if device.type == "cpu":
            return host.unavailable()
        if (reason := missing_gpu(device, _WITHOUT_GPU)) is not None:
            return reason
        if find_spec("cuda") is None or find_spec("cuda.core") is None:
            return "cuda.core is missing: pip install 'accel-vision[cuda]'"
        return compile.unavailable()

    def prepare(self) -> None:
        decode.prepare()
        units.ready(_UNITS)
        if self.options.device == "cpu":
            self._engine(torch.device("cpu")).device.prepare()
        # a GPU is not initialized before it is used, so that forked workers inherit nothing of it

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        """See ``accel.backend.AcceleratorBackend``.

        Raises:
            DecodeError: an image cannot be decoded, and ``on_error`` is "raise".
            torch.OutOfMemoryError: the batch does not fit, not even in smaller chunks.
        """
        engine = self._engine(device)
        outside = torch.inference_mode(False) if torch.is_inference_mode_enabled() else _INSIDE
        with outside, engine.device.enter():
            result = plan.empty(engine.device.empty)
            sent = Finished.of(plan.recipes.ahead) if isinstance(plan, FinishedPlan) else None

            def run(part: Plan) -> None:  # the decoder's first trial may run out of memory as well
                if sent is not None and part is not plan:
                    counters.fallback(_IN_CHUNKS)
                self._run(part, engine, result, self._decoder(engine), sent if part is plan else None)

            known = () if sent is None else (sent.summary.sent, sent.summary.taken)
            engine.budget.in_chunks(plan, run, self._sizes, self.options.memory, *known)
        return result

    def room_ahead(self, plan: Plan, files: Files) -> int:
        """See ``accel.backend.AcceleratorBackend``. Only a device knows whether it encodes JPEG as Pillow does."""
        stages = [plan.example] if columns.accepts(plan) else _stages(plan)
        encode = any(isinstance(stage, Effect) and stage.op == "jpeg" for stage in stages)
        if self.options.decoder != "accel" or encode or any(self.supports(stage) is not None for stage in stages):
            return 0
        return finished.room(plan, files)

    def ahead(self, plan: Plan, files: Files) -> finished.Arrays:
        """See ``accel.backend.AcceleratorBackend``: all that is sent to the device, and the launches."""
        return finished.parts(plan, files, self.options, self._sizes(plan))

    def supports(self, stage: Stage, device: torch.device | None = None) -> str | None:
        """See ``accel.backend.Backend``. The kernels' arithmetic is the host's, which is compared with Pillow's."""
        compared: Any = self.on_host
        if not isinstance(stage, Effect):
            if stage.resample not in SUPPORT or compared.agrees("resize"):
                return None
            return "the installed Pillow resizes in a way that accel does not know"
        runs = effects.on_device(stage) and (stage.kind == "torchvision" or compared.agrees(stage.op))
        return None if runs else f"{stage.op} has no kernel for the device"

    def describe(self, plan: Plan) -> list[str]:
        where = self.options.device or "the device of the first .to()"
        decoder = self.options.decoder
        return [
            f"decoder: {_DESCRIBED[decoder]}",
            *([f"files: {_FILES}"] if decoder == "accel" else ()),
            *requests.describe_indexes(plan.decodes, self.options, decoder == "accel"),
            f"runs: one launch for each stage of the whole batch, on {where}",
        ]

    def _sizes(self, plan: Plan) -> npt.NDArray[np.int64]:
        """The bytes that each source takes on the device, with its decoding and the images made of it."""
        if isinstance(plan, FinishedPlan):
            return Finished.of(plan.recipes.ahead)[Section.BYTES]
        decodes = self.options.decoder == "accel"
        if columns.accepts(plan):
            rows, sizes = plan.rows, columns.device_bytes(plan)
            sources: Sequence[Source] = rows.sources
            table = rows.table()
        else:
            sources = [wanted.source for wanted in plan.decodes]
            table = table_of([source.header for source in sources])
            sizes = np.array([device_bytes(wanted) for wanted in plan.decodes], np.int64)
        if decodes and not isinstance(sources, Pictures):
            sizes = sizes + requests.device_bytes(sources, table, *finished.wanted_of(plan))
        return sizes

    def _decoder(self, engine: _Engine) -> str:
        """The decoder of the options, or the one in its place if that is not available."""
        decoder = self.options.decoder
        return "host" if decoder == "accel" and not engine.jpeg.agrees() else decoder

    def _engine(self, device: torch.device) -> _Engine:
        found = self._engines.get(device)
        return self._engines.setdefault(device, _Engine(device)) if found is None else found

    def _run(
        self, plan: Plan, engine: _Engine, result: torch.Tensor, decoder: str, sent: Finished | None = None
    ) -> None:
        """Run a plan, or a chunk, into the whole batch's ``result``; ``sent``: what a worker has finished of it."""
        execution = None
        try:
            if decoder == "accel" and sent is not None and isinstance(plan, FinishedPlan):
                ahead = plan.recipes.ahead
                in_place = locked(ahead.memory, ahead.shape[0], engine.device)
                execution = Execution(sent, result, engine.device, engine.jpeg.memory(), in_place)
            else:
                execution = self._finish(plan, engine, result, decoder)
            if execution.holes:
                wanted = _wanted(plan) if sent is not execution.finished else partial(_hole, plan, sent.holes())
                numbers = execution.holes
                work = [partial(self._decode, wanted(number), plan.shape[0], execution, number) for number in numbers]
                self._parallel.each(work, _call)
            execution.launch()
            flagged = execution.decoding.flagged()
        except BaseException as error:
            if execution is not None:
                if isinstance(error, DecodeError) and error.position is not None:
                    execution.launch()  # an earlier image may fail as well
                    self._raise_earlier(plan, execution.decoding, error.position)
                execution.abandon()
            raise
        _keep(plan, execution.decoding)
        if flagged:  # their places in the result are written again, later on the same stream
            for number in flagged:
                name = plan.decodes[number].source.name
                counters.fallback("accel declined a JPEG on the device; the host decoded it", name)
            again = tuple([plan.decodes[number] for number in flagged])
            self._run(plan._replace(decodes=again), engine, result, "host")

    def _finish(self, plan: Plan, engine: _Engine, result: torch.Tensor, decoder: str) -> Execution:
        """Finish the work for a plan, and bind it to memory."""
        host, chosen = engine.jpeg.memory(self._parallel), None
        rows = plan.rows if columns.accepts(plan) else None
        count = len(plan.decodes) if rows is None else len(rows)
        lower: Any = schedule_of if rows is None else columns.schedule_of
        if decoder == "accel":
            if rows is not None and _all_read(rows.sources):
                boxes, channels = plan.columns.boxes, np.full(count, plan.shape[1])  # type: ignore[attr-defined]
                chosen = requests.together(rows.sources, boxes, channels, self.options, host.gather)
                if host.files is None and not locked(memory.results.pages(chosen.content), count, engine.device):
                    chosen = chosen.moved(host.gather)
            else:
                decodes = _decodes(plan)
                by_index = requests.by_index(decodes, self.options)
                wanted = [requests.request_of(each, by_index) for each in decodes]
                chosen = requests.gathered(wanted, host.gather)
        fill = None if rows is not None else partial(self._parallel.each, do=_call)
        made = finished.finish(count, chosen, partial(lower, plan), host.take, fill)
        return Execution(made, result, engine.device, host)

    def _raise_earlier(self, plan: Plan, decoding: Decoding, position: int) -> None:
        """Raise the error of a file that the device has flagged, if that fails on the host too, and is an earlier
        image than one at a position."""
        for number in decoding.flagged():
            if plan.decodes[number].items[0].position < position:
                read.pixels(plan.decodes[number], plan.shape[0], self.options)

    def _decode(self, wanted: Decode, of: int, execution: Execution, number: int) -> None:
        """Decode on the host, into the memory to be uploaded."""
        pixels = read.pixels(wanted, of, self.options)
        np.copyto(execution.pixels(number, pixels.size), pixels.reshape(-1))


_UNITS = (jpeg.headers.UNIT, columns.UNIT, finished.UNIT, store.UNIT)
"""The compiled code that workers and their parent call; workers inherit it."""

_FILES = "the device copies them from where a worker left them, if the driver locks that; else they are gathered"
_DESCRIBED = {
    "accel": "accel's own on the device, regions only; the host for files that are not plain baseline",
    "host": "accel's decoders on the host, regions only, pixels uploaded",
}


def _stages(plan: Plan) -> list[Stage]:
    return [stage for wanted in plan.decodes for item in wanted.items for stage in item.stages]


def _all_read(sources: Sequence[Source]) -> bool:
    """Whether all sources of rows are in memory, and no cache has anything of them."""
    if cached.in_use or isinstance(sources, Pictures):
        return False
    if isinstance(sources, Files):
        return not sources.cached
    return all(source.cached is None for source in sources)


def _decodes(plan: Plan) -> Sequence[Decode]:
    return plan.sources if columns.accepts(plan) else plan.decodes


def _wanted(plan: Plan) -> Callable[[int], Decode]:
    return plan.source if columns.accepts(plan) else plan.decodes.__getitem__


def _hole(plan: Plan, holes: Mapping[int, tuple[int, Box]], number: int) -> Decode:
    """The decode that is left to the host, of an image that a worker has planned; its item has only the position."""
    return Decode(requests.sources_of(plan)[number], *holes[number], (Item(number, (), _NO_TABLE),))


def _keep(plan: Plan, decoding: Decoding) -> None:
    """Keep the indexes that the device has made."""
    if len(decoding.made.numbers):
        stream_index.keep(requests.keys_of(plan, decoding.made.numbers), decoding.made)
    if cached.in_use:
        for number, index in decoding.made.each().items():
            indexes.keep(requests.sources_of(plan)[number], index)
        cached.flush(if_due=True)  # the entries of what the host has decoded


_INSIDE = nullcontext()
_NO_TABLE = torch.empty(0, device="cpu")


def _call(task: Callable[[], object]) -> None:
    task()


class _Engine:
    """Memory and decoder of one device, kept from batch to batch."""

    def __init__(self, device: torch.device, own: Device | None = None) -> None:
        """``own``: the device's object if it is none of torch's."""
        self.device: Device = own or (host.HostDevice() if device.type == "cpu" else CudaDevice(device))
        self.budget = Budget(self.device)
        self.jpeg = Decoder(self.device)

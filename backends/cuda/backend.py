"""Running plans on a GPU: decode, upload, and one fused launch for every stage of the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import ClassVar, Literal

import numpy as np
import torch

from accel import counters, fork
from accel.backend import AcceleratorOptions
from accel.codec import decode, engines
from accel.plan import Decode, Plan
from accel.team import Team

from . import budget, host, nvimg
from .device import CudaDevice, Device
from .execute import Execution
from .lower import lower
from .staging import Ring

NO_DEVICE = "no CUDA device; set_image_backend('cuda', device='cpu') runs the kernels on the host, for tests"


@dataclass(frozen=True)
class CudaOptions(AcceleratorOptions):
    """The cuda backend's options.

    Args:
        decode: "host": the host decodes the regions and sends pixels; "nvimgcodec": nvImageCodec decodes on the
            device, which no GPU library does exactly, so it asks for ``exact=False``; "auto": what ``exact`` permits.
        threads: how many threads decode on the host; None: one for each core that this process may use.
        memory: bytes that a batch may take on the device besides its result, and on the host to be sent; what
            takes more runs in chunks, with the same result. None: a quarter of what is free, at most 2 GiB.
    """

    decode: Literal["auto", "host", "nvimgcodec"] = "auto"
    threads: int | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode not in ("auto", "host", "nvimgcodec"):
            raise ValueError(f"decode must be 'auto', 'host' or 'nvimgcodec', got {self.decode!r}")
        if self.decode == "nvimgcodec" and self.exact:
            raise ValueError("decode='nvimgcodec' is not exact on a GPU: it needs exact=False")
        for name in ("threads", "memory"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a positive int or None, got {value!r}")

    @property
    def decodes_on_device(self) -> bool:
        return self.decode == "nvimgcodec" or (self.decode == "auto" and not self.exact)


class CudaBackend:
    """Exact, unless ``exact=False`` lets the device decode. ``device="cpu"`` runs the same kernels on the host."""

    Options: ClassVar[type[CudaOptions]] = CudaOptions
    devices: ClassVar[tuple[str, ...]] = ("cuda",)
    auto_rank: ClassVar[int | None] = 10
    host: ClassVar[str] = "cpu"

    def __init__(self, options: CudaOptions) -> None:
        self.options = options
        self._team = Team(options.threads, "accel-cuda")
        self._forget()
        fork.register(in_child=self._forget)

    def _forget(self) -> None:
        """A forked child must not touch what belongs to its parent's GPU."""
        self._engines: dict[torch.device, _Engine] = {}

    @classmethod
    def unavailable(cls, options: CudaOptions | None = None) -> str | None:
        device = torch.device((options and options.device) or "cuda")
        if device.type == "cpu":
            return host.unavailable()
        if not torch.cuda.is_available():
            return NO_DEVICE
        if (device.index or 0) >= torch.cuda.device_count():
            return f"there is no {device}: torch sees {torch.cuda.device_count()} CUDA devices"
        if find_spec("cuda") is None or find_spec("cuda.core") is None:
            return "cuda.core is missing: pip install 'accel-vision[cuda]'"
        return None

    def prepare(self) -> None:
        decode.prepare()
        if self.options.device == "cpu":
            self._engine(torch.device("cpu")).device.prepare()
        # a GPU is not touched before it is used: forked workers inherit nothing of it

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        """See ``accel.backend.AcceleratorBackend``.

        Raises:
            DecodeError: an image cannot be decoded, and ``on_error`` is "raise".
            torch.OutOfMemoryError: the batch does not fit, not even in smaller chunks.
        """
        engine = self._engine(device)
        with torch.inference_mode(False), engine.device.enter():
            result = plan.empty(lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype, device=device))
            limit = self.options.memory or budget.default(engine.device)
            budget.in_chunks(plan, limit, lambda part: self._run(part, engine, result))
        return result

    def describe(self, plan: Plan) -> list[str]:
        where = self.options.device or "the device of the first .to()"
        decoder = "accel's decoders on the host, regions only, pixels uploaded"
        if self._decodes_on_device():
            decoder = "nvImageCodec on the device (not exact), the host for what it declines"
        return [
            f"decoder: {decoder}",
            f"runs: one launch for each stage of the whole batch, on {where}",
        ]

    def _decodes_on_device(self) -> bool:
        if self.options.decodes_on_device and not engines.has_nvimgcodec():
            counters.fallback("nvImageCodec is not installed; the host decoded in its place")
            return False
        return self.options.decodes_on_device

    def _engine(self, device: torch.device) -> _Engine:
        found = self._engines.get(device)
        return self._engines.setdefault(device, _Engine(device)) if found is None else found

    def _run(self, plan: Plan, engine: _Engine, result: torch.Tensor) -> None:
        """Run a plan, or a chunk of one, into the whole batch's ``result``."""
        ready: list[nvimg.Pixels | None] = [None] * len(plan.decodes)
        if self._decodes_on_device():
            ready = engine.decoder.decode(plan.decodes)
        program = lower(plan, [pixels and pixels.address for pixels in ready])
        execution = Execution(program, engine.device, engine.ring)
        try:
            work: list[Callable[[], object]] = [
                partial(self._decode, wanted, plan.shape[0], execution, number)
                for number, wanted in enumerate(plan.decodes)
                if ready[number] is None
            ]
            self._team.each([*work, *execution.sent()], _call)
            execution.upload(result)
            execution.launch()
        except BaseException:
            execution.abandon()
            raise
        finally:
            if any(ready):
                engine.held.until(engine.device.mark(), ready)

    def _decode(self, wanted: Decode, of: int, execution: Execution, number: int) -> None:
        """Decode on the host, into the memory that is uploaded."""
        pixels = decode.read(wanted, of, self.options)
        np.copyto(execution.pixels(number, pixels.size), pixels.reshape(-1))


def _call(task: Callable[[], object]) -> None:
    task()


class _Engine:
    """What one device keeps from batch to batch."""

    def __init__(self, device: torch.device) -> None:
        self.device: Device = host.HostDevice() if device.type == "cpu" else CudaDevice(device)
        self.ring = Ring(self.device.pinned)
        self.decoder = nvimg.Decoder(device)
        self.held = nvimg.Held()

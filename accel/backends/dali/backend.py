"""Running plans with DALI: it does the first stages as far as it can, and another backend goes on from there."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import cast

import numpy as np
import torch

from accel import backend as registry
from accel.backend import AcceleratorBackend, AcceleratorOptions
from accel.backends.dali import partition, pipeline
from accel.backends.dali.operator_chain import OperatorChain, Structure
from accel.backends.dali.pipeline import PipelinePool, Sample
from accel.backends.shared.options import check_threads, missing_gpu
from accel.codec import agreement
from accel.codec.engines import Box, Data, Pixels
from accel.codec.header import claim
from accel.errors import DecodeError
from accel.planning.partition import reason_lines
from accel.planning.plan import Plan
from accel.runtime import sharing
from accel.system import counters, fork, memory
from accel.system.cores import cores

MISSING = "DALI is missing: pip install 'accel-vision[dali]'"
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class DaliOptions(AcceleratorOptions):
    """The dali backend's options.

    Args:
        device: where batches are computed: a GPU, or "cpu" for DALI's CPU operators; None for the device of the first
            ``.to(device)``, or for the CPU operators if there is no GPU.
        threads: the number of host threads of DALI, and of the backend that goes on from it; "auto" for one for each
            core that this process may use.
        hw_decoder_load: the share of the images that the GPU's hardware decoder gets, 0 to 1, if it has one.
    """

    threads: int | str = "auto"
    hw_decoder_load: float = 0.65

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threads(self.threads)
        if type(self.hw_decoder_load) not in (int, float) or not 0 <= self.hw_decoder_load <= 1:
            raise ValueError(f"hw_decoder_load must be a number from 0 to 1, got {self.hw_decoder_load!r}")
        if self.device is None and not torch.cuda.is_available():
            object.__setattr__(self, "device", "cpu")


class DaliBackend(AcceleratorBackend):
    """With ``exact=True`` DALI's CPU decoder decodes, whose pixels equal Pillow's, and another backend does the rest.

    With ``exact=False`` DALI does all that it has operators for, on the device. It always does an image's first stages;
    from the first stage that it has no operator for, another backend goes on with DALI's pixels (``partition``).
    """

    Options = DaliOptions
    devices = ("cuda",)
    options: DaliOptions

    def __init__(self, options: DaliOptions) -> None:
        super().__init__(options)
        self._forget()
        fork.register(in_child=self._forget)

    def _forget(self) -> None:
        self._pipelines: dict[torch.device, PipelinePool] = {}
        self._agrees: bool | None = None
        self._cuda: bool | None = None

    @classmethod
    def unavailable(cls, options: DaliOptions | None = None) -> str | None:
        if not _installed("nvidia.dali"):
            return MISSING
        if not _installed("nvidia.nvimgcodec"):
            return "nvImageCodec is missing, which DALI decodes with: pip install 'accel-vision[dali]'"
        device = torch.device((options and options.device) or "cpu")
        if device.type == "cuda":
            return missing_gpu(device, "set_image_backend('dali', device='cpu') runs DALI's CPU operators")
        return None

    def prepare(self) -> None:
        """Prepare the host backend for forked workers; DALI itself must not be loaded before a fork."""
        self.on_host.prepare()

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        """See ``accel.backend.AcceleratorBackend``.

        Raises:
            DecodeError: an image cannot be decoded, and ``on_error`` is "raise".
        """
        if pipeline.forked():
            counters.fallback("DALI was loaded before this process was forked; the cpu backend ran")
            return self.on_host.run(plan, memory.results.empty).to(device)
        try:
            with torch.inference_mode(False), nullcontext() if device.type == "cpu" else torch.cuda.device(device):
                if self._agrees is None:  # whether DALI's CPU decoder equals the installed Pillow
                    self._agrees = not self.options.exact or agreement.agrees("DALI", self._decode)
                if not self._agrees:
                    return self._go_on(plan, device)
                return self._run(plan, device)
        except DecodeError as error:  # without its frames, which would keep the batch's pixels alive
            raise error.with_traceback(None) from error.__cause__

    def _run(self, plan: Plan, device: torch.device) -> torch.Tensor:
        parts = partition.partition(plan, exact=self.options.exact, on_host=device.type == "cpu")
        for reason in parts.reasons:
            counters.fallback(reason)
        finished, undecodable = partition.run_finished(parts.finished, self._on(device), plan)
        left = [*parts.left, *undecodable, *partition.run_begun(parts.begun, self._on(_CPU))]
        if left:
            result = self._go_on(plan._replace(decodes=tuple(left)), device)
        elif len(finished) == 1:
            # DALI's own memory; on a GPU it is returned to DALI only when the device has finished all queued work
            return finished[0][1]
        else:
            result = plan.empty(lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype, device=device))
        for positions, values in finished:
            sharing.merge(result, positions, values, range(len(positions)))
        return result

    def _go_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        """Run a plan on another backend, with the result on ``device``; places without items are not filled."""
        if self._cuda is None:  # whether accel's own kernels can go on from DALI's pixels
            self._cuda = registry.availability().get("cuda", "missing") is None
        if device.type == "cuda" and self._cuda:
            cuda = registry.companion("cuda", replace(self.options, exact=True))
            return sharing.run_on(cast(AcceleratorBackend, cuda), plan, device)
        return self.on_host.run(plan, memory.results.empty).to(device, non_blocking=True)

    def _on(self, device: torch.device) -> PipelinePool:
        found = self._pipelines.get(device)
        if found is None:
            make = partial(
                pipeline.Pipeline,
                device=None if device.type == "cpu" else device.index,
                threads=self.options.threads if isinstance(self.options.threads, int) else cores(),
                hw_load=float(self.options.hw_decoder_load),
            )
            found = self._pipelines.setdefault(device, PipelinePool(make))
        return found

    def _decode(self, data: Data, box: Box, channels: int) -> Pixels | None:
        header = claim(bytes(data))
        assert header is not None
        box, chain = OperatorChain.on_region(box, header.width, channels)
        (outputs,) = self._on(_CPU).run(Structure("jpeg", channels, chain.structure), [Sample(data, box, chain.fed)])
        return None if outputs.tensors is None else np.asarray(outputs.tensors[0])

    def describe(self, plan: Plan) -> list[str]:
        where = self.options.device or "the device of the first .to()"
        on_host = self.options.device is not None and torch.device(self.options.device).type == "cpu"
        parts = partition.partition(plan, exact=self.options.exact, on_host=on_host)
        names = dict.fromkeys(name for work in parts.given for name in work.structure.names)
        on = "the host" if self.options.exact else where
        lines = [f"runs: DALI on {on}: {', '.join(names) or 'nothing'}"]
        if self.options.exact:
            lines.append("then: the cpu or cuda backend, in Pillow's arithmetic")
        return lines + reason_lines(parts.reasons, "cpu or cuda", plan.shape[0])


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False

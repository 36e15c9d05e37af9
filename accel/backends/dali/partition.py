"""Partitioning a batch: images that DALI finishes or begins, and those that are left to another backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from accel.backends.dali.lowering import Lowered, lower_decoding, lower_image, refused
from accel.backends.dali.operator_chain import Structure
from accel.backends.dali.pipeline import PipelinePool, Sample
from accel.codec import decode
from accel.codec.header import Raw
from accel.planning import partition as shared
from accel.planning.partition import going_on, split
from accel.planning.plan import Decode, Plan
from accel.system import counters

Values = tuple[list[int], torch.Tensor]
"""The positions of images in the batch, and their final values [images, channels, height, width]."""

UNDECODABLE = "DALI cannot decode a file; the cpu backend decides"


class Partition(NamedTuple):
    """Parts of a plan: images that DALI finishes, in their order in the batch; those that it begins; and the decodes
    that are left. ``reasons``: why it does not finish images, counted.
    """

    finished: list[Lowered]
    begun: list[Lowered]
    left: list[Decode]
    reasons: Counter[str]

    @property
    def given(self) -> list[Lowered]:
        """All images that DALI gets."""
        return self.finished + self.begun


def partition(plan: Plan, *, exact: bool, on_host: bool) -> Partition:
    """Determine DALI's part in a plan.

    Args:
        exact: whether DALI only decodes.
        on_host: whether DALI runs on the host, so that other backends can go on from its pixels. Else images that it
            does not finish are only decoded, by its CPU operators.
    """
    own, left, reasons = shared.partition(plan, refused)
    parts = Partition([], [], list(left.decodes), reasons)
    for each in own.decodes if exact else [image for wanted in own.decodes for image in split(wanted)]:
        work = lower_decoding(each) if exact else lower_image(each, interleaved=plan.interleaved)
        if work.reason is None:
            parts.finished.append(work)
            continue
        if not exact:
            reasons[work.reason] += 1
            work = work if on_host else lower_decoding(each)
        if work.structure.source == "pixels" and not work.structure.operators:  # nothing is done
            parts.left.append(work.wanted)
        else:
            parts.begun.append(work)
    parts.finished.sort(key=_position)  # in the batch's order, even if images share a file
    return parts


def _position(work: Lowered) -> int:
    return work.wanted.items[0].position


def run_begun(works: Sequence[Lowered], pool: PipelinePool) -> list[Decode]:
    """Run images that DALI begins, on the host; return decodes of its pixels, and of files that it cannot decode."""
    found: list[Decode] = []
    for group, tensors in _run(works, pool, found):
        found += [going_on(work.wanted, np.asarray(tensors[n]), work.rest) for n, work in enumerate(group)]
    return found


def run_finished(works: Sequence[Lowered], pool: PipelinePool, plan: Plan) -> tuple[list[Values], list[Decode]]:
    """Run images that DALI finishes; return the values, and the decodes of files that it cannot decode."""
    found: list[Values] = []
    left: list[Decode] = []
    for group, tensors in _run(works, pool, left):
        values = from_dlpack(tensors.as_tensor())
        found.append((list(map(_position, group)), values.permute(0, 3, 1, 2) if plan.interleaved else values))
    return found, left


def _run(works: Sequence[Lowered], pool: PipelinePool, left: list[Decode]) -> Iterator[tuple[list[Lowered], Any]]:
    """Run works, those of one structure together; yield them with their tensors. ``left`` gets the undecodable ones."""
    groups: dict[Structure, list[Lowered]] = {}
    for work in works:
        groups.setdefault(work.structure, []).append(work)
    for structure, group in groups.items():
        samples = []
        for wanted, box, _, fed, *_ in group:
            header, data = wanted.source.header, wanted.source.data
            pixels: Any = decode.raw(data, header, box, wanted.channels) if isinstance(header, Raw) else data
            samples.append(Sample(pixels, box, fed))
        for outputs in pool.run(structure, samples):
            if outputs.tensors is None:
                counters.fallback(UNDECODABLE)
                left.append(group[outputs.first].wanted)
            else:
                yield group[outputs.first : outputs.first + outputs.images], outputs.tensors

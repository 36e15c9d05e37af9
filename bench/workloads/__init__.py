"""The registry: every workload, in the order of the report. A new one is a file here and an entry below."""

from bench.workload import Workload
from bench.workloads import feed, imports, recording, scaling, side_by_side, tensors

_ROWS = (
    side_by_side.TRAIN,
    side_by_side.EVAL,
    tensors.TRAIN,
    recording.RECORDING,
    recording.RECORDING_V2,
    side_by_side.LATENCY,
    side_by_side.BATCH,
    side_by_side.LARGE_TRAIN,
    side_by_side.LARGE_EVAL,
    side_by_side.CIFAR,
    side_by_side.JITTER,
    side_by_side.RANDAUGMENT,
    side_by_side.TRIVIALAUGMENT,
    side_by_side.DETECTION,
    side_by_side.DECODE,
    scaling.SCALING,
    feed.FEED,
    imports.IMPORTS,
)

WORKLOADS: dict[str, Workload] = {row.name: row for row in _ROWS}
"""The workloads by name."""

"""The registry: every workload, in the order of the report. A new one is a file here and an entry below."""

from bench.workload import Workload
from bench.workloads import contests, feed, imports, recording, scaling, tensors

_ROWS = (
    contests.TRAIN,
    contests.EVAL,
    tensors.TRAIN,
    recording.RECORDING,
    recording.RECORDING_V2,
    contests.LATENCY,
    contests.BATCH,
    contests.LARGE_TRAIN,
    contests.LARGE_EVAL,
    contests.CIFAR,
    contests.JITTER,
    contests.RANDAUGMENT,
    contests.TRIVIALAUGMENT,
    contests.DETECTION,
    contests.DECODE,
    scaling.SCALING,
    feed.FEED,
    imports.IMPORTS,
)

WORKLOADS: dict[str, Workload] = {row.name: row for row in _ROWS}
"""The workloads by name."""

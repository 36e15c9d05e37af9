"""The registry: every workload, in the order of the report. A new one is a file here and an entry below."""

from bench import startup
from bench.workload import Workload
from bench.workloads import feed, recording, scaling, side_by_side

_ROWS = (
    *side_by_side.PHOTOS,
    side_by_side.TENSORS,
    recording.RECORDING,
    recording.RECORDING_V2,
    *side_by_side.SIZES,
    *side_by_side.OTHERS,
    scaling.LOADER,
    scaling.SCALING,
    feed.FEED,
    startup.IMPORTS,
)

WORKLOADS: dict[str, Workload] = {row.name: row for row in _ROWS}
"""The workloads by name."""

"""The registry: every workload, by suite. A new one is a file here and an entry below."""

from bench.workload import Workload
from bench.workloads import imports, loader, one_thread, recording

SUITES: dict[str, tuple[Workload, ...]] = {
    "throughput": (one_thread.TRAIN, one_thread.EVAL, loader.TRAIN, recording.TRAIN, imports.IMPORTS),
}

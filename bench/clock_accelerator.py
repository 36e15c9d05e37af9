"""``python -m bench.clock_accelerator``: an accelerator that is a clock, to predict what feeds it and what waits.

It computes when each batch of a DataLoader is made by its worker, planned and queued by the main process, copied, and
computed by the kernels, from times that were measured on a GPU and by ``bench.host_path`` on the host:

- ``gpu/sustained.json``: rates with 4, 8 and 12 workers, CPU time of workers and of the main process, and the share of
  time with a kernel;
- ``host_path.json``: the main thread's time for a batch of each size, now and before.

Two times are not measured but fitted: how long a worker takes for an image (the rate with 4 workers, which nothing else
limits; with more it grows as their CPU time for an image does), and how long the main process waits for each batch (the
rate with 12 workers, in which it neither computes nor has anything to wait for that was measured). What the 8 workers
bring follows from both. Where a prediction is needed for other sizes, the main process's time has a part for each batch
and one for each image in the proportion that ``host_path.json`` has.

Exit status: 0 it gives the rates that were measured within 10%, 1 it does not, 2 wrong usage.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

from accel.cli.arguments import Red, command
from accel.cli.tables import Table, show
from bench import machine

SOURCES = "gpu/sustained.json", "host_path.json"
MEASURED = 4, 8, 12
SIZE = 512  # of the batches that were measured
_WAY = "ImageFolder, 1 worker"
_AHEAD = 2  # batches that each worker may be ahead of the training loop
_UNDER_WAY = 4  # batches that are launched and not used yet
_BATCHES = 400
_BUS = 498_000  # images a second that cross it
_CLOSE = 0.1


class Times(NamedTuple):
    """Microseconds: of a worker for an image; of the main process, which computes and then waits, and of the kernels,
    for a batch."""

    worker: float
    main: float
    waits: float
    kernels: float


def rate(times: Times, size: int, workers: int) -> float:
    """Images a second, once all workers have begun."""
    made, used = [0.0] * workers, list[float]()
    main = bus = device = 0.0
    for number in range(_BATCHES):
        worker, earlier = number % workers, number - _AHEAD * workers
        asked = used[earlier] if earlier >= 0 else 0.0
        made[worker] = max(made[worker], asked) + times.worker * size
        room = used[number - _UNDER_WAY] if number >= _UNDER_WAY else 0.0
        main = max(made[worker], main, room) + times.main + times.waits
        bus = max(main, bus) + 1e6 * size / _BUS
        device = max(bus, device) + times.kernels
        used.append(device)
    half = _BATCHES // 2
    return 1e6 * size * (_BATCHES - half) / (used[-1] - used[half - 1])


def measured(steps: dict[str, Any], workers: int) -> dict[str, float]:
    """What was measured with so many workers: images a second, and microseconds for an image."""
    found = steps[f"accel, DataLoader, {workers} workers"]
    each = 1e6 / found["images/s"]
    return {
        "images/s": found["images/s"],
        "worker": found["workers, CPU s a s"] * each,
        "main": found["main, CPU s a s"] * each,
        "kernels": (1 - found["share of time without a kernel"]) * each,
    }


def fitted(steps: dict[str, Any]) -> dict[int, Times]:
    """The times of batches of ``SIZE``, by the number of workers."""
    found = {workers: measured(steps, workers) for workers in MEASURED}
    least, most = found[min(MEASURED)], found[max(MEASURED)]
    waits = SIZE * (1e6 / most["images/s"] - most["main"])
    each = min(MEASURED) * 1e6 / least["images/s"] / least["worker"]  # of a worker's time, for each of its CPU time
    return {
        workers: Times(each * own["worker"], SIZE * own["main"], waits, SIZE * own["kernels"])
        for workers, own in found.items()
    }


def of_size(times: Times, size: int, host: dict[str, Any], now: bool) -> Times:
    """The times of batches of another size, with the main process's part as it was ``now`` or before."""
    taken = {}
    for which in ("before", "now"):
        rows = host[which]["ways"][_WAY]
        taken[which] = {int(n): int(n) * (row["got, us"] + row["queued, us"]) for n, row in rows.items()}
    share = taken["now" if now else "before"][size] / taken["before"][SIZE]
    return Times(times.worker, share * times.main, share * times.waits, times.kernels * size / SIZE)


def aimed_at(times: Times, size: int) -> Times:
    """The times if the main process takes 0.2 ms for a batch and 3 us for an image, and waits for nothing else."""
    return Times(times.worker, 200 + 3.0 * size, 0.0, times.kernels * size / SIZE)


def _rows(named: dict[Any, dict[Any, float]]) -> list[tuple[str, ...]]:
    return [(str(name), *(f"{value:,.0f}" for value in row.values())) for name, row in named.items()]


@command("bench.clock_accelerator")
def main() -> int:
    options = machine.parser("bench.clock_accelerator", str(__doc__).partition("\n")[0], out="clock.json", rounds=1)
    args = options.parse_args()
    sustained, host = (json.loads((machine.RESULTS / each).read_text()) for each in SOURCES)
    times, steps = fitted(sustained["steps"]), sustained["steps"]
    again = {
        workers: {"measured": measured(steps, workers)["images/s"], "by the clock": rate(own, SIZE, workers)}
        for workers, own in times.items()
    }
    show(Table(f"images/s, batches of {SIZE}", ("workers", "measured", "by the clock"), _rows(again)))
    far = [n for n, row in again.items() if abs(row["by the clock"] / row["measured"] - 1) > _CLOSE]
    if far:
        raise Red(f"not the rates that were measured, with {far} workers; nothing is predicted")
    eight, sizes = times[8], (64, SIZE)
    predicted = {
        "as it was": {n: rate(of_size(eight, n, host, False), n, 8) for n in sizes},
        "as it is": {n: rate(of_size(eight, n, host, True), n, 8) for n in sizes},
        "main process 0.2 ms a batch, 3 us an image": {n: rate(aimed_at(eight, n), n, 8) for n in sizes},
    }
    show(Table("predicted images/s, 8 workers", ("", *map(str, sizes)), _rows(predicted)))
    shown = {workers: own._asdict() for workers, own in times.items()}
    machine.write(args.out, {"sources": SOURCES, "times, us": shown, "again": again, "predicted": predicted})
    return 0


if __name__ == "__main__":
    sys.exit(main())

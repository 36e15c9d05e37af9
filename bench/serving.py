"""Latency of requests: 1, 8 and 32 JPEG files in memory to one batch of ImageNet's evaluation, by the clock.

    python -m bench.serving [--data DIR] [--images N] [--rounds N] [--out FILE]

Each contestant (``contestants/servers.py``) answers one request after another, in turns, on all cores, on the GPU if
there is one. Tensors are compared first. ``python -m bench.gpu --only latency`` measures one contestant after another.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch

import accel
from accel.cli import screen
from accel.cli.arguments import Red, command
from accel.cli.data import folder, open_folder
from accel.cli.error_stats import Different, ErrorStats
from accel.cli.tables import Table, show
from accel.system.cores import cores
from bench.contestants.contestant import missing
from bench.contestants.servers import SERVERS, SIZES, Answer, Server, requests
from bench.gpu.setting import seconds
from bench.machine import parser, write


def measured(files: Sequence[bytes], size: int, rounds: int, device: torch.device) -> dict[str, Any]:
    """Requests of ``size`` images each: every contestant's latencies, or the reason why there are none.

    Raises:
        Red: an exact contestant's tensor differs from torchvision's.
    """
    asked = requests(files, size)
    first = next(asked)
    with ExitStack() as stack:
        opened = [(server, _opened(stack, server, device, first)) for server in SERVERS]
        running = [(server, found[0]) for server, found in opened if not isinstance(found, str)]
        ms: dict[str, list[float]] = {server.title: [] for server, _ in running}
        with screen.Bar(f"{size} image{'s' * (size > 1)}", rounds) as bar:
            for number in range(-1, rounds):  # the first is not measured: threads and decoders are made
                request = next(asked)
                for server, answer in running:
                    with server.in_force(device):
                        took = seconds(partial(answer, request), device)
                    if number >= 0:
                        ms[server.title].append(1000 * took)
                bar.advance()
    return {server.title: _figures(server, found, sorted(ms.get(server.title, []))) for server, found in opened}


def _opened(
    stack: ExitStack, server: Server, device: torch.device, first: Sequence[bytes]
) -> tuple[Answer, ErrorStats] | str:
    """Open a contestant and compare its first answer; or the reason why it does not run."""
    if reason := missing(server.modules) or accel.image_backends()[server.backend]:
        return reason
    try:
        answer = stack.enter_context(server.opened(device))
        return answer, server.check(answer, device, first)
    except Exception as error:  # of any library; the others can still be measured
        if server.exact:
            if isinstance(error, Different):
                raise Red(f"{server.title}: {error}") from error
            raise
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _figures(server: Server, found: tuple[Answer, ErrorStats] | str, ms: Sequence[float]) -> dict[str, Any]:
    if isinstance(found, str):
        return {"settings": server.settings, "not run": found}
    marks = quantiles(ms, n=100, method="inclusive")
    figures = {"settings": server.settings, "exact": server.exact, "p50 ms": marks[49], "p99 ms": marks[98]}
    return {**figures, "ms": [round(each, 3) for each in ms], "difference in levels": found[1].as_data()}


def table(found: dict[str, Any]) -> Table:
    """The table of results, by contestant."""
    rows = []
    for name, each in found[str(SIZES[0])].items():
        cells = [found[size][name] for size in found]
        reason = each.get("not run")
        texts = (
            [f"{cell['p50 ms']:.1f} / {cell['p99 ms']:.1f}" for cell in cells] if reason is None else [reason, "", ""]
        )
        rows.append((name, *texts))
    columns = ("p50 / p99, ms", *(f"{size} image{'s' * (size != '1')}" for size in found))
    return Table("", columns, rows)


@command("serving")
def main(argv: Sequence[str] | None = None) -> int:
    """Measure. Exit status: 0 measured, 1 a tensor differs (nothing is reported), 2 wrong usage."""
    options = parser(
        "bench.serving", str(__doc__).partition("\n")[0], out="serving.json", images=32, rounds=100, least=(1, 2)
    )
    args = options.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with folder(args.data) as (root, name):
        files = [Path(file).read_bytes() for file in open_folder(root).files[: args.images]]
        found = {str(size): measured(files, size, args.rounds, device) for size in SIZES}
    show(table(found))
    result = {"data": name, "images": len(files), "rounds": args.rounds, "cores": cores(), "device": device.type}
    write(args.out, {**result, "requests": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())

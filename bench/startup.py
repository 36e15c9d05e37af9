"""From process start to the first batch of 32 photos: torchvision, and accel with nothing compiled and with all.

    python -m bench.startup --data DIR [--rounds N] [--out FILE]

Each is measured in its own process, in turns: wall-clock time, and CPU time with that of all child processes. Python's
bytecode exists, as in an installed wheel. The workload ``imports`` times imports alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from accel.cli import screen
from accel.cli.arguments import Red, command
from accel.cli.costs import Clock, Cost, take_turns
from accel.cli.data import folder
from accel.cli.tables import Table, show
from bench.machine import parser, write
from bench.workload import Setting, Workload

SCRIPT = """
import sys
from pathlib import Path
import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import folder
if sys.argv[1] != "torchvision":
    import accel
    accel.set_image_backend(sys.argv[1])

class Photos(torch.utils.data.Dataset):
    files = sorted(Path(sys.argv[2]).rglob("*.jpg"))[:int(sys.argv[3])]
    transform = transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        return self.transform(folder.default_loader(self.files[index]))

torch.manual_seed(0)
for batch in DataLoader(Photos(), len(Photos.files)):
    print(float(batch.to("cpu").double().sum()))
"""


def once(name: str, data: Path, images: int, cache: str) -> dict[str, Any]:
    environment = {**os.environ, "ACCEL_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": ""}
    backend = "torchvision" if name == "torchvision" else "cpu"
    command, clock = [sys.executable, "-c", SCRIPT, backend, str(data), str(images)], Clock()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {**{name: round(spent, 3) for name, spent in clock.cost()._asdict().items()}, "sum": done.stdout.strip()}


def measure(data: Path, images: int, rounds: int) -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {"torchvision": [], "cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as cache:
        once("cold", data, images, cache)
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for name in ("torchvision", "cold", *["warm", "torchvision"] * (1 if number else 2), "warm"):
                found[name].append(once(name, data, images, cache))
    if len({run["sum"] for runs in found.values() for run in runs}) > 1:
        raise Red("the batches differ")
    medians = {name: {key: median(run[key] for run in runs) for key in Cost._fields} for name, runs in found.items()}
    return {"load": os.getloadavg(), "medians": medians, "runs": found}


def _imports(setting: Setting) -> dict[str, Any]:
    turns = {
        "import torchvision": partial(_import, "import torchvision", "pass"),
        "import accel, after it": partial(_import, "import accel", "import torchvision"),
    }
    with screen.Bar("imports", setting.rounds * len(turns)) as bar:
        rounds = take_turns(turns, setting.rounds, lambda statement: bar.advance())
    return {"rounds": rounds, "median ms": {statement: 1000 * median(some) for statement, some in rounds.items()}}


def _import(timed: str, before: str, number: int) -> float:
    program = f"import time\n{before}\nbegin = time.perf_counter()\n{timed}\nprint(time.perf_counter() - begin)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(run.stdout)


IMPORTS = Workload("imports", "imports, in fresh interpreters", _imports)


@command("startup")
def main() -> int:
    options = parser("bench.startup", str(__doc__).partition("\n")[0], out="startup.json", images=32, rounds=3)
    args = options.parse_args()
    with folder(args.data) as (root, _):
        result = measure(root, args.images, args.rounds)
    rows = [(name, f"{each['seconds']:.2f}", f"{each['cpu_seconds']:.2f}") for name, each in result["medians"].items()]
    show(Table("start to first batch", ("", "seconds", "CPU seconds"), rows))
    write(args.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

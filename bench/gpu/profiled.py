"""Profiling single kernels by Nsight Compute: what bounds them.

``python -m bench.gpu.profiled DEVICE DATA BATCH`` is the program that it watches: one batch of training crops, decoded
without and with indexes, and passed to float32.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from accel.cli.data import open_folder
from accel.planning.plan import plan
from bench.gpu import decode
from bench.gpu.kernels import uploaded
from bench.gpu.setting import NotInstalled, Setting, Step, photos, recorded
from bench.machine import ROOT

KERNELS = ("jpeg_segments", "pass3", "jpeg_synchronise", "jpeg_coefficients")


def measure(setting: Setting) -> Iterator[Step]:
    """Every kernel's figures by Nsight Compute; its whole report is beside the results."""
    for kernel in KERNELS:
        yield kernel, partial(_profiled, setting, kernel)


def _profiled(setting: Setting, kernel: str) -> dict[str, Any]:
    """Profile two launches; the second one's metrics are returned.

    Raises:
        NotInstalled: there is no GPU, or no ncu.
        RuntimeError: it fails, for example because it may not read the counters.
    """
    ncu = shutil.which("ncu")
    if ncu is None or setting.device.type != "cuda":
        raise NotInstalled("a GPU" if setting.device.type != "cuda" else "ncu")
    report = setting.out / f"{kernel}.ncu-rep"
    watched = [sys.executable, "-m", "bench.gpu.profiled", str(setting.device), str(setting.folder)]
    watched.append(str(len(setting.photos)))
    how = ("--set", "full", "--clock-control", "none", "--target-processes", "all", "-f", "--launch-count", "2")
    _run([ncu, *how, "-k", f"regex:^{kernel}$", "-o", str(report.with_suffix("")), *watched], setting.limit - 5)
    found = figures(_run([ncu, "--import", str(report), "--page", "details", "--csv"], 60))
    if not found:
        raise RuntimeError(f"no launch of {kernel} was profiled")
    return {"report": report.name, **found}


def _run(command: list[str], limit: float) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
    print(done.stdout[-4000:], done.stderr[-4000:])
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: status {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    return done.stdout


def figures(text: str) -> dict[str, str]:
    """The last launch's metrics and their units, from ncu's page of details as CSV."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    return {
        f"{row['Section Name']}: {row['Metric Name']}": f"{row['Metric Value']} {row['Metric Unit']}".strip()
        for row in rows
        if row["ID"] == rows[-1]["ID"] and row["Metric Name"]
    }


def main(device: str, folder: str, batch: str) -> None:
    """Launch every kernel of ``KERNELS`` at least twice."""
    on = torch.empty(0, device=device).device
    some = photos(open_folder(Path(folder)).files, int(batch))
    engine, crops = decode.engine(on), list(map(decode.train_crop, some))
    with engine.device.enter():
        for batch_of in (crops, decode.indexed(engine.jpeg, crops)):
            for _ in range(2):
                engine.jpeg.decode(batch_of).flagged()
    backend, recipes = recorded(some, on)
    execution, _ = uploaded(backend, plan(recipes), on)
    with engine.device.enter():
        for _ in range(2):
            execution.launch()
    if on.type == "cuda":
        torch.cuda.synchronize(on)


if __name__ == "__main__":
    main(*sys.argv[1:])

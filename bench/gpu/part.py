"""Running a part of the benchmark in its own process, which writes its result after every step (``processes.py``)."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from accel.backends.cuda import compile
from accel.cli.data import open_folder
from bench.gpu.setting import NotInstalled, Setting, photos
from bench.machine import provenance


def write(file: Path, result: dict[str, Any]) -> None:
    """Write a file atomically, so that it is complete whenever it is read or this process ends."""
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps(result, indent=2) + "\n")
    os.replace(beside, file)


def main(file: Path, told: dict[str, Any]) -> None:
    """Run the steps that were not begun yet; one that was begun and has no figures had ended its process.

    A step that takes too long ends this process, after printing where every thread is.
    """
    faulthandler.enable()
    device, data = torch.empty(0, device=told["device"]).device, Path(told["data"])
    files = open_folder(data).files
    setting = Setting(
        photos(files, told["batch"]), files, data, device,
        **{each: told[each] for each in ("rounds", "steps", "seconds", "limit")}, out=file.parent,
    )  # fmt: skip
    result = json.loads(file.read_text()) if file.exists() else {"part": told["part"], "variant": told["variant"]}
    result |= {**provenance(), "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "host"}
    result["kernels' sources"] = compile.key()
    found, took = result.setdefault("steps", {}), result.setdefault("seconds", {})
    module, _, function = told["function"].partition(":")
    for step, make in getattr(import_module(module), function)(setting):
        if step in found or told["match"] not in step:
            continue
        begin = time.time()
        if begin > told["ends"]:
            found[step] = {"failed": "no time was left"}
            continue
        found[step] = {"failed": "its process ended"}
        write(file, result)
        faulthandler.dump_traceback_later(min(setting.limit, told["ends"] - begin) + 1, exit=True)
        try:
            found[step] = make()
        except NotInstalled as error:
            found[step] = {"not installed": str(error)}
        except Exception as error:  # other steps can still be measured
            traceback.print_exc()
            found[step] = {"failed": f"{type(error).__name__}: {error}"}
        faulthandler.cancel_dump_traceback_later()
        took[step] = time.time() - begin
        write(file, result)
    write(file, {**result, "complete": True})


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))

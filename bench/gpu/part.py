"""Running steps of a part in their own process, which writes its result after every step (``processes.py``)."""

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
from bench.gpu.plan import PARTS, done
from bench.gpu.setting import NotInstalled, Setting, photos
from bench.machine import provenance, versions

TRIES = 2  # times that a step is begun whose call was ended in it


def write(file: Path, result: dict[str, Any]) -> None:
    """Write a file atomically, so that it is complete whenever it is read or this process ends."""
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps(result, indent=2) + "\n")
    os.replace(beside, file)


def main(file: Path, told: dict[str, Any]) -> None:
    """Run steps in the order given, from the first that no earlier process did; those that the time suffices for.

    ``told``: the part, its options, "steps" with the seconds that they usually take, the "limit" of each, and when this
    process "ends". A step that takes too long ends it, after printing where every thread is. While a step runs, the
    file names it as "running"; a step that a call was ended in is "interrupted", and is begun once more.
    """
    faulthandler.enable()
    device, data = torch.empty(0, device=told["device"]).device, Path(told["data"])
    files = open_folder(data).files
    options = dict(told["options"])
    some = photos(files, options.pop("batch"))
    setting = Setting(some, files, data, device, limit=told["limit"], out=file.parent, **options)
    result: dict[str, Any] = {"part": told["part"], "identity": told["identity"]}
    if file.exists():
        known = versions()
        result = json.loads(file.read_text())
        result |= {"steps": done(file, known), "versions": known}
    else:
        result |= {**provenance(), "device": told["identity"]["card"], "kernels' sources": compile.key()}
    found, took = result.setdefault("steps", {}), result.setdefault("seconds", {})
    if begun := result.pop("running", None):
        often = result.setdefault("interrupted", {})
        often[begun] = often.get(begun, 0) + 1
        if often[begun] >= TRIES:
            found[begun] = {"failed": f"its call was ended in it {TRIES} times"}
    module, _, function = PARTS[told["part"]].partition(":")
    steps = dict(getattr(import_module(module), function)(setting))
    for step, usual in told["steps"].items():
        begin = time.time()
        if step in found or begin + usual > told["ends"]:
            continue
        if step not in steps:
            found[step] = {"left out": "there is no such step with these options"}
            write(file, result)
            continue
        write(file, {**result, "running": step})
        faulthandler.dump_traceback_later(min(setting.limit, told["ends"] - begin) + 1, exit=True)
        try:
            found[step] = steps[step]()
        except NotInstalled as error:
            found[step] = {"not installed": str(error)}
        except Exception as error:  # other steps can still be measured
            traceback.print_exc()
            found[step] = {"failed": f"{type(error).__name__}: {error}"}
        faulthandler.cancel_dump_traceback_later()
        took[step] = time.time() - begin
        write(file, result)
    write(file, result)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))

"""What the environment tells the processes that start under ``python -m accel run``: one variable, of JSON.

A process reads it when it imports torchvision (``child.py``). A script's own choice of a backend takes its place, so
that the children have that, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel.system import log

VARIABLE = "ACCEL_RUN"
SITE = Path(__file__).with_name("site")

# named as importlib's own frames are, which Python leaves out of the tracebacks of imports that fail
_NAMED = "<frozen importlib._bootstrap_external>"
CHILD = f"exec(compile({Path(__file__).with_name('child.py').read_text()!r}, {_NAMED!r}, 'exec'))"
"""A text for a process to run, that defines ``SwitchOnImport``."""


def told() -> dict[str, Any] | None:
    """What this process was told; None: it was not started under ``python -m accel run``.

    Returns:
        "backend" and "options": as ``set_image_backend`` takes them; "profile": None, or what there is to measure;
        "home", "prefix": the folder that has accel, and the Python to use it.
    """
    text = os.environ.get(VARIABLE)
    return json.loads(text) if text else None


def telling(before: Mapping[str, str], backend: str, options: dict[str, Any], profile: Any = None) -> dict[str, str]:
    """The environment of a process that is to be told this."""
    home = str(Path(__file__).parents[2])
    text = json.dumps({"backend": backend, "options": options, "profile": profile, "home": home, "prefix": sys.prefix})
    others = [path for path in before.get("PYTHONPATH", "").split(os.pathsep) if path != str(SITE)]
    path = os.pathsep.join([str(SITE), *others] if any(others) else [str(SITE)])
    return {**before, "PYTHONPATH": path, VARIABLE: text}


def choose(backend: str, options: dict[str, Any]) -> None:
    """Tell the processes that this one starts what its script has chosen, if they are told anything."""
    now = told()
    if now is None:
        return
    try:
        text = json.dumps({**now, "backend": backend, "options": options})
    except TypeError as error:
        log.note(log.WARNING, "sub-processes are told nothing of these options, and run torchvision: %s", error)
        text = json.dumps({**now, "backend": "torchvision", "options": {}})
    os.environ[VARIABLE] = text

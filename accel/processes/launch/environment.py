"""The environment variable, of JSON, by which ``python -m accel run`` tells all processes of the switch.

A process reads it when it imports torchvision (``child.py``). If a script chooses a backend itself, that is written
there, so that its children use it, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel.errors import attempt
from accel.system import log

VARIABLE = "ACCEL_RUN"
TUNE_FILE = "ACCEL_TUNE_FILE"
"""The variable with the file that ``accel.hooks.tuned`` keeps."""
SITE = Path(__file__).with_name("site")

# the name of importlib's own frames, which Python leaves out of the tracebacks of failed imports
_NAMED = "<frozen importlib._bootstrap_external>"
CHILD = f"exec(compile({Path(__file__).with_name('child.py').read_text()!r}, {_NAMED!r}, 'exec'))"
"""Code for a process to run, which defines ``SwitchOnImport``."""

_KINDS: dict[str, Any] = {"backend": str, "options": dict, "profile": (dict, type(None)), "home": str, "prefix": str}


def settings() -> dict[str, Any] | None:
    """The content of the variable; None: this process was not started under ``python -m accel run``.

    Returns:
        "backend" and "options": arguments of ``set_image_backend``; "profile": the settings of a profile, or None;
        "limit_threads": whether pools of other libraries have one thread in DataLoader workers;
        "first": whether no process has used the variable yet;
        "home", "prefix": the folder that has accel, and ``sys.prefix`` of the Python that may import it from there.

    Raises:
        ValueError: its content was not written by accel.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    found = attempt(json.loads, text)
    if not isinstance(found, dict) or not all(isinstance(found.get(name), kind) for name, kind in _KINDS.items()):
        raise ValueError(f"{VARIABLE} was not set by `python -m accel run`: {text[:80]!r}")
    return found


def with_settings(
    before: Mapping[str, str], backend: str, options: dict[str, Any], profile: Any = None, limit_threads: bool = False
) -> dict[str, str]:
    """A copy of an environment with the variable set to these values, and ``site`` first in PYTHONPATH."""
    home = str(Path(__file__).parents[3])
    first = not (profile and profile.get("folder"))  # a report says more than its line
    values = {"backend": backend, "options": options, "profile": profile, "first": first}
    text = json.dumps({**values, "limit_threads": limit_threads, "home": home, "prefix": sys.prefix})
    others = [path for path in before.get("PYTHONPATH", "").split(os.pathsep) if path != str(SITE)]
    path = os.pathsep.join([str(SITE), *others] if any(others) else [str(SITE)])
    return {**before, "PYTHONPATH": path, VARIABLE: text}


def is_first() -> bool:
    """Whether this process is the first to use the variable; those that it starts are not."""
    now = settings()
    if now is None or not now["first"]:
        return False
    os.environ[VARIABLE] = json.dumps({**now, "first": False})
    return True


def choose(backend: str, options: dict[str, Any]) -> None:
    """Write the script's choice of a backend to the variable, for the processes it starts, if the variable is set."""
    now = settings()
    if now is None:
        return
    try:
        text = json.dumps({**now, "backend": backend, "options": options})
    except TypeError as error:
        log.note(log.WARNING, "sub-processes are told nothing of these options, and run torchvision: %s", error)
        text = json.dumps({**now, "backend": "torchvision", "options": {}})
    os.environ[VARIABLE] = text

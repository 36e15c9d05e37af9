"""Imported by every Python that starts under ``python -m accel run``, before its script; prepares the switch.

Any version of Python may import it, so it is kept simple. It leaves no traces: this folder is removed from the path,
and the ``sitecustomize`` of another folder, if there is one, is imported in its place.
"""

import os
import sys

_here = os.path.dirname(__file__)
if _here in sys.path:
    sys.path.remove(_here)
if "ACCEL_RUN" in os.environ and sys.version_info >= (3, 10):
    _names = {"__name__": "accel_started"}
    with open(os.path.join(os.path.dirname(_here), "child.py")) as _file:
        # the name of importlib's own frames, which Python leaves out of the tracebacks of failed imports
        exec(compile(_file.read(), "<frozen importlib._bootstrap_external>", "exec"), _names)
    _names["SwitchOnImport"]().install()  # type: ignore[operator]

del sys.modules["sitecustomize"]
# if there is none, Python ignores the ImportError
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401

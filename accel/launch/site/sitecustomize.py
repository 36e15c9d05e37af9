"""Imported by every Python that starts under ``python -m accel run``, before its script: the switch waits from here on.

Any Python may find it, of whatever version; so this is plain. Nothing is seen of it afterwards: this folder leaves the
path, and the ``sitecustomize`` that the other folders have, if any, is imported in its place.
"""

import os
import sys

_here = os.path.dirname(__file__)
if _here in sys.path:
    sys.path.remove(_here)
if "ACCEL_RUN" in os.environ and sys.version_info >= (3, 10):
    _names = {"__name__": "accel_started"}
    with open(os.path.join(os.path.dirname(_here), "child.py")) as _file:
        # named as importlib's own frames are, which Python leaves out of the tracebacks of imports that fail
        exec(compile(_file.read(), "<frozen importlib._bootstrap_external>", "exec"), _names)
    _names["SwitchOnImport"]().install()  # type: ignore[operator]

del sys.modules["sitecustomize"]
# where there is none, Python passes over the ImportError
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401

"""Spark and Dask: workers that Java, or a scheduler elsewhere, has started cannot get the switch from here; the process
that gives them work says so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from accel.hooks.patch import Function, body
from accel.hooks.watching import Replace
from accel.processes import switch
from accel.processes.launch import environment
from accel.system import log


def _told(original: Function, *args: Any, whose: str, own: Callable[[Any], bool], **kwargs: Any) -> Any:
    """A method that gives work to workers; ``own``: whether these get the switch, or this is one, by its object."""
    if switch.active() is not None and environment.settings() is None and not own(args[0]):
        log.once(
            log.WARNING,
            f"{whose} workers run plain torchvision, unless the functions that they run call accel.set_image_backend "
            "themselves, or the script is started by python -m accel run",
        )
    return original(*args, **kwargs)


def _watched(name: str, whose: str, own: Callable[[Any], bool]) -> Replace:
    """Replace a method; ``whose``: workers. ``own``: as for ``_told``."""
    return lambda module: body(
        attrgetter(name)(module), lambda original: partial(_told, original, whose=whose, own=own)
    )


MODULES: dict[str, Replace] = {
    "pyspark.serializers": _watched(
        "CloudPickleSerializer.dumps", "Spark's", lambda _: "pyspark.worker" in sys.modules
    ),
    "distributed.client": _watched(
        "Client._graph_to_futures", "a cluster's (Dask)", lambda client: client.cluster is not None
    ),
}

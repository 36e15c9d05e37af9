"""Spark and Dask: workers that Java, or a scheduler elsewhere, has started cannot get the switch from here; the process
that gives them work says so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from accel.hooks.patch import Function
from accel.hooks.watching import Replace, calling
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


MODULES: dict[str, Replace] = {
    "pyspark.serializers": calling(
        "CloudPickleSerializer.dumps", _told, whose="Spark's", own=lambda _: "pyspark.worker" in sys.modules
    ),
    "distributed.client": calling(
        "Client._graph_to_futures", _told, whose="a cluster's (Dask)", own=lambda client: client.cluster is not None
    ),
}

"""Measuring two ranks on one device, as torchrun starts them: each with a DataLoader of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from typing import Any

from bench.gpu.setting import Setting, Step
from bench.gpu.sustained import Loader, loaded

RANKS = 2


def measure(setting: Setting) -> Iterator[Step]:
    yield "two ranks, 4 workers each", partial(together, setting, Loader(4))


def together(setting: Setting, loader: Loader) -> dict[str, Any]:
    """Images per second of all ranks, and each rank's figures.

    Raises:
        RuntimeError: a rank has ended without figures.
    """
    context = get_context("spawn")
    barrier, queue = context.Barrier(RANKS), context.Queue()
    ranks = [context.Process(target=_rank, args=(number, setting, loader, barrier, queue)) for number in range(RANKS)]
    for each in ranks:
        each.start()
    try:
        found = sorted((queue.get(timeout=setting.limit) for _ in ranks), key=lambda each: each["rank"])
    finally:
        for each in ranks:
            each.kill()
            each.join()
    if failed := [each["failed"] for each in found if "failed" in each]:
        raise RuntimeError(f"a rank failed: {failed}")
    return {"images/s": sum(each["images/s"] for each in found), "ranks": found}


def _rank(number: int, setting: Setting, loader: Loader, barrier: Any, queue: Any) -> None:
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": str(RANKS)}
    os.environ |= {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "localhost", "MASTER_PORT": "29571"}
    try:
        found = loaded(setting, loader, begin=partial(barrier.wait, setting.limit))
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {error}"}
        barrier.abort()
    queue.put({"rank": number, **found})
    queue.close()
    queue.join_thread()

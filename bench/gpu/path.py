"""The whole path: JPEG bytes in host memory to a normalised tensor on the device, side by side with others."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from accel.backends.cuda.execute import Execution
from accel.backends.cuda.lowering import schedule_of
from accel.cli.error_stats import ErrorStats
from accel.cli.harness import compare
from accel.planning.plan import plan
from accel.system.cores import cores
from bench.gpu.peers import OWN_DRAWS, PEERS, Run, made
from bench.gpu.setting import Setting, in_turns, recorded, transformed, wait
from bench.measure import levels
from bench.pipelines import PIPELINES


def measure(setting: Setting) -> dict[str, Any]:
    """Every contestant's time for a batch, images per second, and difference from torchvision with Pillow."""
    contestants: dict[str, Run] = {
        "torchvision with Pillow, all cores": _pillow(setting),
        "accel, exact, decoded on the device": _accel(setting),
        "accel, exact, the host decodes": _accel(setting, decode="host"),
        "accel, exact=False": _accel(setting, exact=False),
    }
    missing = {}
    for name in PEERS:
        try:
            contestants[name] = made(name, setting)
            contestants[name]()
        except Exception as error:  # not installed, or no such device: said in the result
            contestants.pop(name, None)
            missing[name] = f"{type(error).__name__}: {error}"
    wanted = contestants["torchvision with Pillow, all cores"]().cpu()
    found: dict[str, Any] = {"cores": cores(), "batch": len(setting.photos), "missing": missing, "contestants": {}}
    times = in_turns(dict(contestants), setting.rounds, setting.device)
    for name, path in contestants.items():
        stats = ErrorStats(levels(PIPELINES["train"]))
        batch = path().cpu()
        if batch.shape != wanted.shape or batch.dtype != wanted.dtype:
            raise AssertionError(f"{name}: {batch.dtype} {list(batch.shape)} is no such batch; nothing is reported")
        if name not in OWN_DRAWS:
            compare(wanted, batch, [photo.name for photo in setting.photos], stats)
        if name.startswith("accel, exact,") and not torch.equal(batch, wanted):
            raise AssertionError(f"{name}: its values are not torchvision's; nothing is reported")
        found["contestants"][name] = {
            "ms a batch": 1000 * times[name]["median"],
            "images/s": len(setting.photos) / times[name]["median"],
            "rounds": times[name]["rounds"],
            **({"own draws": True} if name in OWN_DRAWS else stats.as_data()),
        }
    backend, recipes = recorded(setting.photos, setting.device, decode="host")
    _parts(setting, backend, recipes)  # the second counts
    found["the host decodes, by part, ms"] = _parts(setting, backend, recipes)
    return found


def _accel(setting: Setting, **options: Any) -> Run:
    backend, recipes = recorded(setting.photos, setting.device, **options)
    return lambda: backend.run_on(plan(recipes), setting.device)


def _pillow(setting: Setting) -> Run:
    pool = ThreadPoolExecutor(cores())
    return lambda: torch.stack(list(pool.map(transformed, setting.photos))).to(setting.device)


def _parts(setting: Setting, backend: Any, recipes: Any) -> dict[str, float]:
    """Where the time goes where the host decodes, part after part, each waited for, in milliseconds."""
    engine, device = backend._engine(setting.device), setting.device
    found: dict[str, float] = {}

    def timed(name: str, function: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = function()
        wait(device)
        found[name] = 1000 * (time.perf_counter() - start)
        return value

    program = timed("plan", lambda: plan(recipes))
    lowered = timed("program", lambda: schedule_of(program, [None] * len(program.decodes)))
    with engine.device.enter():
        result = program.empty(lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype, device=device))
        execution = Execution(lowered, engine.device, engine.pool)

        def decode(numbered: tuple[int, Any]) -> None:
            backend._decode(numbered[1], 1, execution, numbered[0])

        timed("decode on the host", lambda: backend._parallel.each(enumerate(program.decodes), decode))
        timed("the rest of the upload", lambda: [fill() for fill in execution.sent()])
        timed("upload", lambda: execution.upload(result))
        timed("kernels", execution.launch)
    timed("recording, in a worker", lambda: recorded(setting.photos, device))
    timed("all but recording", lambda: backend.run_on(plan(recipes), device))
    return found

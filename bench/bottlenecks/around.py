"""Bottlenecks around the making of batches: too few workers, bursts, starts, threads, copies, steps; big machines."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bench.bottlenecks import data, sleeping
from bench.bottlenecks.data import photos, pipeline
from bench.bottlenecks.in_workers import ALONE, ONE, QUICK, TUNING, TWO
from bench.bottlenecks.plant import Plant
from bench.bottlenecks.script import Script
from bench.bottlenecks.steps import Held, Model, Step

_plain = Script(photos(pipeline()), QUICK, loader=TWO)
INPUT = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "backend", "threads")
"""Changes of the input, which are useless if the input is not the bottleneck."""

# -- the loader's settings ----------------------------------------------------------------------------------

_bursts = replace(
    _plain,
    dataset=photos(pipeline(), before=data.Bursts(8, 8, 600, 5)),
    step=Step(60),
    batches=50,
    loader={**TWO, "prefetch_factor": 1},
)
_short = replace(_plain, step=Step(20), batches=4, length=None)
_opens = {**TWO, "worker_init_fn": data.Opens(600)}
_threaded = replace(_plain, dataset=photos(pipeline(data.Elementwise(20))))
SETTINGS = [
    Plant(
        "prefetch-2",
        "every eighth batch of a worker takes 600 ms, the others nothing; the step 60 ms; 2 workers, prefetch 1",
        "prefetch",
        _bursts,
        cure=replace(_bursts, loader={**TWO, "prefetch_factor": 8}),
        helps=("prefetch_factor",),
        never=("pin_memory", "persistent_workers", "threads", "backend"),
    ),
    Plant(
        "startup-fork",
        "epochs of 4 batches, and workers that open something for 600 ms when they start",
        "startup",
        replace(_short, epochs=8, loader=_opens),
        cure=replace(_short, epochs=8, loader={**_opens, "persistent_workers": True}),
        helps=("persistent_workers",),
        never=("prefetch_factor", "pin_memory", "threads", "backend"),
    ),
    Plant(
        "startup-spawn",
        "epochs of 4 batches, and workers that are spawned: each imports torch anew",
        "startup",
        replace(_short, epochs=4, loader=ONE, method="spawn"),
        cure=replace(_short, epochs=4, loader={**ONE, "persistent_workers": True}, method="spawn"),
        helps=("persistent_workers",),
        never=("prefetch_factor", "pin_memory", "threads", "backend"),
    ),
    Plant(
        "threads-2",
        "2 workers of 16 threads each, which share small tensors and spin while they wait",
        "threads",
        replace(_threaded, loader={**TWO, "worker_init_fn": data.Threads(16)}),
        cure=replace(_threaded, loader={**TWO, "worker_init_fn": data.Threads(1)}),
        never=("num_workers", "prefetch_factor", "pin_memory", "persistent_workers"),
        environment={"OMP_WAIT_POLICY": "active"},
    ),
]

# -- the training loop --------------------------------------------------------------------------------------

_documents = {**TWO, "pin_memory": True, "collate_fn": data.AsDocuments(150_000)}
_numbers = partial(data.Arrays, size=1)
LOOP = [
    Plant(
        "step-2",
        "a step of 80 ms; 2 workers that are ready long before",
        "step",
        replace(_plain, step=Step(80)),
        cure=_plain,
        never=INPUT,
    ),
    Plant(
        "step-0",
        "a step of 150 ms; no workers",
        "step",
        replace(_plain, step=Step(150), loader=ALONE),
        cure=replace(_plain, loader=ALONE),
        never=("prefetch_factor", "pin_memory", "persistent_workers", "backend", "threads"),
    ),
    Plant(
        "step-spawn",
        "a step of 100 ms; 1 spawned worker, plain torchvision",
        "step",
        replace(_plain, step=Step(100), loader=ONE, method="spawn", backend="torchvision"),
        cure=replace(_plain, loader=ONE, method="spawn", backend="torchvision"),
        never=INPUT,
    ),
    Plant(
        "copy-2",
        "a copy to the device that takes 60 ms, a step of 20; 2 workers",
        "copy",
        replace(_plain, step=Step(20, copied=60)),
        cure=replace(_plain, step=Step(20, copied=0)),
        never=("num_workers", "prefetch_factor", "persistent_workers", "backend", "threads"),
        device=True,
    ),
    Plant(
        "copy-0",
        "a copy to the device that takes 90 ms, a step of 10; no workers",
        "copy",
        replace(_plain, step=Step(10, copied=90), loader=ALONE),
        cure=replace(_plain, step=Step(10, copied=0), loader=ALONE),
        never=("prefetch_factor", "persistent_workers", "backend", "threads"),
        device=True,
    ),
    Plant(
        "gil",
        "a step of 60 ms that keeps the GIL, beside a pin thread that needs it to parse each batch",
        "gil",
        Script(_numbers, Held(60), loader=_documents),
        cure=Script(_numbers, Step(60), loader=_documents),
        never=("num_workers", "prefetch_factor", "persistent_workers", "backend", "threads"),
        device=True,
    ),
]

# -- models on the host's cores ------------------------------------------------------------------------------

_large = replace(_plain, dataset=photos(pipeline(), "large"))
_model = replace(_large, step=Model(10), backend="torchvision", epochs=2, length=None)
_on_all = replace(_model, step=Model(10, None))
_trained = replace(_large, step=Model(40))
MODELS = [
    Plant(
        "model-torchvision-2",
        "a small model on one of the cores, and photos of 1600 x 1200; 2 workers, plain torchvision",
        "decode",
        _model,
        cure=replace(_model, dataset=_plain.dataset),
        helps=("backend",),
        never=TUNING,
    ),
    *[
        Plant(
            f"model-torchvision-{workers}",
            f"the same on all cores; {said}, plain torchvision",
            "workers",
            replace(_on_all, loader=loader),
            cure=replace(_on_all, dataset=_plain.dataset, loader=loader),
            helps=("backend", "num_workers"),
            never=TUNING,
        )
        for workers, said, loader in ((1, "1 worker", ONE), (0, "no workers", ALONE))
    ],
    Plant(
        "model-2",
        "a larger model on one of the cores, and photos of 1600 x 1200; 2 workers",
        "step",
        _trained,
        cure=replace(_trained, step=QUICK),
        never=INPUT,
    ),
    Plant(
        "model-1",
        "the same on all cores; 1 worker",
        "step",
        replace(_trained, step=Model(40, None), loader=ONE),
        cure=replace(_trained, step=QUICK, loader=ONE),
        never=INPUT,
    ),
    Plant(
        "model-0",
        "a model on all cores, and small photos; no workers",
        "step",
        replace(_trained, dataset=_plain.dataset, step=Model(40, None), loader=ALONE),
        cure=replace(_plain, loader=ALONE),
        never=("prefetch_factor", "pin_memory", "persistent_workers", "backend", "threads"),
    ),
]

# -- machines of many cores ---------------------------------------------------------------------------------


def _sleeping(cores: int, workers: int, ms: float, step: float) -> Script:
    return Script(
        photos(pipeline(size=16), "tiny"),
        Step(step),
        batches=50,
        batch_size=4,
        backend=sleeping.HOST,
        options={"ms": ms},
        loader={"num_workers": workers} if workers else ALONE,
        cores=cores,
    )


MACHINES = [
    Plant(
        "cores16-workers2",
        "16 cores, of which 2 workers use two: an image takes 40 ms",
        "workers",
        _sleeping(16, 2, 40, 30),
        cure=_sleeping(16, 8, 40, 30),
        helps=("num_workers",),
        never=TUNING,
    ),
    Plant(
        "cores16-workers0",
        "16 cores, no workers: an image takes 20 ms",
        "workers",
        _sleeping(16, 0, 20, 30),
        cure=_sleeping(16, 4, 20, 30),
        helps=("num_workers",),
        never=("prefetch_factor", "pin_memory", "persistent_workers"),
    ),
    Plant(
        "cores64-workers8",
        "64 cores, of which 8 workers use eight: an image takes 160 ms",
        "workers",
        _sleeping(64, 8, 160, 30),
        cure=_sleeping(64, 24, 160, 30),
        helps=("num_workers",),
        never=TUNING,
    ),
    Plant(
        "cores16-full",
        "16 cores, all of them computing in 16 workers: an image takes 200 ms",
        "transform",
        _sleeping(16, 16, 200, 10),
        cure=_sleeping(16, 16, 20, 10),
        never=("num_workers", *TUNING),
    ),
    Plant(
        "cores64-step",
        "64 cores, 16 workers, a step of 80 ms",
        "step",
        _sleeping(64, 16, 20, 80),
        cure=_sleeping(64, 16, 20, 20),
        never=INPUT,
    ),
    Plant(
        "cores16-step1",
        "16 cores, 1 worker that keeps up with a step of 80 ms",
        "step",
        _sleeping(16, 1, 10, 80),
        cure=_sleeping(16, 1, 10, 60),
        never=INPUT,
    ),
]

PLANTS = [*SETTINGS, *LOOP, *MODELS, *MACHINES]

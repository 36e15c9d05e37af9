"""Bottlenecks in the making of batches: files, the user's code, decoding, transforms, collating, sending."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torchvision import transforms

from accel.system.cores import cores
from bench.bottlenecks import data, sleeping
from bench.bottlenecks.data import Arrays, photos, pipeline
from bench.bottlenecks.plant import Plant
from bench.bottlenecks.script import Script
from bench.bottlenecks.steps import Step

QUICK = Step(5)
"""A step that any loader can keep up with, so that only the planted bottleneck is left."""
ALONE: dict[str, Any] = {}
ONE, TWO = {"num_workers": 1}, {"num_workers": 2}
FULL = {"num_workers": cores()}
"""As many workers as there are cores, so that more workers do not make computing faster."""
TUNING = ("prefetch_factor", "pin_memory", "persistent_workers", "threads")
"""Changes that are useless if every batch takes long to make."""


def _slow(what: str, ms: float) -> dict[str, str]:
    return {f"SLOW_{what}_US": str(round(1000 * ms))}


# -- files --------------------------------------------------------------------------------------------------

_plain = Script(photos(pipeline()), QUICK, loader=TWO)
FILES = [
    Plant(
        "read-0",
        "a disk that takes 8 ms a read; no workers",
        "read",
        replace(_plain, loader=ALONE),
        helps=("num_workers",),
        never=TUNING,
        environment=_slow("READ", 8),
    ),
    Plant(
        "read-2",
        "a disk that takes 12 ms a read; 2 workers",
        "read",
        _plain,
        helps=("num_workers",),
        never=TUNING,
        environment=_slow("READ", 12),
    ),
    Plant(
        "read-spawn",
        "a disk that takes 8 ms a read; 1 spawned worker",
        "read",
        replace(_plain, loader=ONE, method="spawn"),
        helps=("num_workers",),
        never=TUNING,
        environment=_slow("READ", 8),
    ),
    Plant(
        "open-1",
        "a disk that takes 10 ms to open a file; 1 worker",
        "read",
        replace(_plain, loader=ONE),
        helps=("num_workers",),
        never=TUNING,
        environment=_slow("OPEN", 10),
    ),
    Plant(
        "open-torchvision",
        "a disk that takes 15 ms to open a file; 2 workers, plain torchvision",
        "read",
        replace(_plain, backend="torchvision"),
        helps=("num_workers",),
        never=(*TUNING, "backend"),
        environment=_slow("OPEN", 15),
    ),
]

# -- the user's code ----------------------------------------------------------------------------------------

_computes = transforms.Lambda(data.Burn(6))
_waits = photos(pipeline(), before=data.Wait(10))
USER = [
    Plant(
        "user-2",
        "a lambda that computes for 6 ms an image; 2 workers on 2 cores",
        "user",
        replace(_plain, dataset=photos(pipeline(_computes))),
        cure=_plain,
        never=TUNING,
        names=("data.py",),
    ),
    Plant(
        "user-0",
        "a lambda that computes for 6 ms an image; no workers",
        "user",
        replace(_plain, dataset=photos(pipeline(_computes)), loader=ALONE),
        cure=replace(_plain, loader=ALONE),
        inside=True,
        never=TUNING,
        names=("data.py",),
    ),
    Plant(
        "user-spawn",
        "a database asked for every sample, 10 ms; 1 spawned worker",
        "user",
        replace(_plain, dataset=_waits, loader=ONE, method="spawn"),
        cure=replace(_plain, loader=ONE, method="spawn"),
        helps=("num_workers",),
        never=TUNING,
        names=("data.py",),
    ),
    Plant(
        "user-torchvision",
        "annotations parsed for every sample; 2 workers, plain torchvision",
        "user",
        replace(_plain, dataset=photos(pipeline(), before=data.Labels(60_000)), backend="torchvision"),
        cure=replace(_plain, backend="torchvision"),
        never=TUNING,
        names=("data.py",),
    ),
]

# -- pixels -------------------------------------------------------------------------------------------------

_shown = transforms.Compose([transforms.Resize(64), transforms.CenterCrop(64), transforms.ToTensor()])
_large = Script(photos(_shown, "large"), QUICK, 20, batch_size=4, loader=FULL)
_costly = replace(_plain, loader=FULL)
_corner = transforms.Compose([transforms.CenterCrop(64), transforms.ToTensor()])
_early = transforms.Compose([data.looks_at_pixels, transforms.CenterCrop(64), transforms.ToTensor()])
_heavy = (transforms.GaussianBlur(23, 5), transforms.RandomRotation(30, transforms.InterpolationMode.BICUBIC))
_warps = (transforms.RandomPerspective(p=1.0), transforms.RandomAffine(30, shear=10), transforms.RandomRotation(30))
_kernels = transforms.Compose([transforms.Resize((224, 224)), transforms.PILToTensor(), *_warps])
_many = transforms.Compose(
    [
        transforms.RandomResizedCrop(64),
        transforms.RandomHorizontalFlip(),
        transforms.RandAugment(6),
        transforms.ColorJitter(0.4, 0.4, 0.4),
        transforms.ToTensor(),
        transforms.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
    ]
)
PIXELS = [
    Plant(
        "decode",
        "photos of 1600 x 1200, shown at 64 x 64; a worker for each core",
        "decode",
        _large,
        cure=replace(_large, dataset=_plain.dataset),
        never=("num_workers", *TUNING),
    ),
    Plant(
        "decode-torchvision",
        "the same under plain torchvision",
        "decode",
        replace(_large, backend="torchvision"),
        cure=replace(_large, dataset=_plain.dataset, backend="torchvision"),
        helps=("backend",),
        never=("num_workers", *TUNING),
    ),
    Plant(
        "decode-early",
        "the user's filter asks for a pixel of a photo of 1600 x 1200, of which a crop of 64 x 64 is used",
        "decode",
        replace(_large, dataset=photos(_early, "large")),
        cure=replace(_large, dataset=photos(_corner, "large")),
        never=("num_workers", *TUNING),
        names=("data.py",),
    ),
    Plant(
        "transform",
        "a rotation and a blur of each image; a worker for each core",
        "transform",
        replace(_costly, dataset=photos(pipeline(*_heavy, size=224))),
        cure=_costly,
        never=("num_workers", *TUNING),
    ),
    Plant(
        "transform-torchvision",
        "the same under plain torchvision",
        "transform",
        replace(_costly, dataset=photos(pipeline(*_heavy, size=224)), batch_size=4, backend="torchvision"),
        cure=replace(_costly, batch_size=4, backend="torchvision"),
        helps=("backend",),
        never=("num_workers", *TUNING),
    ),
    Plant(
        "kernels",
        "torchvision's own kernels, warps of tensors; a worker for each core",
        "transform",
        replace(_costly, dataset=photos(_kernels)),
        cure=_costly,
        never=("num_workers", *TUNING),
    ),
    Plant(
        "record",
        "many transforms of tiny images, for an accelerator: workers record them, and the loop drops them",
        "record",
        Script(photos(_many, "tiny"), Step(1, computes=False), batch_size=16, backend=sleeping.DEVICE, loader=FULL),
        never=("num_workers", *TUNING),
    ),
]

# -- batches ------------------------------------------------------------------------------------------------

_arrays = Script(partial(Arrays, size=4 << 20), QUICK, loader={**TWO, "collate_fn": data.as_they_are})
_alone = replace(_arrays, loader={**ONE, "collate_fn": data.as_they_are}, method="spawn")
BATCHES = [
    Plant(
        "collate-2",
        "a collate function that computes for 80 ms; 2 workers",
        "collate",
        replace(_plain, loader={**TWO, "collate_fn": data.SlowCollate(80)}),
        cure=_plain,
        never=TUNING,
        names=("data.py",),
    ),
    Plant(
        "collate-0",
        "a collate function that computes for 60 ms; no workers",
        "collate",
        replace(_plain, loader={**ALONE, "collate_fn": data.SlowCollate(60)}),
        cure=replace(_plain, loader=ALONE),
        never=TUNING,
        names=("data.py",),
    ),
    Plant(
        "send-2",
        "batches of 32 MB as a list of arrays, through the pipe; 2 workers",
        "send",
        _arrays,
        cure=replace(_arrays, dataset=partial(Arrays, size=4 << 10)),
        never=TUNING,
    ),
    Plant(
        "send-spawn",
        "the same; 1 spawned worker",
        "send",
        _alone,
        cure=replace(_alone, dataset=partial(Arrays, size=4 << 10)),
        never=TUNING,
    ),
    Plant(
        "shm",
        "/dev/shm of 8 MB for batches of 8 MB; 2 workers, plain torchvision",
        "shm",
        Script(
            photos(transforms.Compose([transforms.Resize((296, 296)), transforms.ToTensor()])),
            QUICK,
            backend="torchvision",
            loader=TWO,
        ),
        helps=("backend",),
        never=("num_workers", "pin_memory", "persistent_workers"),
        shm=8 << 20,
    ),
]

PLANTS = [*FILES, *USER, *PIXELS, *BATCHES]

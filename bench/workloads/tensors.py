"""The train pipeline in transforms.v2, whose arithmetic is torch's and not Pillow's: torchvision and accel alone."""

from __future__ import annotations

from typing import Any

from bench.contestants.tensors import AccelTensors, Tensors
from bench.job import Job
from bench.measure import Entry
from bench.pipelines import PIPELINES
from bench.workload import Setting, Workload, measured


def _measure(setting: Setting) -> dict[str, Any]:
    found = setting.photos
    job = Job(PIPELINES["train"], found, range(len(found)), min(50, len(found)), threads=1)
    reference = Tensors()
    entries = [
        Entry(reference.title, reference, job, None),
        Entry(AccelTensors.title, AccelTensors(), job, reference.title),
    ]
    return {"pipeline": "train", "images": len(found), **measured("train_v2", entries, setting, 1)}


TRAIN = Workload("train_v2", "train pipeline in transforms.v2 after ToImage() on photos, one core", _measure)

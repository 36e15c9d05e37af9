"""Planted bottlenecks: training scripts with a known bottleneck, to test whether the profiler names it."""

from __future__ import annotations

from bench.bottlenecks import around, in_workers
from bench.bottlenecks.plant import Plant

PLANTS: dict[str, Plant] = {plant.name: plant for plant in (*in_workers.PLANTS, *around.PLANTS)}

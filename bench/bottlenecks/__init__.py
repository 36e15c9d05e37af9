"""Planted bottlenecks: training scripts of which it is known what holds them back; does the profiler name it?"""

from __future__ import annotations

from bench.bottlenecks import around, in_workers
from bench.bottlenecks.plant import Plant

PLANTS: dict[str, Plant] = {plant.name: plant for plant in (*in_workers.PLANTS, *around.PLANTS)}

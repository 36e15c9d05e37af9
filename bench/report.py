"""Results: as data for a file, and as tables."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from accel.cli import screen
from bench.workload import Row, Workload


def as_data(workload: Workload, rows: list[Row]) -> dict[str, Any]:
    """All figures of a workload, every round's and the medians."""
    return {
        "name": workload.name,
        "title": workload.title,
        "unit": workload.unit,
        "contestants": [
            {
                "name": row.name,
                "reference": row.reference,
                "under": row.under,
                "units per round": row.units,
                "rounds": [cost._asdict() for cost in row.rounds],
                "median ms": 1000 * row.seconds,
                "median CPU ms": 1000 * row.cpu_seconds,
                "ratio": ratio(row, rows),
                "median step ms": {step: 1000 * seconds for step, seconds in row.steps.items()},
            }
            for row in rows
        ],
    }


def ratio(row: Row, rows: list[Row]) -> float | None:
    """How many times as fast as the best reference; None where there is none."""
    best = min((each.seconds for each in rows if each.reference), default=None)
    return None if best is None else best / row.seconds


def show(workload: Workload, rows: list[Row]) -> None:
    """Print a workload's medians."""
    unit = workload.unit
    table = Table(title=workload.title, title_justify="left", min_width=70)
    table.add_column("medians")
    for column in (f"ms/{unit}", f"CPU ms/{unit}", f"{unit}s/s", "ratio"):
        table.add_column(column, justify="right")
    for row in rows:
        faster = ratio(row, rows)
        table.add_row(
            row.name,
            f"{1000 * row.seconds:.3f}",
            f"{1000 * row.cpu_seconds:.3f}",
            f"{1 / row.seconds:.1f}",
            "" if faster is None else f"{faster:.2f}x",
        )
    screen.out.print(table)
    if any(row.steps for row in rows):
        screen.out.print(_steps(workload, rows))


def _steps(workload: Workload, rows: list[Row]) -> Table:
    table = Table(title=f"{workload.title}, by step, µs/{workload.unit}", title_justify="left", min_width=70)
    table.add_column("medians")
    for row in rows:
        table.add_column(row.name, justify="right")
    for step in rows[0].steps:
        table.add_row(step, *(f"{1e6 * row.steps[step]:.1f}" for row in rows))
    return table

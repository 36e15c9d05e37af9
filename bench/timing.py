"""Measuring a workload's contestants: first the check, then interleaved rounds."""

from __future__ import annotations

from collections.abc import Sequence

from accel.cli import screen
from accel.cli.contest import Contestant, check, take_turns
from bench.workload import Red, Row, under


def contest(title: str, groups: Sequence[Sequence[Contestant]], files: Sequence[str], rounds: int) -> list[Row]:
    """Check every contestant against the first of its group, then measure all of them in turns.

    Args:
        groups: those that make the same tensors from the same seed (the number of workers changes what is
            drawn); the first of each is a reference.
        files: what an epoch's images are made from, in order.

    Raises:
        Red: a contestant makes other tensors.
    """
    with screen.Bar(f"{title}: checking", len(files) * len(groups)) as bar:
        for reference, *others in groups:
            checked = check(reference, others, files, bar.advance)
            if checked.difference is not None:
                raise Red(checked.difference)
    contestants = [contestant for group in groups for contestant in group]
    with screen.Bar(f"{title}: measuring", rounds * len(contestants)) as bar:
        costs = take_turns(contestants, rounds, bar.advance)
    references = {group[0].name for group in groups}
    return [Row(each.name, len(files), costs[each.name], each.name in references, under(each)) for each in contestants]

"""The findings of a run, counted by kind of mutation; each cause once, with its file reduced to needed mutations."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.fuzz.check import EQUAL, FELL_BACK, REFUSED, WRONG
from bench.fuzz.recipes import Recipe
from bench.fuzz.run import CRASHED, GREW, HUNG, PLAIN, Result, Runner

COLUMNS = (EQUAL, REFUSED, FELL_BACK, WRONG, CRASHED, HUNG, GREW, PLAIN)
ALWAYS = (EQUAL, REFUSED, FELL_BACK, WRONG, CRASHED, HUNG)
_BAD = (WRONG, CRASHED, HUNG, GREW)

Cause = tuple[str, str, str]


@dataclass
class Findings:
    """The counts of a run and its findings: for each cause, as told apart by its words, the first file that showed it
    and the number of answers that did.

    Attributes:
        most: the most causes to keep; all are counted.
        more: the number of findings of causes beyond these.
    """

    keep: Path
    most: int = 40
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    causes: dict[Cause, dict[str, Any]] = field(default_factory=dict)
    more: int = 0
    _first: dict[Cause, Recipe] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def add(self, result: Result) -> None:
        kind = self.counts.setdefault(result.recipe.kind, Counter())
        kind[result.outcome] += 1
        kind["files"] += result.recipe.number not in self._seen
        self._seen.add(result.recipe.number)
        if result.outcome not in _BAD:
            return
        for (where, what), cause in zip(result.wrong, causes_of(result), strict=True):
            if cause in self.causes:
                self.causes[cause]["answers"] += 1
            elif len(self.causes) < self.most:
                self.causes[cause] = {"outcome": result.outcome, "where": where, "what": what, "answers": 1}
                self._first[cause] = result.recipe
            else:
                self.more += 1

    @property
    def total(self) -> Counter[str]:
        return sum(self.counts.values(), Counter())

    @property
    def bad(self) -> int:
        """The number of files that showed anything wrong."""
        return sum(self.total[outcome] for outcome in _BAD)

    def reduce(self, runner: Runner) -> None:
        """Undo mutations, one by one, as long as the same cause is found; write the files and a description of them."""
        for cause, recipe in self._first.items():
            for step in recipe.steps if len(recipe.steps) > 1 else ():
                fewer = recipe._replace(steps=tuple(each for each in recipe.steps if each != step))
                if any(cause in causes_of(result) for result in runner.run([fewer])):
                    recipe = fewer
            self.keep.mkdir(parents=True, exist_ok=True)
            data = runner.kind.make(recipe, runner.seed, runner.corpus)
            path = self.keep / f"{runner.seed}-{recipe.number}{'.jpg' if data[:2] == bytes((255, 216)) else ''}"
            path.write_bytes(data)
            mutations = [kind for kind, _ in recipe.steps]
            self.causes[cause] |= {
                "number": recipe.number,
                "base": recipe.base,
                "mutations": mutations,
                "kept": str(path),
            }
        if self.causes:
            (self.keep / "findings.json").write_text(json.dumps(self.as_data(), indent=2) + "\n")

    def as_data(self) -> dict[str, Any]:
        return {
            "total": dict(self.total),
            "kinds": {kind: dict(counts) for kind, counts in sorted(self.counts.items())},
            "findings": list(self.causes.values()),
            "findings of other causes": self.more,
        }


def causes_of(result: Result) -> list[Cause]:
    """A cause for each wrong answer: the same if only numbers, boxes and settings differ."""
    found = []
    for where, what in result.wrong:
        place = re.sub(r"\d+", "#", re.split(r"[(\[]| under ", where)[0])
        first = what.partition("\n")[0]
        found.append((result.outcome, place, re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", first)[:120]))
    return found

"""The findings of a run, counted by kind of mutation; each cause once, with its file, unneeded mutations undone."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.fuzz.check import EQUAL, FELL_BACK, REFUSED, WRONG
from bench.fuzz.recipes import Recipe, make
from bench.fuzz.run import CRASHED, GREW, HUNG, PLAIN, Result, Runner

COLUMNS = (EQUAL, REFUSED, FELL_BACK, WRONG, CRASHED, HUNG, GREW, PLAIN)
ALWAYS = (EQUAL, REFUSED, FELL_BACK, WRONG, CRASHED, HUNG)
_BAD = (WRONG, CRASHED, HUNG, GREW)


@dataclass
class Finding:
    """A cause, as far as its words tell: the first file that showed it, and how many answers did."""

    result: Result
    where: str
    what: str
    answers: int = 1
    reduced: Recipe | None = None
    """without the mutations that it does not need"""
    file: str = ""

    def as_data(self) -> dict[str, Any]:
        recipe = self.reduced or self.result.recipe
        return {
            "outcome": self.result.outcome,
            "where": self.where,
            "what": self.what,
            "answers": self.answers,
            "number": recipe.number,
            "base": recipe.base,
            "mutations": [kind for kind, _ in recipe.steps],
            "kept": self.file,
        }


@dataclass
class Findings:
    """``most``: how many causes are kept; all are counted."""

    keep: Path
    most: int = 40
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    causes: dict[tuple[str, ...], Finding] = field(default_factory=dict)
    more: int = 0
    """findings of causes beyond ``most``"""
    _seen: set[int] = field(default_factory=set)

    def add(self, result: Result) -> None:
        kind = self.counts.setdefault(result.recipe.kind, Counter())
        kind[result.outcome] += 1
        if result.recipe.number not in self._seen:
            self._seen.add(result.recipe.number)
            kind["files"] += 1
        if result.outcome not in _BAD:
            return
        for where, what in result.wrong:
            cause = cause_of(result.outcome, where, what)
            if cause in self.causes:
                self.causes[cause].answers += 1
            elif len(self.causes) < self.most:
                self.causes[cause] = Finding(result, where, what)
            else:
                self.more += 1

    @property
    def total(self) -> Counter[str]:
        return sum(self.counts.values(), Counter())

    @property
    def bad(self) -> int:
        """Files that showed anything wrong."""
        return sum(self.total[outcome] for outcome in _BAD)

    def reduce(self, runner: Runner) -> None:
        """Undo mutations, one by one, as long as the same is found; write the files."""
        for cause, finding in self.causes.items():
            recipe = finding.result.recipe
            for step in recipe.steps if len(recipe.steps) > 1 else ():
                fewer = recipe._replace(steps=tuple(each for each in recipe.steps if each != step))
                if any(cause in causes_of(result) for result in runner.run([fewer])):
                    recipe = fewer
            finding.reduced = recipe
            self.keep.mkdir(parents=True, exist_ok=True)
            data = make(recipe, runner.seed, runner.corpus)
            path = self.keep / f"{runner.seed}-{recipe.number}{'.jpg' if data[:2] == bytes((255, 216)) else ''}"
            path.write_bytes(data)
            finding.file = str(path)

    def as_data(self) -> dict[str, Any]:
        return {
            "total": dict(self.total),
            "kinds": {kind: dict(counts) for kind, counts in sorted(self.counts.items())},
            "findings": [finding.as_data() for finding in self.causes.values()],
            "findings of other causes": self.more,
        }

    def write(self) -> None:
        """All that is told, beside the files."""
        if self.causes:
            (self.keep / "findings.json").write_text(json.dumps(self.as_data(), indent=2) + "\n")


def cause_of(outcome: str, where: str, what: str) -> tuple[str, ...]:
    """The same for findings that differ in numbers, boxes and settings alone."""
    place = re.split(r"[(\[]| under ", where)[0]
    lines = what.splitlines()
    return outcome, re.sub(r"\d+", "#", place), re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", lines[0] if lines else "")[:120]


def causes_of(result: Result) -> list[tuple[str, ...]]:
    return [cause_of(result.outcome, where, what) for where, what in result.wrong]

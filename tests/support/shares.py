"""What compiled calls for many images did, as tests see it."""

from typing import Any

import pytest


def noted(monkeypatch: pytest.MonkeyPatch, shared: type[Any]) -> list[tuple[int, int]]:
    """Of each later call of this class's ``run``: how many images threads share, and how many of them it leaves."""
    found: list[tuple[int, int]] = []
    run = shared.run

    def noting(self: Any, *given: Any) -> list[int]:
        left: list[int] = run(self, *given)
        found.append((len(self), len(left)))
        return left

    monkeypatch.setattr(shared, "run", noting)
    return found

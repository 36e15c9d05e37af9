#!/usr/bin/env python3
"""Write LICENSES.md: the licences of all that accel and its extras install, as the metadata of each name them.

Run it where the extras are installed; what is not installed keeps the row that it had.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).parents[1] / "LICENSES.md"
OWN = "accel-vision"
HEAD = """\
# Licenses

accel ([BSD-3-Clause](LICENSE)) ships its own files and nothing else. pip installs with it what follows, each with the
licence that its metadata name, and what it is for: accel itself, or one of its extras (`scripts/licenses.py`).

| package | licence | for |
| --- | --- | --- |
"""
_ROW = re.compile(r"^\| (\S+) \| (.*) \| (.*) \|$", re.MULTILINE)


def needed(extras: Sequence[str] | None = None) -> dict[str, str]:
    """The installed packages that accel and these extras (None: all) need, with the first that each is for."""
    found: dict[str, str] = {}
    for extra in ("", *(metadata.metadata(OWN).get_all("Provides-Extra", []) if extras is None else extras)):
        _follow(OWN, {extra}, f"`{extra}`" if extra else "accel", found, set())
    return found


def _follow(name: str, extras: set[str], reason: str, found: dict[str, str], seen: set[tuple[str, str]]) -> None:
    for requirement in map(Requirement, metadata.requires(name) or []):
        other, marker = canonicalize_name(requirement.name), requirement.marker
        if other == OWN or not (marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)):
            continue
        new = {(other, extra) for extra in ("", *requirement.extras)} - seen
        if new and _is_installed(other):
            seen |= new
            found.setdefault(other, reason)
            _follow(other, {"", *requirement.extras}, reason, found, seen)


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def licence(name: str) -> str:
    """The licence of an installed package, in one line; "?" if its metadata name none."""
    told = metadata.metadata(name)
    classes = [each.split(" :: ")[-1] for each in told.get_all("Classifier", []) if each.startswith("License :: ")]
    text = told.get("License-Expression") or ", ".join(classes) or told.get("License") or "?"
    return text.strip().splitlines()[0][:80].replace("|", "/")


def listed(page: str) -> dict[str, tuple[str, str]]:
    """The rows of a page: licence and reason by package."""
    return {name: (told, why) for name, told, why in _ROW.findall(page) if name not in ("package", "---")}


def made(before: str) -> str:
    """The page; ``before``: as it was, whose rows stay for packages that are not installed here."""
    rows = listed(before) | {name: (licence(name), why) for name, why in needed().items()}
    return HEAD + "".join(f"| {name} | {told} | {why} |\n" for name, (told, why) in sorted(rows.items()))


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text() if PAGE.exists() else ""))

"""Where the tables of ``accel.hooks`` change something, and what is there now."""

from typing import Any

from accel import hooks
from accel.hooks import patch


class Same:
    """An object, which is kept alive, and equal to itself only."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


Place = tuple[int, Any]
"""The id of a function, of what has an attribute or of a mapping; and a name or key in it."""


def place(row: patch.Patch) -> tuple[Place, Any]:
    """Where a row of the tables changes something, and what is there now."""
    found = row.find()
    if isinstance(row, patch.Attribute):
        owner, name, _ = found
        return (id(owner), name), Same(vars(owner).get(name))
    if isinstance(row, patch.Item):
        for key in row.keys[:-1]:
            found = found[key]
        return (id(found), row.keys[-1]), Same(found.get(row.keys[-1]))
    return (id(found), "__code__"), Same(found.__code__)


def table() -> dict[str, Any]:
    return {f"{row.name} {getattr(row, 'keys', '')}": place(row)[1] for row in hooks.PATCHES}

"""Files that were replaced by black pictures (``on_error="replace"``): counted, listed and logged."""

from __future__ import annotations

from accel.system import counters, log, shared_list

LISTED = 100
"""The most names that are listed."""

_PREFIX = "replaced "
_unlisted: list[str] = []  # names that this process could not write to the list


def replaced(name: str, reason: str, images: int = 1) -> None:
    """Count, list and log that a file's pixels are replaced by black, in so many images."""
    counters.count(counters.REPLACED, images)
    known = names()
    if len(known) < LISTED and name not in known:
        try:
            shared_list.append(_PREFIX + name)
        except OSError:
            _unlisted.append(name)
    log.note(log.INFO, "replaced by black: %s: %s", name, reason)
    if log.first("a damaged file was replaced"):
        log.note(
            log.WARNING,
            'accel replaced a damaged file by black, and will go on so: %s (all: accel.stats()["replaced files"])',
            name,
        )


def names() -> list[str]:
    """The first files that were replaced in this process and its workers, each once."""
    return list(dict.fromkeys(shared_list.entries(_PREFIX) + _unlisted))[:LISTED]


counters.show("replaced files", names)

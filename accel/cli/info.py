"""``python -m accel info``: versions, the machine, and the backends and decoders that can run here."""

from __future__ import annotations

import argparse
from typing import Any

import accel
from accel import testing
from accel.cli import machine, screen
from accel.cli.tables import Table, show
from accel.codec import decode
from accel.codec.header import Header, claim
from accel.errors import attempt


def run(args: argparse.Namespace) -> int:
    found = gather()
    _show("Versions", found["versions"], missing="not installed")
    _show("Machine", found["machine"], missing="none")
    _show("Backends", found["backends"], missing="can run")
    _show("JPEG decoders on the host", found["decoders"], missing="can run, equal to Pillow")
    if args.json:
        screen.write_json(args.json, found)
    return 0


def gather() -> dict[str, Any]:
    """All that the command shows. Backends and decoders have None, or the reason why they cannot run here."""
    on_here = {"versions": machine.versions(), "machine": machine.machine()}
    return {**on_here, "backends": accel.image_backends(), "decoders": decoders()}


def decoders() -> dict[str, str | None]:
    """Every JPEG decoder of the host, with None if it runs and equals Pillow, else the reason why not.

    The entry "auto" names the decoder that it stands for.
    """
    header = claim(testing.picture((16, 16), "RGB"))
    assert header is not None
    return {engine: _why_not(engine, header) for engine in decode.ENGINES}


def _why_not(engine: str, header: Header) -> str | None:
    chosen = attempt(decode.choose, header, engine)
    if isinstance(chosen, Exception):  # of any type: engines lack different things
        return f"{type(chosen).__name__}: {chosen}"
    return None if chosen == engine else f"{chosen} decodes"


def _show(title: str, rows: dict[str, Any], missing: str) -> None:
    texts = [", ".join(value) if isinstance(value, list) else value for value in rows.values()]
    lines = [(name, str(text or missing)) for name, text in zip(rows, texts, strict=True)]
    show(Table("", (title, ""), lines, text=2))

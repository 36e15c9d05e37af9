"""``python -m accel info``: versions, machine, and what can run here."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from rich.table import Table

import accel
from accel.cli import machine, samples, screen
from accel.codec import decode
from accel.codec.header import Header, claim


def add_parser(commands: Any) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "info",
        help="versions, machine, backends and decoders",
        description="Show the versions accel runs with, the machine, every backend and JPEG decoder, and the "
        "reason where one cannot run.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same to FILE")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    found = gather()
    screen.out.print(_table("Versions", found["versions"], missing="not installed"))
    screen.out.print(_table("Machine", found["machine"], missing="none"))
    screen.out.print(_table("Backends", found["backends"], missing="can run"))
    screen.out.print(_table("JPEG decoders on the host", found["decoders"], missing="can run, equal to Pillow"))
    if args.json:
        screen.write_json(args.json, found)
    return 0


def gather() -> dict[str, Any]:
    """All that the command shows. Backends and decoders: None, or the reason why they cannot run here."""
    return {
        "versions": machine.versions(),
        "machine": machine.machine(),
        "backends": accel.image_backends(),
        "decoders": decoders(),
    }


def decoders() -> dict[str, str | None]:
    """Every JPEG decoder of the host: None where it runs and equals Pillow, else the reason why not.

    The entry "auto" names the decoder that it stands for.
    """
    stream = io.BytesIO()
    samples.picture(0, (16, 16)).save(stream, "JPEG")
    header = claim(stream.getvalue())
    assert header is not None
    return {engine: _why_not(engine, header) for engine in decode.ENGINES}


def _why_not(engine: str, header: Header) -> str | None:
    try:
        chosen = decode.choose(header, engine)
    except Exception as error:  # what is missing differs from engine to engine
        return f"{type(error).__name__}: {error}"
    return None if chosen == engine else f"{chosen} decodes"


def _table(title: str, rows: dict[str, Any], missing: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, min_width=60)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        text = ", ".join(value) if isinstance(value, list) else value
        table.add_row(name, missing if text is None or text == "" else str(text))
    return table

"""Tables of results: in a terminal fitted to its width, elsewhere as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from accel.cli import screen

_WIDEST = 28
"""The most characters of a column of text if the table would not fit otherwise."""
_GAP = 2


class Table(NamedTuple):
    """A table.

    Attributes:
        text: the number of columns, from the left, with text; the others have figures.
        notes: texts below the table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    text: int = 1


def show(table: Table) -> None:
    """Print a table on standard output."""
    if not screen.out.is_terminal:
        screen.say(markdown(table))
        return
    if table.title:
        screen.say(table.title, "italic")
    whole, broken = _widths(table)
    groups = [list(range(len(whole)))] if _total(whole) <= screen.out.width else _groups(broken, screen.out.width)
    for columns in groups:
        fits = _total([whole[number] for number in columns]) <= screen.out.width
        shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for number in columns:
            width = (whole if fits else broken)[number]
            shown.add_column(Text(table.columns[number]), justify=("right", "left")[number < table.text], width=width)
        for row in table.rows:
            shown.add_row(*(Text(row[number]) for number in columns))
        screen.out.print(shown, "")
    for note in table.notes:
        screen.say(note, "dim")


def markdown(table: Table, *, titled: bool = True) -> str:
    """The table in Markdown; ``titled``: with its title."""
    lines = [f"**{table.title}**\n"] if titled and table.title else []
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("|" + " --- |" * table.text + " ---: |" * (len(table.columns) - table.text))
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
    lines += ["", *(f"{note}\n" for note in table.notes)]
    return "\n".join(lines)


def _widths(table: Table) -> tuple[list[int], list[int]]:
    """The widths of the columns: for whole texts, and with texts broken between words."""
    whole, broken = [], []
    for number, (header, *cells) in enumerate(zip(table.columns, *table.rows, strict=True)):
        whole.append(max(map(len, [header, *cells])))
        if number < table.text:
            cells = ["x" * min(_WIDEST, whole[-1]), *" ".join(cells).split()]
        broken.append(max(map(len, [*header.split(), *cells]), default=1))
    return whole, broken


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _groups(widths: Sequence[int], width: int) -> list[list[int]]:
    """Split the columns into tables that fit the width, each beginning with the first column."""
    groups = [[0]]
    for number in range(1, len(widths)):
        if _total([widths[each] for each in (*groups[-1], number)]) > width and len(groups[-1]) > 1:
            groups.append([0])
        groups[-1].append(number)
    return groups

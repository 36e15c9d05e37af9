"""What changes in the economy of a cache."""

import sqlite3
from pathlib import Path

from accel.cache import folder as folders


def changed(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / folders.TABLE)
    with connection:
        connection.execute(statement)
    connection.close()

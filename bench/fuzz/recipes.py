"""Recipes for the files of a run: a base file and mutations, determined by seed, number and corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from bench.fuzz.files import intact
from bench.fuzz.mutations import MUTATIONS, Rng

INTACT = "none"
_KINDS = tuple(MUTATIONS)
_LEFT_OUT = (".eps", ".ps")  # Pillow runs another program for them
_UNCHANGED = 8  # without a corpus, one file in so many is not mutated


class Recipe(NamedTuple):
    """A file by its number: ``base`` is its place in the corpus, or None for one that is made; then the mutations.

    Each mutation has its own seed, so that it does the same when another one is left out.
    """

    number: int
    base: int | None
    steps: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        return self.steps[0][0] if self.steps else INTACT


class Corpus:
    """Image files of some folders, ordered by name; those above ``largest`` bytes are left out."""

    def __init__(self, folders: Sequence[Path], largest: int = 1 << 20) -> None:
        self.files = [path for folder in folders for path in sorted(folder.rglob("*")) if _is_image(path, largest)]
        self._jpegs = [place for place, path in enumerate(self.files) if _is_jpeg(path)]
        self.read = lru_cache(maxsize=256)(lambda number: self.files[number].read_bytes())

    def __len__(self) -> int:
        return len(self.files)

    def some(self, rng: Rng) -> int | None:
        """A random file, mostly a JPEG; None, one time in five or if there is none, for a file to be made."""
        if not self.files or rng.random() < 0.2:
            return None
        return rng.choice(self._jpegs) if self._jpegs and rng.random() < 0.9 else rng.randrange(len(self))

    def bytes(self, place: int | None, rng: Rng) -> bytes:
        """A file of the corpus, or one made of the random numbers."""
        return intact(rng) if place is None else bytes(self.read(place))


def _is_image(path: Path, largest: int) -> bool:
    kind = path.suffix.lower()
    if not path.is_file() or not 0 < path.stat().st_size <= largest or kind in _LEFT_OUT:
        return False
    return kind in Image.registered_extensions() or _is_jpeg(path)


def _is_jpeg(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\xff\xd8"


def recipe(number: int, seed: str, corpus: Corpus) -> Recipe:
    """The recipe of a number: first every file of the corpus unchanged, then each kind of mutation in turn, with up to
    two more."""
    if number < len(corpus):
        return Recipe(number, number)
    rng = Rng(f"{seed} {number}")
    base = corpus.some(rng)
    if not len(corpus) and number % _UNCHANGED == 0:
        return Recipe(number, base)
    count = rng.choices((1, 2, 3), (60, 25, 15))[0]
    kinds = [_KINDS[number % len(_KINDS)], *rng.choices(_KINDS, k=count - 1)]
    return Recipe(number, base, tuple((kind, f"{seed} {number} {place}") for place, kind in enumerate(kinds)))


def make(recipe: Recipe, seed: str, corpus: Corpus) -> bytes:
    data = corpus.bytes(recipe.base, Rng(f"{seed} {recipe.number} base"))
    for kind, own in recipe.steps:
        rng = Rng(own)
        other = corpus.bytes(corpus.some(rng), rng)
        data = MUTATIONS[kind](data or b"\0", other, rng)
    return data

"""Describe the package on an index by README.md: its links lead to the repository that pyproject.toml names.

All else of the package is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def description(text: str, repository: str | None) -> str:
    """Make README.md's text fit to stand by itself.

    Args:
        repository: the address that relative links are resolved against; without one, links become their text, and
            pictures are left out.
    """

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match[0]
        if repository is None:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/HEAD/{target})"

    return _LINK.sub(link, re.sub(r"<!-- .*? -->", "", text))


def repository(pyproject: str) -> str | None:
    """Find the setting ``Source`` of ``[project.urls]``; it cannot be read as TOML, as Python 3.10 has no reader."""
    found = re.search(r'^\[project\.urls\]\n(?:.+\n)*?Source = "([^"]+)"', pyproject, re.MULTILINE)
    return found[1].rstrip("/") if found else None


if __name__ == "__main__":
    here = Path(__file__).parent
    text = (here / "README.md").read_text(encoding="utf-8")
    source = repository((here / "pyproject.toml").read_text(encoding="utf-8"))
    setup(long_description=description(text, source), long_description_content_type="text/markdown")

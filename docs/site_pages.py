"""Let MkDocs build the site of files that stand elsewhere in the repository, with links that hold in both places."""

from __future__ import annotations

import posixpath
import re
import runpy
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", **{name: name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")}}
PAGES |= {name: name for name in ("bench/README.md", "bench/REPORT.md")}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_config(config: Any) -> Any:
    """Show the version, and the date that CHANGELOG.md has for it, below every page."""
    version = runpy.run_path(str(ROOT / "accel" / "system" / "version.py"))["__version__"]
    dated = re.search(rf"^## \[{re.escape(version)}\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    config.copyright = f"accel {version}, {dated[1] if dated else 'not released'}"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and pictures that are not below docs/."""
    pictures = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "bench" / "plots").glob("*.png"))]
    for source, place in (PAGES | {name: name for name in pictures}).items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links as the repository has them into the site's; what the site does not have becomes plain text."""
    here = page.file.src_uri
    source = next((source for source, place in PAGES.items() if place == here), f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path:
            return match[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        place = PAGES.get(found, found.removeprefix("docs/"))
        if files.get_file_from_path(place) is None:
            return text
        return f"{picture}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{hash_}{anchor})"

    return _LINK.sub(link, markdown)

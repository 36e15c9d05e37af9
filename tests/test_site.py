"""The site: it builds, shows its version and the docstrings, and each page looks right on a laptop and on a phone."""

import contextlib
import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import accel
from tests.support import browser

ROOT = Path(__file__).parent.parent
VERSION = accel.__version__
FOLDER = ".".join(VERSION.split(".")[:2])
WIDTHS = (1300, 400)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocstrings") is None, reason='needs pip install -e ".[docs]"'
)
needs_browser = pytest.mark.skipif(browser.COMMAND is None or browser.BASH is None, reason="needs chromium and bash")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as it is deployed: in a folder of the version, beside the list of versions."""
    top = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--site-dir",
            str(top / FOLDER),
        ],  # --quiet hides warnings
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    (top / "versions.json").write_text(json.dumps([{"version": FOLDER, "title": VERSION, "aliases": []}]))
    return top


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder; yields its url."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def wrong(folder: Path, profile: Path) -> list[str]:
    """What is wrong with the pages below a folder, at each width."""
    found, links, anchors = [], dict[str, list[str]](), dict[str, list[str]]()
    files = (path for path in folder.rglob("*") if path.suffix in (".html", ".svg") and path.name != "404.html")
    pages = sorted(path.relative_to(folder).as_posix() for path in files if "assets" not in path.parts)
    with served(folder) as top, browser.Browser(profile) as chromium:
        for page in pages:
            url = top + page.removesuffix("index.html")
            for width in WIDTHS:
                seen = chromium.look(url, width)
                found += [f"{page} at {width}: {problem}" for problem in seen["problems"]]
            links[page], anchors[url] = seen["links"], seen["anchors"]
    for page, targets in links.items():
        for target in sorted({*targets}):
            path, anchor = urldefrag(target)
            if not path.startswith(top):
                found += [f"{page}: no link: {target}"] * (not re.match(r"https://|mailto:", target))
            elif path not in anchors:
                file = folder / unquote(path.removeprefix(top))
                found += [f"{page}: leads nowhere: {target.removeprefix(top)}"] * (not file.is_file())
            elif anchor and unquote(anchor) not in anchors[path]:
                found.append(f"{page}: no such place: {target.removeprefix(top)}")
    return found


def test_it_shows_the_docstrings(site: Path) -> None:
    api = (site / FOLDER / "api" / "index.html").read_text()
    assert "Choose the backend that decodes and augments images" in api
    for name in ("set_image_backend", "submit", "LazyTensor", "backend.HostBackend", "testing.check"):
        assert re.search(rf'id="accel\.(\w+\.)*{re.escape(name)}"', api), name


def test_it_shows_its_version_and_date(site: Path) -> None:
    dated = re.search(r"^## \[(.+)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert dated is not None
    assert dated[1] == VERSION
    for page in (site / FOLDER).rglob("index.html"):
        assert f"accel {VERSION}, {dated[2]}" in page.read_text(), page


@needs_browser
def test_every_page_is_whole_on_a_laptop_and_on_a_phone(site: Path, tmp_path: Path) -> None:
    assert wrong(site, tmp_path) == []


@needs_browser
def test_the_versions_can_be_chosen(site: Path, tmp_path: Path) -> None:
    with served(site) as top, browser.Browser(tmp_path) as chromium:
        assert VERSION in chromium.look(f"{top}{FOLDER}/", 1300, awaited=".md-version")["text"].splitlines()


@needs_browser
def test_what_is_wrong_would_be_seen(tmp_path: Path) -> None:
    """Each of the faults alone, and none in pages beside them."""
    cell = f"<td>{'column' * 4}</td>"
    cells = cell * 12
    fault = {
        "table": f"<table><tr>{cells}</tr></table>",
        "scrolls": f'<div style="overflow-x: auto"><table><tr>{cells}</tr></table></div>',
        "hidden": f'<div style="overflow: hidden"><table><tr>{cells}</tr></table></div>',
        "cell": f'<table style="table-layout: fixed; width: 300px"><tr><td>{"word" * 40}</td><td>b</td></tr></table>',
        "overlap": '<p>A line of text.</p><p style="margin-top: -32px">And another one.</p>',
        "picture": '<img src="gone.png" alt="gone">',
        "drawing": '<svg viewBox="0 0 100 20" width="100"><text x="60" y="9">too long for it</text></svg>',
        "link": '<a href="gone.html">gone</a>',
        "anchor": '<a href="fine.html#gone">gone</a>',
        "elsewhere": '<a href="file:///etc">gone</a>',
    }
    fine = f'<h1 id="top">Title</h1><div style="overflow-x: auto"><table><tr>{cell * 4}</tr></table></div><p>Text.</p>'
    (tmp_path / "pages").mkdir()
    (tmp_path / "profile").mkdir()
    for name, body in {**fault, "fine": f'{fine}<a href="fine.html#top">top</a> <a href="https://a.org">a</a>'}.items():
        text = f'<!doctype html><meta name="viewport" content="width=device-width"><article>{body}</article>'
        (tmp_path / "pages" / f"{name}.html").write_text(text)
    found = wrong(tmp_path / "pages", tmp_path / "profile")
    seen = {name: [each.partition(": ")[2] for each in found if each.startswith(f"{name}.html")] for name in fault}
    assert not [each for each in found if each.startswith("fine.html")]
    expected = {
        "table": "the page is",
        "scrolls": "scrolls",
        "hidden": "cut off",
        "cell": "wider than",
        "overlap": "overlapping",
    }
    expected |= {
        "drawing": "cut off",
        "picture": "no picture",
        "link": "leads nowhere",
        "anchor": "no such place",
        "elsewhere": "no link",
    }
    for name, text in expected.items():
        assert any(each.startswith(text) for each in seen[name]), (name, seen[name])

"""README, docs/ and CONTRIBUTING: links that resolve, names that exist, and a site that builds."""

import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest

import accel
from accel import backend
from accel.cli.command_line import main
from tests.support import helpers

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text() for page in PAGES}

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
CODE = re.compile(r"```.*?```", re.DOTALL)
NAME = re.compile(r"\baccel(?:\.[A-Za-z_]\w*)+")
COMMAND = re.compile(r"python -m (accel|bench|rig)((?:[ .][a-z]\w*)*)")
PATH = re.compile(r"`((?:accel|backends|bench|docs|rig)/[\w./-]*)`")


def anchors(text: str) -> set[str]:
    """Name the headings of a page as GitHub and MkDocs do."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(text: str, page: Path) -> list[str]:
    """List the relative links of a page that lead nowhere."""
    found = []
    for target in LINK.findall(CODE.sub("", text)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            found.append(target)
    return found


COMMANDS = ("run", "compare", "verify", "cache", "pack", "info", "warm")


def exists(name: str) -> bool:
    """Say whether a dotted name can be reached by imports and attributes."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def unknown(text: str) -> list[str]:
    """List the names and commands in a page that do not exist."""
    names = {name for name in NAME.findall(text) if name.rsplit(".", 1)[1] not in ("py", "md")}
    wrong = [name for name in sorted(names) if not exists(name)]
    for module, rest in COMMAND.findall(text):
        command = rest.split()
        if module == "accel" and command and command[0] not in COMMANDS:
            wrong.append(f"python -m accel{rest}")
        if rest.startswith(".") and importlib.util.find_spec(module + rest.split()[0]) is None:
            wrong.append(f"python -m {module}{rest}")
    return wrong


def missing(text: str) -> list[str]:
    """List the paths in a page that are not there; the rig is looked for where it is."""
    paths = [path for path in PATH.findall(text) if "<" not in path]
    return [path for path in paths if not (ROOT / path).exists() and (ROOT / path.split("/")[0]).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    assert broken(page.read_text(), page) == []


@pytest.mark.parametrize("name", TEXTS)
def test_names_commands_and_paths_exist(name: str) -> None:
    if name != "CHANGELOG.md":  # which may speak of what is gone
        assert unknown(TEXTS[name]) + missing(TEXTS[name]) == []


def test_what_is_wrong_would_be_seen() -> None:
    page = ROOT / "docs" / "guide.md"
    wrong = "[a](gone.md) [b](ops.md#gone) [c](ops.md) [d](#options) [e](#gone)"
    assert broken(wrong + "\n```\n[f](gone.md)\n```\n", page) == ["gone.md", "ops.md#gone", "#gone"]
    assert broken("[a](#options)", page) == []
    assert unknown("`accel.gone` `accel.submit(x)` `accel.functional.gone` accel.system.fork") == [
        "accel.functional.gone",
        "accel.gone",
    ]
    assert unknown("python -m accel gone, python -m accel compare, python -m bench.gone, python -m bench train") == [
        "python -m accel gone",
        "python -m bench.gone",
    ]
    assert missing("`accel/gone.py` `accel/ops/` `docs/guide.md`") == ["accel/gone.py"]


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "cache"])
def test_options_of_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(line for line in TEXTS["docs/guide.md"].splitlines() if line.startswith(f"| `python -m accel {command}"))
    with pytest.raises(SystemExit):
        main([command, "--help"])
    known = capsys.readouterr().out
    assert [option for option in re.findall(r"`(--[a-z-]+)", row) if option not in known] == []


def test_the_guide_names_all_options() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (all|`.*?`) \|", TEXTS["docs/guide.md"], re.MULTILINE)
    for name in ("cpu", "cuda", "dali"):
        listed = {option for option, backends in rows if backends == "all" or f"`{name}`" in backends}
        assert listed == set(backend.find(name).Options.__dataclass_fields__), name


def test_the_api_page_names_all_functions() -> None:
    functions = TEXTS["docs/api.md"].partition("`torchvision.transforms.functional`:")[2].partition("##")[0]
    assert sorted([*re.findall(r"`(\w+)`", functions), "decode"]) == sorted(accel.functional.__all__)


def test_the_readme_is_short() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 130


def test_the_examples_of_sinking_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXTS["docs/sink.md"], re.DOTALL | re.MULTILINE)
    assert len(blocks) > 5
    said = helpers.python("\n".join(blocks), timeout=300)
    assert "sink of train_step" in said

"""Runs what the documents promise."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from etagere.config import Config
from etagere.settings import SETTINGS
from etagere.settings.loading import load, shown
from etagere.settings.oauth import AZURE_NAMES, Role
from tests.server import development_port

ROOT = Path(__file__).parents[1]
_NEW_FILE = re.compile(r"```python\n# (\S+)\n(.*?)```", re.DOTALL)
_CHANGES = re.compile(r"```diff\n(.*?)```", re.DOTALL)


def _run(*command: str, directory: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def test_the_first_five_minutes_of_the_readme(tmp_path: Path) -> None:
    """On a server as a user starts it, on the default ports."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (printed,) = re.findall(r"It prints:\n\n```\n(.*?)```", page, re.DOTALL)
    command = [sys.executable, "-m", "etagere", "serve", "--data", str(tmp_path / "data")]
    with (
        development_port(),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("READY")
            done = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            server.terminate()
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
    _run(sys.executable, "-m", "etagere", "check", "--data", "data", directory=tmp_path)


def test_the_worked_example_of_contributing_works(tmp_path: Path) -> None:
    """Applies it to a copy of the sources, then runs the linters and its tests there."""
    for name in ("src", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    new_files = dict(_NEW_FILE.findall(page))
    for path, source in new_files.items():
        (tmp_path / path).write_text(source, encoding="utf-8")
    changed = [path for changes in _CHANGES.findall(page) for path in _apply(changes, tmp_path)]
    files = [*new_files, *changed]
    tests = [path for path in files if path.startswith("tests/")]
    assert {Path(path).parts[1] for path in tests} == {"operations", "sdk"}
    _run(_tool("ruff"), "check", *files, directory=tmp_path)
    _run(_tool("ruff"), "format", "--check", *files, directory=tmp_path)
    _run(_tool("lint-imports"), directory=tmp_path, PYTHONPATH=str(tmp_path / "src"))
    _run(sys.executable, "-m", "pytest", "-q", *tests, directory=tmp_path)


def _apply(changes: str, directory: Path) -> Iterator[str]:
    """Applies hunks without line numbers, each of which matches exactly one place of its file;
    yields the names of the files."""
    for change in changes.split("--- ")[1:]:
        path, *hunks = re.split(r"\n@@.*\n", change)
        source = (directory / path).read_text(encoding="utf-8")
        for hunk in hunks:
            lines = hunk.splitlines()
            before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
            assert source.count(before) == 1, f"{path}: {before}"
            source = source.replace(before, after)
        (directory / path).write_text(source, encoding="utf-8")
        yield path


def test_the_page_on_configuration_names_every_setting() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    server, inside = page.split("\n## Internal limits\n")
    table = server.split("\n| setting |", 1)[1].split("\n\n", 1)[0]
    rows = [_cells(row) for row in re.findall(r"^\| `.*\|$", table, re.MULTILINE)]
    assert [row[:4] for row in rows] == [
        [f"`{setting.name}`", f"`{setting.flag}`", f"`{setting.variable}`", shown(setting.default)]
        for setting in SETTINGS
    ]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `.*?\|", inside, re.MULTILINE))))
    settings = {field.name for field in dataclasses.fields(Config)}
    assert named == settings - {"sqlite_vfs"}  # only for tests


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_documented_settings_files_are_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "etagere.toml"
    loaded = []
    for example in examples:
        path.write_text(example, encoding="utf-8")
        loaded.append(load({"config": str(path)}, {}))
    assert [account.name for account in loaded[0].accounts] == ["mine", "yours"]
    assert {settings.oauth for settings in loaded} == {"off", "on"}


def test_the_page_on_configuration_names_every_role() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    table = page.split("\n| role |", 1)[1].split("\n\n", 1)[0]
    rows = [_cells(row) for row in re.findall(r"^\| `.*\|$", table, re.MULTILINE)]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row[0])}
    assert named == {role.value for role in Role}
    of_azure = {name for row in rows for name in row[1].split(", ")} - {"", "…"}
    delegators = {name for name in AZURE_NAMES.values() if name.endswith("Delegator")}
    assert of_azure == {*AZURE_NAMES.values()} - delegators | {"Storage Blob Delegator"}


def _anchors(page: Path) -> set[str]:
    """Returns the anchors of the headings of a page, as GitHub and others make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 100
    for page, link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), (page.name, link)
        assert not anchor or anchor in _anchors(target), (page.name, link)


_PATH = re.compile(r"`([\w<>/]+(?:\.py)?/?)`")
_SOURCES = ROOT / "src/etagere"


def _named_files(page: str) -> list[str]:
    """Returns the names in backticks that are written like files or directories. Those that begin
    with a slash are addresses of requests."""
    names = _PATH.findall(re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    files = [name for name in names if "/" in name or name.endswith(".py")]
    return [name for name in files if not name.startswith("/")]


def _exists(name: str, *directories: Path) -> bool:
    """Returns whether a file or module exists in one of the directories; `<service>` means all."""
    services = ("blob", "queue", "table", "file") if "<service>" in name else ("",)
    return all(
        any(
            (directory / f"{written}{suffix}").exists()
            for directory in directories
            for suffix in ("", ".py")
        )
        for written in (name.replace("<service>", service) for service in services)
    )


def test_the_files_that_the_architecture_names_exist() -> None:
    """A name without a directory belongs to a directory that the same section names."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for section in re.split(r"^#+ ", page, flags=re.MULTILINE):
        title = section.partition("\n")[0]
        whole = set(re.findall(r"`([\w/]+)`", section)) | set(_named_files(section))
        directories = [_SOURCES]
        for name in whole:
            path = _SOURCES / name
            directories.append(path if path.is_dir() else path.parent)
        for name in _named_files(section):
            assert _exists(name, *([_SOURCES] if "/" in name else directories)), (title, name)


def test_the_paths_of_requests_are_counted_and_short() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!request).*`operations/.*\|$", page, re.MULTILINE)
    assert len(rows) == 7
    for row in rows:
        files = {"protocol/http/connection.py", "protocol/rest/service.py", *_named_files(row)}
        assert str(len(files)) == _cells(row)[-1]
        # Requests for files also pass the table of open files.
        assert len(files) <= (13 if "opens/table.py" in files else 11)


def test_the_files_that_decisions_and_contributing_name_exist() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    new = {path.removeprefix("src/etagere/") for path, _ in _NEW_FILE.findall(contributing)}
    data_directory = {"health/", "processes/", "segments/"}
    pages = [*sorted((ROOT / "docs/decisions").glob("*.md")), ROOT / "CONTRIBUTING.md"]
    for page in pages:
        for name in _named_files(page.read_text(encoding="utf-8")):
            if "/" in name and name not in new | data_directory:
                assert _exists(name, _SOURCES, _SOURCES / "protocol", ROOT), (page.name, name)

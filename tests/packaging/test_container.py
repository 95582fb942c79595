"""The files for containers. There may be no engine to build with, so the steps are checked."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etagere.cli.main import build_parser
from etagere.settings import SETTINGS, Settings
from etagere.settings.loading import CONFIG_VARIABLE, load
from tests.server import ROOT

CONTAINERFILE = (ROOT / "packaging/Containerfile").read_text("utf-8")
COMPOSE = (ROOT / "packaging/compose.yaml").read_text("utf-8")
VARIABLES = {CONFIG_VARIABLE, *(setting.variable for setting in SETTINGS)}
PORTS = [getattr(Settings(), f"{name}_port") for name in ("blob", "queue", "table", "file", "smb")]


def instructions(name: str) -> list[str]:
    """Returns the arguments of all instructions of a kind."""
    return re.findall(rf"^{name} (.+)$", CONTAINERFILE, re.MULTILINE)


def variables_of(text: str) -> dict[str, str]:
    return dict(re.findall(r"\b(ETAGERE_\w+)[=:] ?(\S+)", text))


def test_the_image() -> None:
    (base,) = instructions("ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=[\w./]+:3\.11\.\d+-slim-\w+", base)
    assert instructions("FROM") == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]
    for copied in instructions("COPY"):
        *sources, _target = copied.split()
        if not copied.startswith("--from="):
            assert all((ROOT / source).exists() for source in sources), copied
    assert [int(port) for port in instructions("EXPOSE")[0].split()] == PORTS
    variables = variables_of(CONTAINERFILE)
    assert set(variables) <= VARIABLES
    settings = load({}, variables)
    assert instructions("VOLUME") == [str(settings.data)] == ["/data"]
    assert instructions("USER") == ["etagere"]
    (entry,), (command,) = instructions("ENTRYPOINT"), instructions("CMD")
    build_parser().parse_args([*json.loads(entry)[1:], *json.loads(command)])
    (check,) = instructions("HEALTHCHECK")
    health = json.loads(check.partition(" CMD ")[2])
    assert health[0] == "etagere"
    build_parser().parse_args(health[1:])
    # The same check, in both files.
    assert f"test: {json.dumps(['CMD', *health])}" in COMPOSE


def test_compose() -> None:
    assert set(variables_of(COMPOSE)) <= VARIABLES
    published = re.findall(r'"127\.0\.0\.1:(\d+):(\d+)"', COMPOSE)
    assert published == [(str(port), str(port)) for port in PORTS]
    assert re.search(r"dockerfile: packaging/Containerfile", COMPOSE)
    # The secret is the file that ETAGERE_CONFIG names.
    target = re.search(r"target: (\S+)", COMPOSE)
    assert target is not None
    assert variables_of(COMPOSE)[CONFIG_VARIABLE] == f"/run/secrets/{target[1]}"


def test_the_secret_stays_out_of_images_and_distributions() -> None:
    """The file with the keys is among the sources. Distributions contain nothing that git
    ignores."""
    found = re.search(r"^    file: \./(\S+)$", COMPOSE, re.MULTILINE)
    assert found is not None
    secret = Path("packaging", found[1])
    copied = {name for each in instructions("COPY") for name in each.split()[:-1]}
    assert not {str(path) for path in (secret, *secret.parents)} & copied
    assert f"/{secret}" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
    _, *exceptions = (ROOT / ".dockerignore").read_text("utf-8").splitlines()[1:]
    needed = {name.partition("/")[0] for name in copied if not name.startswith(("--", "/"))}
    assert {name[1:].partition("/")[0] for name in exceptions} == needed
    assert f"!{secret}" not in exceptions


def test_the_locks_of_the_image_agree() -> None:
    """The build uses the backend that the tests use."""
    pins = {}
    for name in ("build", "dev"):
        text = (ROOT / f"requirements/{name}.txt").read_text("utf-8")
        pins[name] = set(re.findall(r"^\w\S*==\S+|^    --hash=\S+", text, re.MULTILINE))
    assert "hatchling" in {pin.partition("==")[0] for pin in pins["build"]}
    assert pins["build"] <= pins["dev"]


@pytest.mark.long
def test_the_steps_of_the_build(tmp_path: Path) -> None:
    """Runs the steps of the first stage below a directory, and the command that they install."""
    stage = CONTAINERFILE.partition("AS build\n")[2].partition("\nFROM")[0]
    sources = tmp_path / "src"
    sources.mkdir()
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    for kind, step in re.findall(r"^(COPY|RUN) (.+)$", stage, re.MULTILINE):
        if kind == "RUN":
            command = ["sh", "-ec", step.replace("/opt/", f"{tmp_path}/opt/")]
            subprocess.run(command, cwd=sources, env=environment, check=True, timeout=600)
            continue
        *names, target = shlex.split(step)
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, sources / target)
            else:
                (sources / target).mkdir(exist_ok=True)
                shutil.copy(ROOT / name, sources / target)
    shown = subprocess.run(
        [tmp_path / "opt/etagere/bin/etagere", "version"], capture_output=True, check=True
    )
    assert shown.stdout.startswith(b"etagere ")

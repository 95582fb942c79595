"""The wheel and the source distribution: their contents, and a server from an installed wheel."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

import etagere
from tests.server import PORTS, ROOT

pytest.importorskip("hatchling")


def clean_environment() -> dict[str, str]:
    """Returns an environment in which only installed packages are found."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ETAGERE_")}
    kept.pop("PYTHONPATH", None)
    return kept


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(sources: Path, target: Path, *flags: str) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-d", target, *flags, cwd=sources)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    build(ROOT, target)
    return target


def wheel_files(directory: Path) -> set[str]:
    (path,) = directory.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        return set(wheel.namelist())


def test_contents_of_the_wheel(distributions: Path) -> None:
    """All modules, the license, the man page, the units and the dashboards; nothing else."""
    version = etagere.__version__
    info, data = f"etagere-{version}.dist-info/", f"etagere-{version}.data/data/share/"
    files = wheel_files(distributions)
    modules = {path for path in files if path.startswith("etagere/")}
    sources = (ROOT / "src").rglob("*")
    expected = {
        str(path.relative_to(ROOT / "src"))
        for path in sources
        if "__pycache__" not in path.parts and path.is_file()
    }
    assert modules == expected
    assert "etagere/py.typed" in modules
    folders = {"systemd": ROOT / "packaging/systemd", "dashboards": ROOT / "dashboards"}
    shared = {
        f"{data}etagere/{name}/{path.name}"
        for name, folder in folders.items()
        for path in folder.iterdir()
    }
    metadata = {f"{info}{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    license_and_manual = {f"{info}licenses/LICENSE", f"{data}man/man1/etagere.1"}
    assert files - modules == shared | metadata | license_and_manual


def test_the_source_distribution_builds_the_same_wheel(distributions: Path, tmp_path: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    run("tar", "-xf", path, cwd=tmp_path)
    (sources,) = tmp_path.iterdir()
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    missing = {name for name in tracked.stdout.split() if not (sources / name).exists()}
    assert all(name.startswith(".") for name in missing), missing
    build(sources, tmp_path / "dist", "-t", "wheel")
    assert wheel_files(tmp_path / "dist") == wheel_files(distributions)


def test_an_installed_server(distributions: Path, tmp_path: Path) -> None:
    """Installs the wheel into a fresh environment and runs its command. The dependencies are those
    of this environment, so that the test needs no network."""
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python, command = environment / "bin/python", environment / "bin/etagere"
    (wheel,) = distributions.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "--isolated", "install")
    run(*pip, "--no-index", "--no-deps", "--no-compile", wheel, cwd=tmp_path)
    where = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    )
    packages = Path(where.strip())
    # Editable packages of this environment are not found: `.pth` files are not read recursively.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    found = run(python, "-c", "import etagere; print(etagere.__file__)", cwd=tmp_path)
    assert found.strip() == str(packages / "etagere/__init__.py")
    assert (environment / "share/man/man1/etagere.1").exists()
    shown = f"etagere {etagere.__version__}\n"
    assert run(command, "--version", cwd=tmp_path).startswith(shown.strip())
    assert run(python, "-m", "etagere", "--version", cwd=tmp_path).startswith(shown.strip())

    ports = [word for name in PORTS for word in (f"--{name}-port", "0")]
    serve = [str(command), "serve", "--memory", "--workers", "1", *ports]
    with subprocess.Popen(
        serve,
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            ready = dict(word.split("=") for word in server.stdout.readline().split()[1:])
            with pytest.raises(urllib.error.HTTPError, match="400") as answered:
                urllib.request.urlopen(f"{ready['blob']}/devstoreaccount1", timeout=10)
            answered.value.close()
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_the_man_page_has_no_errors() -> None:
    page = ROOT / "packaging/etagere.1"
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-k", "-ww", "-z", str(page)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_the_man_page_is_current() -> None:
    """Run `make man` if this fails."""
    made = runpy.run_path(str(ROOT / "scripts/man_page.py"))["man_page"]()
    assert made == (ROOT / "packaging/etagere.1").read_text("utf-8")

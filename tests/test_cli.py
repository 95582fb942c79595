"""The `etagere` command as a user runs it: in its own process, with and without a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import etagere
from etagere.cli.main import COMMANDS, main
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import ledger
from etagere.settings import SETTINGS
from tests.bodies.objects import OBJECTS
from tests.bodies.stores import CONFIG, DamagedStore, build, expected
from tests.engine.sqlite_harness import SqliteHarness

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "etagere"]
SECRET = "c2VjcmV0"
# The command with the sample service of the tests in addition to the real ones.
WITH_OBJECTS = [
    sys.executable,
    "-c",
    "import sys, tests.bodies.objects; from etagere.cli.main import main; sys.exit(main())",
]


# Everything is imported first, since user "nobody" may not be able to read the sources.
AS_NOBODY = (
    "{imports}; import os, sys, etagere.cli.main; "
    "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.exit(etagere.cli.main.main())"
)
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

ACCOUNT_VERBS = ("add", "list", "rotate", "revoke-delegation-keys", "remove")
HELPS = (
    (),
    *((name,) for name in COMMANDS),
    *(("account", verb) for verb in ACCOUNT_VERBS),
)


def environment(variables: dict[str, str] | None = None) -> dict[str, str]:
    """Returns the environment without the settings of the user who runs the tests."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ETAGERE_")}
    return {**kept, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **(variables or {})}


def as_nobody(imports: str) -> list[str]:
    return [sys.executable, "-c", AS_NOBODY.format(imports=imports)]


def start(
    *arguments: str | Path,
    command: list[str] = COMMAND,
    cwd: Path | None = None,
    variables: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *map(str, arguments)],
        env=environment(variables),
        cwd=cwd or ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check(
    *arguments: str | Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return start("check", *arguments, command=WITH_OBJECTS, variables=variables)


def is_one_line(text: str) -> bool:
    return text.startswith("etagere: ") and text.endswith("\n") and text.count("\n") == 1


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sound") / "data"
    asyncio.run(build(directory))
    return directory


@pytest.fixture
def broken(sound: Path, tmp_path: Path) -> DamagedStore:
    return DamagedStore(sound, tmp_path / "data")


@pytest.fixture
def serving(broken: DamagedStore) -> Iterator[SqliteHarness]:
    """Runs a server on the store."""
    harness = SqliteHarness(broken.directory, CONFIG)
    harness.start()
    yield harness
    harness.stop()


# Usage


def shown_help(*arguments: str) -> str:
    """Returns the help as shown on a very wide terminal."""
    shown = start(*arguments, "--help", variables={"COLUMNS": "200"})
    assert shown.returncode == 0
    assert not shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 100
    return shown.stdout


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_help_explains_commands_and_flags(arguments: tuple[str, ...]) -> None:
    shown = shown_help(*arguments)
    usage, _, rest = shown.partition("\n\n")
    assert usage.startswith(f"usage: {' '.join(('etagere', *arguments))} ")
    assert rest[0].isupper(), "says what it does"
    _, _, examples = rest.partition("example")
    assert f"  {' '.join(('etagere', *arguments))}" in examples
    # Each flag has an explanation.
    _, _, options = rest.partition("\noptions:\n")
    for flag in re.findall(r"--[a-z0-9-]+", usage):
        (explained,) = re.findall(
            rf"^  (?:-h, )?{flag}(?![a-z0-9-]).*(?:\n {{5,}}.*)*", options, re.MULTILINE
        ) or [""]
        assert len(explained.split()) > 3 or flag.startswith("--no-"), flag


def test_help_of_serve_matches_the_configuration_page() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.*?)` \| `(.*?)` \| `(.*?)` \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert [row[0] for row in rows] == [setting.name for setting in SETTINGS]
    shown = " ".join(shown_help("serve").split())
    for name, flag, variable, default, _ in rows:
        assert f" {flag}" in shown
        assert f"(default: {default}; variable {variable}, key {name})" in shown


def test_version() -> None:
    for arguments in (("version",), ("--version",)):
        shown = start(*arguments)
        assert (shown.returncode, shown.stdout) == (0, f"etagere {etagere.__version__}\n")


def test_installed_command_is_the_same() -> None:
    installed = shutil.which("etagere", path=str(Path(sys.executable).parent))
    assert installed is not None, "`make environment` installs the command"
    shown = start("version", command=[installed])
    assert (shown.returncode, shown.stdout) == (0, f"etagere {etagere.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "COMMAND"),
        (("chekc",), "did you mean check?"),
        (("account", "ad", "mine"), "VERB: unknown name; did you mean add?"),
        (("check", "--dat", "x"), "unknown flag --dat; did you mean --data? see `etagere check "),
        (("check", "--data"), "--data: expected one argument"),
        (("check", "extra"), "too many arguments"),
        (("version", "--loud"), "unknown flag --loud; see `etagere version --help`"),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    shown = start(*arguments)
    assert shown.returncode == 2
    assert is_one_line(shown.stderr)
    assert words in shown.stderr
    assert "--help" in shown.stderr
    assert not shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--acount", SECRET), "--acount; did you mean --account?"),
        (("serve", f"--acount={SECRET}"), "--acount; did you mean --account?"),
        (("serve", f"-a{SECRET}"), "unknown flag -a;"),
        (("serve", SECRET), "too many"),
        (("serve", "--", SECRET), "too many"),
        (("serve", f"--memory={SECRET}"), "--memory"),
        (("--kye", SECRET, "serve"), "COMMAND: unknown name"),
        (("account", "--kye", SECRET), "VERB: unknown name"),
        (("account", "add", "mine", "--kye", SECRET), "--kye; did you mean --key?"),
        (("account", "add", "--kye", SECRET, "mine"), "--kye; did you mean --key?"),
        (("account", "add", f"mine:{SECRET}"), "an account name consists of"),
        (("connection-string", "--account", f"mine:{SECRET}"), "an account name consists of"),
    ],
)
def test_errors_never_show_keys(arguments: tuple[str, ...], words: str) -> None:
    shown = start(*arguments)
    assert shown.returncode == 2
    assert is_one_line(shown.stderr)
    assert words in shown.stderr
    assert SECRET not in shown.stderr + shown.stdout


@pytest.mark.parametrize(
    "arguments", [("check",), ("account", "list"), ("connection-string",), ("serve",)]
)
def test_unknown_variables_are_a_warning(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Every command reads the same settings, so a wrong one is reported early."""
    variables = {"ETAGERE_BLOB_PROT": SECRET, "ETAGERE_XYZ": SECRET, "ETAGERE_WORKERS": "257"}
    shown = start(*arguments, cwd=tmp_path, variables=variables)
    assert shown.returncode == 2
    assert sorted(shown.stderr.splitlines()) == [
        "etagere: ETAGERE_WORKERS: 257 is not an integer from 0 to 256",
        "etagere: warning: ETAGERE_BLOB_PROT is not a setting; did you mean ETAGERE_BLOB_PORT?",
        "etagere: warning: ETAGERE_XYZ is not a setting",
    ]
    assert list(tmp_path.iterdir()) == []


def test_main_returns_a_status(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["version"]) == 0
    assert main(["check", "--data", str(tmp_path)]) == 2
    assert main([]) == 2
    assert capsys.readouterr().err.count("\n") == 2


# Checks


def test_clean_store(sound: Path) -> None:
    shown = check("--data", sound)
    assert shown.returncode == 0, shown.stdout
    assert shown.stderr == ""
    (line,) = shown.stdout.splitlines()
    assert line.startswith(f"{len(expected())} objects, ")
    assert line.endswith(" segments: clean")


def test_a_new_store_has_no_findings(tmp_path: Path) -> None:
    ledger.create(tmp_path / "etagere-data", Config(durable=False), SystemClock())
    summary = "0 objects, 0 extents, 0 bytes in 0 segments: clean\n"
    by_default = start("check", cwd=tmp_path)
    assert (by_default.returncode, by_default.stdout) == (0, summary)
    variables = {"ETAGERE_DATA": str(tmp_path / "etagere-data")}
    by_variable = start("check", variables=variables)
    assert (by_variable.returncode, by_variable.stdout) == (0, summary)
    named = start("check", "--data", tmp_path, variables=variables)
    assert named.returncode == 2
    file = tmp_path / "etagere.toml"
    file.write_text('data = "etagere-data"', encoding="utf-8")
    by_file = start("check", "--config", file)
    assert (by_file.returncode, by_file.stdout) == (0, summary)
    by_file_of_variable = start("check", variables={"ETAGERE_CONFIG": str(file)})
    assert (by_file_of_variable.returncode, by_file_of_variable.stdout) == (0, summary)


def test_unknown_collections_prevent_judgement(sound: Path) -> None:
    """Without the sample service all its bytes look unused: they must not be reported as unused."""
    shown = start("check", "--data", sound)
    assert shown.returncode == 1
    assert "table-unknown" in shown.stdout
    assert "0 leaks" in shown.stdout
    assert "neither reported nor removed" in shown.stdout
    repaired = start("check", "--data", sound, "--repair")
    assert repaired.returncode == 1
    assert "0 leaks removed." in repaired.stdout
    assert check("--data", sound).returncode == 0


def test_findings_are_grouped_and_summed_up(broken: DamagedStore) -> None:
    broken.execute("DELETE FROM inline_bodies")
    for number in range(4_000, 4_060):
        broken.path(number).write_bytes(b"")
    shown = check("--data", broken.directory)
    assert shown.returncode == 1
    assert shown.stderr == ""
    assert "LOSS inline-missing\n  test_objects 'small'" in shown.stdout
    assert shown.stdout.count("segments/00000f") == 50
    assert "… and 10 more; --json lists them all" in shown.stdout
    assert "What to do: `etagere check --repair`" in shown.stdout
    assert shown.stdout.endswith(": 61 problems (1 loss, 60 leaks, 0 faults)\n")


def test_json(broken: DamagedStore) -> None:
    broken.path(4_000).write_bytes(b"stray")
    shown = check("--data", broken.directory, "--json", "--fast")
    assert shown.returncode == 1
    document = json.loads(shown.stdout)
    assert (document["clean"], document["losses"], document["leaks"], document["faults"]) == (
        False,
        0,
        1,
        0,
    )
    assert (document["store"], document["complete"]) == (str(broken.directory), True)
    (finding,) = document["findings"]
    assert finding["kind"] == "file-unused"
    assert finding["severity"] == "leak"
    assert finding["where"] == "segments/00000fa0.seg"
    assert document["objects"] == len(expected())
    clean = check("--data", broken.directory, "--json", "--repair")
    assert clean.returncode == 0
    assert json.loads(clean.stdout)["leaks_removed"] == 1


def test_names_cannot_send_terminal_escapes(broken: DamagedStore) -> None:
    content = broken.content("small")
    broken.put_content("\x1b[2J\u202eä", content)
    broken.execute("DELETE FROM inline_bodies")
    shown = check("--data", broken.directory, variables={"PYTHONIOENCODING": "ascii"})
    assert "\x1b" not in shown.stdout
    assert "\\x1b[2J\\u202e\\xe4" in shown.stdout


def test_fast_skips_the_bytes(broken: DamagedStore) -> None:
    number = broken.segment_of("single")
    path = broken.path(number)
    path.write_bytes(bytes(path.stat().st_size))
    assert check("--data", broken.directory, "--fast").returncode == 0
    shown = check("--data", broken.directory)
    assert shown.returncode == 1
    assert "extent-damaged" in shown.stdout
    assert "'single'" in shown.stdout


def test_check_runs_beside_a_server(serving: SqliteHarness) -> None:
    shown = check("--data", serving.directory)
    assert shown.returncode == 0, shown.stdout


# Repairs


def test_repair_removes_leaks_and_checks_again(broken: DamagedStore) -> None:
    broken.path(4_000).write_bytes(b"stray")
    broken.delete(OBJECTS, ("single",))
    broken.delete(OBJECTS, ("small",))
    broken.delete(OBJECTS, ("small-copy",))
    shown = check("--data", broken.directory, "--repair")
    assert shown.returncode == 0, shown.stdout
    removed, summary = shown.stdout.splitlines()
    # The file, the extent of one object, the bytes and the counts of the others.
    assert removed == "4 leaks removed."
    assert summary.endswith(": clean")
    assert not broken.path(4_000).exists()


def test_repair_leaves_losses(broken: DamagedStore) -> None:
    broken.execute("DELETE FROM inline_bodies")
    broken.path(4_000).write_bytes(b"stray")
    shown = check("--data", broken.directory, "--repair")
    assert shown.returncode == 1
    assert "1 leak removed." in shown.stdout
    assert "1 problem (1 loss, 0 leaks, 0 faults)" in shown.stdout


def test_repair_refuses_while_a_server_runs(serving: SqliteHarness, broken: DamagedStore) -> None:
    broken.path(4_000).write_bytes(b"stray")
    shown = check("--data", serving.directory, "--repair")
    assert shown.returncode == 2
    assert is_one_line(shown.stderr)
    assert "in use" in shown.stderr
    assert "stop the server" in shown.stderr
    assert broken.path(4_000).exists()


# Unusable stores


def no_directory(store: DamagedStore) -> None:
    shutil.rmtree(store.directory)


def a_file(store: DamagedStore) -> None:
    no_directory(store)
    store.directory.write_text("not a directory", encoding="utf-8")


def no_ledger(store: DamagedStore) -> None:
    ledger.database_path(store.directory).unlink()


def ledger_is_a_directory(store: DamagedStore) -> None:
    no_ledger(store)
    ledger.database_path(store.directory).mkdir()


def other_file(store: DamagedStore) -> None:
    ledger.database_path(store.directory).write_text("notes" * 10_000, encoding="utf-8")


def other_database(store: DamagedStore) -> None:
    store.execute("PRAGMA application_id = 7")


def empty_file(store: DamagedStore) -> None:
    ledger.database_path(store.directory).write_bytes(b"")


def newer_schema(store: DamagedStore) -> None:
    store.execute("PRAGMA user_version = 77")


def damaged_schema(store: DamagedStore) -> None:
    with ledger.database_path(store.directory).open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3_000)


@pytest.mark.parametrize("options", [(), ("--repair",)], ids=["check", "repair"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (no_directory, "there is no directory"),
        (a_file, "there is no directory"),
        (no_ledger, "is not a data directory"),
        (ledger_is_a_directory, "is not a data directory"),
        (other_file, "is not an Étagère ledger"),
        (other_database, "is not an Étagère ledger"),
        (empty_file, "is not an Étagère ledger"),
        (newer_schema, "Use the newer version"),
        (damaged_schema, "is damaged"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_errors_of_unusable_stores_are_one_line(
    broken: DamagedStore, damage: object, words: str, options: tuple[str, ...]
) -> None:
    assert callable(damage)
    damage(broken)
    shown = check("--data", broken.directory, *options)
    assert shown.returncode == 2, shown.stdout + shown.stderr
    assert is_one_line(shown.stderr), shown.stderr
    assert words in shown.stderr
    assert shown.stdout == ""


@only_root
@pytest.mark.parametrize("options", [(), ("--repair",)], ids=["check", "repair"])
def test_directory_of_another_user_is_one_line(
    broken: DamagedStore, options: tuple[str, ...]
) -> None:
    broken.directory.chmod(0o700)
    command = as_nobody("import tests.bodies.objects")
    shown = start("check", "--data", broken.directory, *options, command=command)
    assert shown.returncode == 2
    assert is_one_line(shown.stderr), shown.stderr
    assert "Permission denied" in shown.stderr


# With a terminal


def test_progress_is_shown_on_a_terminal_and_cleared(broken: DamagedStore) -> None:
    parent, child = pty.openpty()
    with subprocess.Popen(
        [*WITH_OBJECTS, "check", "--data", str(broken.directory)],
        env=environment({"COLUMNS": "70"}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=child,
    ) as process:
        os.close(child)
        shown = b""
        try:
            while data := os.read(parent, 4_096):
                shown += data
        except OSError:  # how a terminal reports a hangup
            pass
        os.close(parent)
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 0
    assert "database …".encode() in shown
    assert b"bytes      [" in shown
    assert b"%" in shown
    assert shown.endswith(b"\r\x1b[K")
    assert output.endswith(b"clean\n")


def test_a_closed_pipe_is_no_error(broken: DamagedStore) -> None:
    for number in range(4_000, 6_000):
        broken.path(number).write_bytes(b"")
    with subprocess.Popen(
        [*WITH_OBJECTS, "check", "--data", str(broken.directory), "--json"],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""

"""`etagere account`: on a stopped store, beside a server, and connection strings."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etagere import data_directory
from etagere.cli.main import main
from etagere.clock import TICKS_PER_SECOND, SystemClock
from etagere.config import Config
from etagere.engine import ledger
from etagere.engine.sqlite import SqliteEngine
from etagere.model.accounts import Account
from etagere.model.delegation import IssueDelegationKey, UserName, new_secret
from etagere.operations.accounts import get_account
from etagere.operations.delegation import issue_delegation_key
from tests.engine.sqlite_harness import SqliteHarness
from tests.test_cli import is_one_line, start

KEY = base64.b64encode(b"a secret of the account").decode()
KEY2 = base64.b64encode(b"another of its secrets!").decode()
PUBLIC_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
DEVELOPMENT = "devstoreaccount1"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def serving(data: Path) -> Iterator[SqliteHarness]:
    harness = SqliteHarness(data, Config(durable=False))
    harness.start()
    yield harness
    harness.stop()


@pytest.fixture(params=["stopped", "running"])
def store(request: pytest.FixtureRequest, data: Path) -> Path:
    """An empty store, once without a server and once with one."""
    if request.param == "running":
        request.getfixturevalue("serving")
    else:
        ledger.create(data, Config(durable=False), SystemClock())
    return data


def account(data: Path, *arguments: str) -> str:
    """Runs a subcommand that must succeed; returns its output."""
    shown = start("account", *arguments, "--data", data)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    return shown.stdout


def refused(*arguments: str | Path, variables: dict[str, str] | None = None) -> str:
    """Runs a command that must fail; returns its one line of output."""
    shown = start(*arguments, variables=variables)
    assert shown.returncode == 2, shown.stdout
    assert is_one_line(shown.stderr), shown.stderr
    assert shown.stdout == ""
    return shown.stderr


def keys(data: Path) -> dict[str, list[str]]:
    lines = account(data, "list", "--show-keys").splitlines()
    return {name: shown for name, _, *shown in map(str.split, lines)}


async def stored(harness: SqliteHarness, name: str) -> Account | None:
    """Returns the accounts that a front end of the server sees."""
    engine = SqliteEngine(harness.directory, harness.config, harness.clock)
    try:
        return await engine.read(get_account, name)
    finally:
        await engine.close()


# Accounts


def test_lifecycle_of_an_account(store: Path) -> None:
    assert account(store, "add", "mine") == "account mine added\n"
    first = keys(store)
    assert first[DEVELOPMENT] == [PUBLIC_KEY, PUBLIC_KEY]
    assert [len(base64.b64decode(key)) for key in first["mine"]] == [64, 64]
    assert account(store, "rotate", "mine") == "key 1 of mine replaced\n"
    second = keys(store)
    assert account(store, "rotate", "mine", "2") == "key 2 of mine replaced\n"
    third = keys(store)
    assert second["mine"] == [third["mine"][0], first["mine"][1]]
    assert len({*first["mine"], *third["mine"]}) == 4
    assert account(store, "remove", "mine") == "account mine removed\n"
    assert list(keys(store)) == [DEVELOPMENT]
    assert start("check", "--data", store).returncode == 0


def test_given_keys_are_stored_and_not_shown(store: Path) -> None:
    account(store, "add", "mine", "--key", KEY, "--key2", KEY2)
    account(store, "add", "yours", "--key2", KEY2)
    shown = account(store, "list")
    assert KEY not in shown
    assert KEY2 not in shown
    assert PUBLIC_KEY not in shown
    development, mine, yours = shown.splitlines()
    assert development.split() == [DEVELOPMENT, "built-in"]
    assert (mine.split()[0], yours.split()[0]) == ("mine", "yours")
    assert mine.split()[1].startswith("20")
    known = keys(store)
    assert known["mine"] == [KEY, KEY2]
    assert known["yours"][0] != KEY
    assert known["yours"][1] == KEY2


def test_revoke_delegation_keys(store: Path) -> None:
    """For every kind of account: stored, built-in, and in the settings of a server."""
    account(store, "add", "mine")
    for name in ("mine", DEVELOPMENT):
        assert account(store, "revoke-delegation-keys", name) == (
            f"user delegation keys of {name} revoked\n"
        )


def test_revoke_delegation_keys_of_a_configured_account(serving: SqliteHarness) -> None:
    user = UserName("configured", "tenant", "object")

    async def issue() -> bytes:
        engine = SqliteEngine(serving.directory)
        try:
            expiry = time.time_ns() // 100 + 600 * TICKS_PER_SECOND
            command = IssueDelegationKey(user, (), None, expiry, new_secret())
            return (await engine.write(issue_delegation_key, command)).secret
        finally:
            await engine.close()

    first = asyncio.run(issue())
    assert asyncio.run(issue()) == first
    account(serving.directory, "revoke-delegation-keys", "configured")
    assert asyncio.run(issue()) != first


def test_errors_are_one_line(store: Path) -> None:
    account(store, "add", "mine", "--key", KEY, "--key2", KEY2)
    for arguments, words in (
        (("add", "mine"), "account mine already exists"),
        (("add", DEVELOPMENT), f"account {DEVELOPMENT} already exists"),
        (("rotate", "yours"), "account yours does not exist"),
        (("remove", "yours"), "account yours does not exist"),
        (("revoke-delegation-keys", "yours"), "no account yours with user delegation keys"),
        (("rotate", DEVELOPMENT), "is built in"),
        (("remove", DEVELOPMENT), "is built in"),
    ):
        assert words in refused("account", *arguments, "--data", store)
    assert keys(store)["mine"] == [KEY, KEY2]


def test_a_running_server_sees_changes(serving: SqliteHarness) -> None:
    account(serving.directory, "add", "mine", "--key", KEY, "--key2", KEY2)
    found = asyncio.run(stored(serving, "mine"))
    assert found is not None
    assert found.keys == (base64.b64decode(KEY), base64.b64decode(KEY2))


def test_a_server_started_later_sees_changes(data: Path) -> None:
    account(data, "add", "mine", "--key", KEY)
    harness = SqliteHarness(data, Config(durable=False))
    harness.start()
    try:
        assert asyncio.run(stored(harness, "mine")) is not None
        assert keys(data)["mine"][0] == KEY
    finally:
        harness.stop()
    # Its socket is left behind, with no listener.
    assert (data / "writer.sock").exists()
    assert keys(data)["mine"][0] == KEY
    account(data, "remove", "mine")


def test_only_add_creates_a_data_directory(data: Path) -> None:
    for arguments in (("list",), ("rotate", "mine"), ("remove", "mine")):
        assert "there is no directory" in refused("account", *arguments, "--data", data)
        assert not data.exists()
    account(data, "add", "mine")
    assert data.stat().st_mode & 0o777 == 0o700
    assert (data / ledger.DATABASE_NAME).exists()


def test_a_ledger_from_before_there_were_accounts(data: Path) -> None:
    ledger.create(data, Config(durable=False), SystemClock())
    connection = ledger.open_for_writing(data, Config())
    connection.execute("DROP TABLE accounts")
    connection.close()
    assert list(keys(data)) == [DEVELOPMENT]


def test_concurrent_commands_wait_for_each_other(data: Path) -> None:
    names = ["one", "two", "three", "four"]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda name: account(data, "add", name), names))
    assert sorted(keys(data)) == sorted([DEVELOPMENT, *names])


def test_a_directory_in_use_by_another_command(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A repair, for example, has no writer to ask."""
    monkeypatch.setattr(data_directory, "_CLAIM_SECONDS_MAX", 0.5)
    ledger.create(data, Config(durable=False), SystemClock())
    held = data_directory.claim(data)
    try:
        assert main(["account", "list", "--data", str(data)]) == 2
        assert "is in use" in capsys.readouterr().err
    finally:
        os.close(held)


def test_a_command_waits_for_one_that_is_almost_done(data: Path) -> None:
    held = data_directory.claim(data)
    timer = threading.Timer(0.5, os.close, (held,))
    timer.start()
    account(data, "add", "mine")
    timer.join()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "Mine"), "lowercase letters and digits"),
        (("add", "my"), "3 to 24 characters"),
        (("add", "x" * 25), "3 to 24 characters"),
        (("remove", "\udcff\udcfe\udcfd"), "lowercase letters and digits"),
        (("add", "mine", "--key", "not base64"), "--key: the key is not base64"),
        (("add", "mine", "--key2", ""), "--key2: the key must have 1 to 64 bytes, not 0"),
        (("add", "mine", "--key", KEY[:-1]), "--key: the key is not base64"),
        (("rotate", "mine", KEY), "must be 1 or 2"),
        (("rotate", "mine", "3"), "must be 1 or 2"),
        ((), "VERB"),
        (("rotate",), "NAME"),
    ],
)
def test_wrong_usage_is_one_line_and_shows_no_key(
    data: Path, arguments: tuple[str, ...], words: str
) -> None:
    options = ("--data", data) if arguments else ()
    output = refused("account", *arguments, *options)
    assert words in output
    assert KEY[:-1] not in output
    assert not data.exists()


def test_errors_of_other_directories_are_one_line(data: Path) -> None:
    data.mkdir()
    (data / ledger.DATABASE_NAME).write_text("notes" * 10_000, encoding="utf-8")
    for arguments in (("add", "mine"), ("list",), ("remove", "mine")):
        output = refused("account", *arguments, "--data", data)
        assert "is not an Étagère ledger" in output


def test_wrong_settings_are_one_line(data: Path) -> None:
    output = refused("account", "list", variables={"ETAGERE_BLOB_PORT": "many"})
    assert "ETAGERE_BLOB_PORT: 'many'" in output
    output = refused("connection-string", variables={"ETAGERE_ACCOUNTS": f"{KEY}:mine"})
    assert "ETAGERE_ACCOUNTS: account 1" in output
    assert KEY not in output
    assert "cannot be read" in refused("account", "list", "--config", data / "missing.toml")


def test_the_data_directory_of_a_file(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "etagere.toml"
    file.write_text('data = "data"', encoding="utf-8")
    shown = start("account", "add", "mine", "--config", file)
    assert shown.returncode == 0, shown.stderr
    assert "mine" in keys(data)
    by_variable = start("account", "list", variables={"ETAGERE_DATA": str(data)})
    assert "mine" in by_variable.stdout


# Connection strings


def fields(text: str) -> dict[str, str]:
    parts = [part.partition("=") for part in text.strip().rstrip(";").split(";")]
    return {name: value for name, _, value in parts}


def test_connection_string_of_the_development_account(tmp_path: Path) -> None:
    shown = start("connection-string", cwd=tmp_path)
    assert shown.returncode == 0
    assert "UseDevelopmentStorage=true" in shown.stderr
    assert fields(shown.stdout) == {
        "DefaultEndpointsProtocol": "http",
        "AccountName": DEVELOPMENT,
        "AccountKey": PUBLIC_KEY,
        "BlobEndpoint": f"http://127.0.0.1:10000/{DEVELOPMENT}",
        "QueueEndpoint": f"http://127.0.0.1:10001/{DEVELOPMENT}",
        "TableEndpoint": f"http://127.0.0.1:10002/{DEVELOPMENT}",
        "FileEndpoint": f"http://127.0.0.1:10003/{DEVELOPMENT}",
    }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "endpoint"),
    [
        (("--host", "storage.example"), "http://storage.example:10000"),
        (("--host", "0.0.0.0"), "http://127.0.0.1:10000"),
        (("--host", "::"), "http://[::1]:10000"),
        (("--host", "fd00::1"), "http://[fd00::1]:10000"),
        (("--blob-port", "80"), "http://127.0.0.1:80"),
        (("--tls-cert", "c", "--tls-key", "k"), "https://127.0.0.1:10000"),
    ],
)
def test_connection_string_follows_the_settings(arguments: tuple[str, ...], endpoint: str) -> None:
    shown = start("connection-string", *arguments)
    assert fields(shown.stdout)["BlobEndpoint"] == f"{endpoint}/{DEVELOPMENT}"
    assert fields(shown.stdout)["DefaultEndpointsProtocol"] == endpoint.partition(":")[0]
    same = endpoint == "http://127.0.0.1:10000"
    assert ("UseDevelopmentStorage" in shown.stderr) is same


def test_connection_string_of_a_stored_account(store: Path) -> None:
    account(store, "add", "mine", "--key", KEY)
    shown = start("connection-string", "--account", "mine", "--data", store)
    assert shown.stderr == ""
    assert fields(shown.stdout)["AccountKey"] == KEY
    assert fields(shown.stdout)["QueueEndpoint"] == "http://127.0.0.1:10001/mine"
    output = refused("connection-string", "--account", "yours", "--data", store)
    assert "account yours does not exist in" in output


def test_connection_string_of_an_account_of_the_settings(data: Path) -> None:
    variables = {"ETAGERE_ACCOUNTS": f"mine:{KEY};yours:{KEY2}", "ETAGERE_QUEUE_PORT": "81"}
    options = ("--account", "yours", "--data", data)
    shown = start("connection-string", *options, variables=variables)
    assert fields(shown.stdout)["AccountKey"] == KEY2
    assert fields(shown.stdout)["QueueEndpoint"] == "http://127.0.0.1:81/yours"
    output = refused("connection-string", "--account", "theirs", "--data", data)
    assert "account theirs is not in the settings" in output
    assert not data.exists()


def test_connection_string_of_an_account_of_a_file(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "etagere.toml"
    file.write_text(f'accounts = ["mine:{KEY}"]\nblob_port = 82\ndata = "data"', encoding="utf-8")
    account(data, "add", "yours", "--key", KEY2)
    for name, key in (("mine", KEY), ("yours", KEY2)):
        named = start("connection-string", "--account", name, "--config", file)
        by_variable = start(
            "connection-string", "--account", name, variables={"ETAGERE_CONFIG": str(file)}
        )
        assert fields(named.stdout) == fields(by_variable.stdout)
        assert fields(named.stdout)["AccountKey"] == key
        assert fields(named.stdout)["BlobEndpoint"] == f"http://127.0.0.1:82/{name}"


def test_connection_string_without_a_known_port() -> None:
    assert "port of Queue is 0" in refused("connection-string", "--queue-port", "0")


def test_moves_with_wrong_settings(tmp_path: Path) -> None:
    """None of them connects to a database."""

    def written(name: str, **values: str) -> str:
        path = tmp_path / f"{name}.toml"
        path.write_text("".join([f'{key} = "{value}"\n' for key, value in values.items()]))
        return str(path)

    engine = "postgresql://nowhere.invalid/etagere"
    here = written("here", engine=engine, account_map=engine, cell="one")
    there = written("there", engine=engine, account_map=engine, cell="two")
    no_cell = written("no_cell", engine=engine)
    other_map = written("other", engine=engine, account_map=f"{engine}2", cell="two")
    for name, config, target, words, message in (
        (DEVELOPMENT, here, there, (), "devstoreaccount1 is built in and cannot be changed"),
        ("mine", here, there, ("--keep", "-1"), "--keep: must be a number of seconds"),
        ("mine", here, there, ("--keep", "9" * 20), "--keep: must be a number of seconds"),
        ("mine", here, no_cell, (), "--to: account_map and cell must be set"),
        ("mine", no_cell, there, (), "set --account-map and --cell"),
        ("mine", here, other_map, (), "--to: account_map differs from that of this cell"),
        ("mine", here, str(tmp_path / "missing"), (), "missing cannot be read"),
    ):
        assert message in refused(
            "account", "move", name, "--config", config, "--to", target, *words
        )

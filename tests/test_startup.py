"""Starting and stopping `etagere serve`: its startup message, errors and exit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import ledger
from etagere.processes import GRACE_SECONDS
from tests.server import (
    KEY,
    PORTS,
    SECOND_ACCOUNT,
    SECOND_KEYS,
    SERVICES,
    development_port,
    eventually,
)
from tests.test_cli import COMMAND, as_nobody, environment, is_one_line, only_root, start
from tests.tokens import ec_key, key_set

END_SECONDS_MAX = 20.0
DISK_BYTES = 64 * 1024


@dataclass
class Serving:
    """`etagere serve` as the leader of its own process group, as in a terminal."""

    process: subprocess.Popen[str]
    log_path: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text("utf-8")

    def introduction(self) -> dict[str, str]:
        """Returns the startup message, by titles."""
        lines = [line for line in self.log().splitlines() if line.startswith("  ")]
        return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}

    def is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the server did not start:\n{self.log()}")
        return "stop" in self.introduction()

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in listed.read_text("ascii").split()]

    def interrupt(self) -> None:
        """Sends SIGINT to the whole group, as a terminal does on ^C."""
        os.killpg(self.pid, signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Returns the exit status and the output, once it has ended."""
        output, _ = self.process.communicate(timeout=END_SECONDS_MAX)
        assert "did not stop" not in self.log()
        return self.process.returncode, output


def free_ports(*flags: str | Path) -> list[str]:
    """Returns flags with free ports for services without one."""
    names = [f"--{service}-port" for service in PORTS]
    return [word for name in names if name not in flags for word in (name, "0")]


@contextlib.contextmanager
def serving(
    folder: Path, *flags: str | Path, variables: dict[str, str] | None = None
) -> Iterator[Serving]:
    """Starts a server in this directory, with free ports unless given."""
    log_path = folder / "log"
    ports = free_ports(*flags)
    with log_path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*COMMAND, "serve", *ports, *map(str, flags)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(variables),
            cwd=folder,
            start_new_session=True,
        )
    server = Serving(process, log_path)
    try:
        eventually(server.is_ready, "a server that answers")
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def refused(
    folder: Path,
    *flags: str | Path,
    command: list[str] = COMMAND,
    variables: dict[str, str] | None = None,
) -> str:
    """Starts a server that must not start; returns its one line of output."""
    ports = free_ports(*flags)
    shown = start("serve", *ports, *flags, command=command, cwd=folder, variables=variables)
    assert shown.returncode == 2, shown.stderr
    assert is_one_line(shown.stderr), shown.stderr
    assert shown.stdout == ""
    return shown.stderr


# Startup message


def test_introduction(tmp_path: Path) -> None:
    account = f"{SECOND_ACCOUNT}:{SECOND_KEYS[0]}"
    with serving(tmp_path, variables={"ETAGERE_ACCOUNTS": account}) as server:
        result = server.introduction()
        url = result["blob"]
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/devstoreaccount1")
        assert f"AccountKey={KEY};BlobEndpoint={url};" in result["connect"]
        with BlobServiceClient.from_connection_string(result["connect"]) as service:
            assert list(service.list_containers()) == []
        assert result["data"] == str(tmp_path / "etagere-data")
        assert result["stop"] == f"^C, or kill {server.pid}"
        mounting = ["smb", "Linux:", "Windows:", "macOS:"]
        assert list(result) == [*SERVICES, "connect", *mounting, "data", "stop"]
        smb = result["smb"].partition("/SHARE")[0]
        port = smb.removeprefix("smb://127.0.0.1:")
        assert f" //127.0.0.1/SHARE DIR -o port={port}," in result["Linux:"]
        assert rf" \\127.0.0.1\SHARE /user:devstoreaccount1 /TCPPORT:{port}" in result["Windows:"]
        assert f"@127.0.0.1:{port}/SHARE DIR" in result["macOS:"]
        assert SECOND_KEYS[0] not in server.log()
        os.kill(server.pid, signal.SIGTERM)
        endpoints = [
            f"{name}={result[name].removesuffix('/devstoreaccount1')}" for name in SERVICES
        ] + [f"smb={smb}"]
        assert server.end() == (0, f"READY {' '.join(endpoints)}\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_introduction_on_the_default_ports(tmp_path: Path, host: str) -> None:
    with (
        development_port() as port,
        serving(
            tmp_path,
            *(
                word
                for number, name in enumerate(SERVICES)
                for word in (f"--{name}-port", str(port + number))
            ),
            "--host",
            host,
        ) as server,
    ):
        introduction = server.introduction()
        assert introduction["connect"] == "UseDevelopmentStorage=true"
        assert introduction["for"] == "File: run `etagere connection-string`"


def test_introduction_of_a_server_in_memory(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with serving(tmp_path, "--memory", variables={"TMPDIR": str(temporary)}) as server:
        assert "temporary" in server.introduction()["data"]
        assert len(list(temporary.iterdir())) == 1
        server.interrupt()
        assert server.end()[0] == 0
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "etagere-data").exists()


def test_introduction_with_tls(tmp_path: Path, certificates: Path) -> None:
    pair = ("--tls-cert", certificates / "one.crt", "--tls-key", certificates / "one.key")
    with serving(tmp_path, *pair, "--host", "localhost") as server:
        result = server.introduction()
        assert result["blob"].startswith("https://localhost:")
        assert result["connect"].startswith("DefaultEndpointsProtocol=https;")


def test_accepting_unsigned_tokens_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path, "--oauth", "development") as server:
        (line,) = (line for line in server.log().splitlines() if "oauth = " in line)
        assert "every program on this machine can use every account" in line


def test_server_without_smb(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-smb") as server:
        assert server.introduction()["smb"] == "off"
        os.kill(server.pid, signal.SIGTERM)
        status, output = server.end()
        assert status == 0
        assert "smb=" not in output


# Errors


def test_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        output = refused(tmp_path, "--blob-port", port)
    assert f"cannot listen on port {port} of 127.0.0.1: Address already in use" in output
    assert "--blob-port" in output
    assert not (tmp_path / "etagere-data").exists()


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "no-such-host.invalid", "ä" * 70, "::g"], ids=range(4)
)
def test_addresses_of_other_machines(tmp_path: Path, host: str) -> None:
    output = refused(tmp_path, "--host", host)
    assert f"cannot listen on host {host!r}: " in output
    assert "--host" in output


def test_directory_in_use(tmp_path: Path) -> None:
    with serving(tmp_path):
        assert "etagere-data is in use by another etagere process" in refused(tmp_path)


def a_file(data: Path) -> None:
    data.write_text("no directory", encoding="utf-8")


def other_ledger(data: Path) -> None:
    data.mkdir()
    ledger.database_path(data).write_text("notes" * 10_000, encoding="utf-8")


def directory_for_a_ledger(data: Path) -> None:
    ledger.database_path(data).mkdir(parents=True)


def newer_schema(data: Path) -> None:
    ledger.create(data, Config(durable=False), SystemClock())
    connection = ledger.open_for_writing(data, Config())
    connection.execute("PRAGMA user_version = 77")
    connection.close()


def damaged(data: Path) -> None:
    ledger.create(data, Config(durable=False), SystemClock())
    with ledger.database_path(data).open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3_000)


def directory_for_a_lock(data: Path) -> None:
    (data / "lock").mkdir(parents=True)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (a_file, "etagere-data is not a directory"),
        (other_ledger, "etagere-data/ledger.sqlite3 is not an Étagère ledger"),
        (directory_for_a_ledger, "etagere-data/ledger.sqlite3 cannot be used: Is a directory"),
        (newer_schema, "etagere-data/ledger.sqlite3 has schema 77"),
        (damaged, "the ledger in etagere-data cannot be used: "),
        (directory_for_a_lock, "etagere-data/lock cannot be used: Is a directory"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_directories_that_cannot_be_used(tmp_path: Path, prepare: object, words: str) -> None:
    assert callable(prepare)
    prepare(tmp_path / "etagere-data")
    assert words in refused(tmp_path)


def test_directory_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file is not a directory" in refused(tmp_path, "--data", "file/data")


@only_root
def test_directory_of_another_user(tmp_path: Path) -> None:
    command = as_nobody("import tests")
    output = refused(tmp_path, "--data", tmp_path / "data", command=command)
    assert output.endswith(" cannot be used: Permission denied\n")
    assert str(tmp_path) in output


def test_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system can be made here: {mounted.stderr.strip()}")
    try:
        output = refused(tmp_path, "--data", disk / "data")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert f"the ledger in {disk / 'data'} cannot be used: database or disk is full" in output


# Invalid settings


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\nhost = \n", "etagere.toml is not TOML: Invalid value (at line 2, column 8)"),
        (b"host = '\xff'", "etagere.toml is not TOML: it is not UTF-8"),
        (b"bolb_port = 1", "'bolb_port' is not a setting; did you mean blob_port?"),
        (b"workers = '1'", "workers: '1' is not an integer from 0 to 256"),
        (b"workers = 257", "workers: 257 is not an integer from 0 to 256"),
        (b"data = 1", "data: must be a string"),
        (b"tls_cert = 'c'", "tls_cert: tls_key must be set too"),
    ],
)
def test_invalid_settings_files(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "etagere.toml").write_bytes(content)
    output = refused(tmp_path, "--config", "etagere.toml")
    assert output.startswith("etagere: etagere.toml")
    assert words in output


def test_unreadable_settings_files(tmp_path: Path) -> None:
    output = refused(tmp_path, variables={"ETAGERE_CONFIG": "missing.toml"})
    assert "missing.toml cannot be read: No such file or directory" in output
    assert "cannot be read: Is a directory" in refused(tmp_path, "--config", tmp_path)


@only_root
def test_settings_file_of_another_user(tmp_path: Path) -> None:
    file = tmp_path / "etagere.toml"
    file.touch(mode=0o600)
    output = refused(tmp_path, "--config", file, command=as_nobody("import tests"))
    assert f"{file} cannot be read: Permission denied" in output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--blob-port", "65536"), "--blob-port: 65536 is not an integer from 0 to 65535"),
        (("--smb-port", "many"), "--smb-port: 'many' is not an integer from 0 to 65535"),
        (("--workers", "257"), "--workers: 257 is not an integer from 0 to 256"),
        (("--account", f"Mine:{KEY}"), "--account: account 1: its name must be 3 to 24 lowercase"),
        (("--account", f"mine:{KEY[:-1]}"), "--account: account 1: its key 1 is not base64"),
        (("--account", f"mine:{KEY}") * 2, "--account: account 2: its name is already in use"),
        (("--tls-cert", "c"), "--tls-cert: tls_key must be set too"),
        (("--tls-key", "k"), "--tls-key: tls_cert must be set too"),
    ],
)
def test_flags(tmp_path: Path, flags: tuple[str, ...], words: str) -> None:
    output = refused(tmp_path, *flags)
    assert words in output
    assert KEY[:-1] not in output


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pairs, a key with a password, and other files."""
    folder = tmp_path_factory.mktemp("certificates")
    os.mkfifo(folder / "pipe")
    (folder / "large").write_bytes(bytes(2 << 20))
    (folder / "other").write_text("neither\n", encoding="utf-8")
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    locked = "openssl ec -aes128 -passout pass:word -in one.key -out locked.key"
    for command in (
        f"{request} -subj /CN=one -keyout one.key -out one.crt",
        f"{request} -subj /CN=two -keyout two.key -out two.crt",
        locked,
    ):
        try:
            subprocess.run(command.split(), cwd=folder, capture_output=True, check=True)
        except FileNotFoundError:
            pytest.skip("there is no openssl to make a certificate with")
    return folder


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("missing", "one.key", "missing cannot be read: No such file or directory"),
        ("one.crt", "missing", "missing cannot be read: No such file or directory"),
        (".", "one.key", " cannot be read: Is a directory"),
        ("pipe", "one.key", "pipe cannot be read: it is not a regular file"),
        ("one.crt", "pipe", "pipe cannot be read: it is not a regular file"),
        ("/dev/zero", "one.key", "/dev/zero cannot be read: it is not a regular file"),
        ("large", "one.key", "large cannot be read: it has more than 1048576 bytes"),
        ("other", "one.key", "other has no PEM certificate"),
        ("one.key", "one.key", "one.key has no PEM certificate"),
        ("one.crt", "other", "other has no PEM private key without a password"),
        ("one.crt", "one.crt", "one.crt has no PEM private key without a password"),
        ("one.crt", "locked.key", "locked.key has no PEM private key without a password"),
        ("one.crt", "two.key", "two.key does not match "),
    ],
)
def test_certificates(
    tmp_path: Path, certificates: Path, certificate: str, key: str, words: str
) -> None:
    pair = ("--tls-cert", certificates / certificate, "--tls-key", certificates / key)
    assert words in refused(tmp_path, *pair)
    assert not (tmp_path / "etagere-data").exists()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("missing", "missing cannot be read: No such file or directory"),
        (".", " cannot be read: Is a directory"),
        ("one.key", "one.key is not a JSON Web Key Set"),
    ],
)
def test_keys_of_token_issuers(tmp_path: Path, certificates: Path, keys: str, words: str) -> None:
    pair = ("--tls-cert", certificates / "one.crt", "--tls-key", certificates / "one.key")
    tokens = ("--oauth", "on", "--oauth-issuer", "someone", "--oauth-keys", certificates / keys)
    assert words in refused(tmp_path, *pair, *tokens)
    assert not (tmp_path / "etagere-data").exists()


def test_accepting_tokens_without_tls_is_reported(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(ec_key("one")))
    tokens = ("--oauth", "on", "--oauth-issuer", "someone", "--oauth-keys", keys)
    with serving(tmp_path, *tokens) as server:
        (line,) = (line for line in server.log().splitlines() if "oauth = " in line)
        assert "has no effect without TLS" in line


# Processes

WRITER_AND_FILE_FRONT_END = 2


def test_one_front_end_per_core_up_to_four(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        front_ends = min(4, len(os.sched_getaffinity(0)))
        assert len(server.children()) == WRITER_AND_FILE_FRONT_END + front_ends


def test_one_core_has_one_front_end(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with serving(tmp_path) as server:
            assert len(server.children()) == WRITER_AND_FILE_FRONT_END + 1
    finally:
        os.sched_setaffinity(0, cores)


def test_without_standard_error(tmp_path: Path) -> None:
    """What is opened later must not be taken for it."""
    closed = subprocess.Popen(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, "serve", *free_ports()],
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert closed.stdout is not None
        assert closed.stdout.readline().startswith("READY ")
        assert Path(f"/proc/{closed.pid}/fd/2").readlink() == Path(os.devnull)
    finally:
        closed.terminate()
        closed.communicate(timeout=END_SECONDS_MAX)


# Exit


@pytest.mark.parametrize("how", ["SIGTERM", "^C"])
def test_it_ends_on_signals(tmp_path: Path, how: str) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        children = server.children()
        assert len(children) == WRITER_AND_FILE_FRONT_END + 2
        if how == "^C":
            server.interrupt()
        else:
            os.kill(server.pid, signal.SIGTERM)
        assert server.end()[0] == 0
        assert not any(map(lives, children))
        assert "Traceback" not in server.log()
        assert "exited" not in server.log()


def test_its_processes_do_not_outlive_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        children = server.children()
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not any(map(lives, children)), "the end of the server's processes")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Restores the default action of SIGINT, which background jobs of a shell ignore."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_interrupted_before_it_has_started(tmp_path: Path) -> None:
    """It waits for the directory of a server that is stopping."""
    with serving(tmp_path), interruptible():
        waiting = subprocess.Popen(
            [*COMMAND, "serve", *free_ports()],
            env=environment(),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        lock = tmp_path / "etagere-data" / "lock"
        eventually(lambda: lock in opened(waiting.pid), "a server that waits for the directory")
        waiting.send_signal(signal.SIGINT)
        _, output = waiting.communicate(timeout=END_SECONDS_MAX)
        assert (waiting.returncode, output) == (130, "")


def test_a_temporary_store_is_removed_if_the_start_is_interrupted(tmp_path: Path) -> None:
    waiting = subprocess.Popen(
        [*COMMAND, "serve", "--memory", *free_ports()],
        env=environment({"TMPDIR": str(tmp_path)}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: any(tmp_path.iterdir()), "a temporary store")
    waiting.terminate()
    _, output = waiting.communicate(timeout=END_SECONDS_MAX)
    assert waiting.returncode == 0, output
    assert "did not stop" not in output
    assert not list(tmp_path.iterdir())


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--memory", variables={"TMPDIR": str(tmp_path)}) as server:
        children = server.children()
        # Keeps it from ending at the first signal.
        os.kill(children[-1], signal.SIGSTOP)
        server.interrupt()
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(1)
        server.interrupt()
        server.process.wait(GRACE_SECONDS - 2)  # the first signal has begun the grace period
        assert not any(map(lives, children))
    assert list(tmp_path.glob("etagere-*")) == []


@pytest.mark.parametrize(
    ("name", "child"), [("writer.lock", "writer"), ("segments", r"(file front end|front end \d)")]
)
def test_a_child_that_cannot_start_ends_the_server(tmp_path: Path, name: str, child: str) -> None:
    data = tmp_path / "etagere-data"
    ledger.create(data, Config(durable=False), SystemClock())
    if name == "segments":
        (data / name).touch()
    else:
        (data / name).mkdir()
    shown = start("serve", *free_ports(), cwd=tmp_path)
    assert shown.returncode == 78
    assert re.search(rf"{child} cannot run \(pid \d+\): exit status 1\n", shown.stderr)
    assert name in shown.stderr, "says why"


def opened(pid: int) -> list[Path]:
    """Returns the files that a process has open."""
    files = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        # It may be closed while this reads.
        with contextlib.suppress(FileNotFoundError):
            files.append(descriptor.resolve())
    return files


def lives(pid: int) -> bool:
    try:
        result = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return result.rpartition(")")[2].split()[0] != "Z"

"""An S3 server, SeaweedFS, for tests; on loopback ports unless other hosts use it."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.clusters.guard import add_file_elsewhere, start_daemon
from tests.clusters.hosts import LOOPBACK
from tests.clusters.ports import free_ports
from tests.clusters.sharing import Engine, private_engine, shared_engine
from tests.server import eventually

START_SECONDS_MAX: Final = 60.0
_START_ATTEMPTS: Final = 3
BUCKET: Final = "etagere"
REGION: Final = "us-east-1"
_ACCESS_KEY: Final = "etagere"
_SERVERS: Final = ("master", "volume", "filer", "s3")
_OPTIONS: Final = {
    "filer": "true",
    "s3": "true",
    # Ports of other protocols.
    "s3.port.iceberg": "0",
    "s3.port.lance": "0",
    "s3.iam": "false",
    "s3.autoCreateBucket": "true",
    "master.telemetry": "false",
    # A lone master waits for this long before it becomes the leader.
    "master.electionTimeout": "1s",
    "master.volumeSizeLimitMB": "1024",
    "volume.max": "64",
    "volume.minFreeSpace": "1",
    "volume.preStopSeconds": "0",
}
_MEMORY_BYTES_SOFT_MAX: Final = 256 << 20
_FSYNC: Final = {"locations": [{"locationPrefix": "/buckets/", "fsync": True}]}


class _Ended(RuntimeError):
    """The server ended while it was starting."""


class _Access(msgspec.Struct, frozen=True):
    """What clients need to know about a server that another process has started."""

    ports: dict[str, int]
    secret_key: str


class S3Server(Engine[_Access]):
    """A SeaweedFS server whose files are in one directory, with one bucket."""

    is_durable = True

    def __init__(self, directory: Path, log_path: Path, address: str = LOOPBACK) -> None:
        super().__init__(directory, log_path, _Access({}, ""))
        self._address = address

    @property
    def endpoint(self) -> str:
        return f"http://{self._address}:{self._access.ports['s3']}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables from which clients of AWS take the endpoint and the key."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self._access.secret_key,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def store(self, prefix: str | None = None) -> S3Store:
        """Returns a client for the bucket."""
        return S3Store(
            BUCKET,
            prefix=prefix,
            endpoint=self.endpoint,
            access_key_id=_ACCESS_KEY,
            secret_access_key=self._access.secret_key,
            region=REGION,
            client_options={"allow_http": True, "timeout": "10s"},
            retry_config={"max_retries": 0},
        )

    def create(self) -> None:
        """Creates the files of the server, starts it, and creates the bucket."""
        for attempt in range(_START_ATTEMPTS):
            if attempt:
                # It notes its addresses in its files.
                shutil.rmtree(self.directory / "data")
            self._configure()
            try:
                self.start()
                break
            except _Ended:
                # Another process may have taken one of the ports in the meantime.
                if attempt == _START_ATTEMPTS - 1:
                    raise
        if self.is_durable:
            self._sync_objects()

    def _configure(self) -> None:
        """Creates the files of the server, with free ports."""
        ports = free_ports(2 * len(_SERVERS))
        names = [*_SERVERS, *(f"{name}.grpc" for name in _SERVERS)]
        self._access = _Access(dict(zip(names, ports, strict=True)), secrets.token_hex(20))
        (self.directory / "data").mkdir()
        key = {"accessKey": _ACCESS_KEY, "secretKey": self._access.secret_key}
        identity = {"name": _ACCESS_KEY, "credentials": [key], "actions": ["Admin"]}
        configuration = self.directory / "s3.json"
        configuration.touch(0o600)
        configuration.write_text(json.dumps({"identities": [identity]}), "utf-8")
        for name in _SERVERS:
            socket = f"/tmp/seaweedfs-{name}-grpc-{self._access.ports[f'{name}.grpc']}.sock"
            add_file_elsewhere(self.directory, Path(socket))

    def start(self) -> None:
        """Starts the server on its data, and waits until it stores and returns objects."""
        options = {
            **_OPTIONS,
            "ip": self._address,
            "ip.bind": self._address,
            "dir": str(self.directory / "data"),
            "s3.config": str(self.directory / "s3.json"),
            "filer.localSocket": str(self.directory / "filer.sock"),
            "s3.localSocket": str(self.directory / "s3.sock"),
        }
        for name in _SERVERS:
            options[f"{name}.port"] = str(self._access.ports[name])
            options[f"{name}.port.grpc"] = str(self._access.ports[f"{name}.grpc"])
        program = Path(sys.executable).with_name("weed")
        self._process = start_daemon(
            [str(program), "server", *(f"-{name}={value}" for name, value in options.items())],
            self.directory,
            self.log_path,
            may_be_root=True,
            variables={"GOMEMLIMIT": str(_MEMORY_BYTES_SOFT_MAX)},
        )
        eventually(self._answers, "the S3 server to start", START_SECONDS_MAX)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise _Ended(f"the S3 server did not start:\n{self.log()}")
        try:
            obstore.put(self.store(), "started", b"yes")
        except BaseError:
            return False
        return True

    def _sync_objects(self) -> None:
        """Makes the server call fsync before it acknowledges an object."""
        url = f"http://{self._address}:{self._access.ports['filer']}/etc/seaweedfs/filer.conf"
        request = urllib.request.Request(url, json.dumps(_FSYNC).encode(), method="PUT")
        with urllib.request.urlopen(request, timeout=START_SECONDS_MAX):
            pass

    def kill(self) -> None:
        """Kills the server."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(START_SECONDS_MAX)
        self._process = None

    def pause(self) -> None:
        """Stops the server, like a machine that hangs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class SharedS3Server(S3Server):
    """A server that no test kills, so it need not wait for the disk."""

    is_durable = False


def s3_server(directory: Path, address: str = LOOPBACK) -> AbstractContextManager[S3Server]:
    """Runs an S3 server for one test; its log is in `directory`."""
    return private_engine(partial(S3Server, address=address), "s3", directory)


def shared_s3_server(run: str) -> S3Server:
    """Returns the server that all processes of a test run share."""
    return shared_engine(SharedS3Server, "s3", run)

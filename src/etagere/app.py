"""The composition root: the only module that knows how the parts are put together."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import ssl
import tempfile
import time
from pathlib import Path

from etagere import directories
from etagere.clock import Clock, SystemClock
from etagere.config import Config
from etagere.engine import ledger, reserve
from etagere.engine.writer import listen, writer_main
from etagere.front import FrontEnd, Once
from etagere.processes import ChildMain, Supervisor
from etagere.settings import Settings

LOCK_NAME = "lock"
# Children of a server that was killed let go of the directory a moment after it.
_CLAIM_SECONDS_MAX = 5.0
_BACKLOG = 1024


class DirectoryInUse(Exception):
    """Another process works on this data directory."""


class CannotListen(Exception):
    """A port cannot be had."""


def claim(directory: Path) -> int:
    """Makes the data directory ours alone, for as long as the returned descriptor is open here
    or in a child."""
    directories.make(directory)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _CLAIM_SECONDS_MAX
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise DirectoryInUse(f"{directory} is in use by another etagere process") from None
            time.sleep(0.02)


def engine_children(
    directory: Path, config: Config, clock: Clock | None = None
) -> dict[str, ChildMain]:
    """Prepares the ledger of a claimed directory; returns the processes that serve it."""
    clock = clock or SystemClock()
    reserve.give_way(directory)
    ledger.create(directory, config, clock)
    return {"writer": writer_main(directory, listen(directory), config, clock)}


def serve_engine(directory: Path, config: Config, clock: Clock | None = None) -> int:
    """Runs the engine's processes until told to stop; returns an exit status."""
    held = claim(directory)
    try:
        return Supervisor(engine_children(directory, config, clock)).run()
    finally:
        os.close(held)


def serve(settings: Settings) -> int:
    """Runs a whole server until told to stop; returns an exit status."""
    if not settings.memory:
        return _serve_in(settings.data, settings, Config())
    directory = Path(tempfile.mkdtemp(prefix="etagere-"))
    try:
        return _serve_in(directory, settings, Config(durable=False))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _serve_in(directory: Path, settings: Settings, config: Config) -> int:
    blob_socket = _bind(settings.host, settings.blob_port)
    tls = _tls(settings)
    held = claim(directory)
    try:
        children = engine_children(directory, config)
        endpoint = _endpoint(blob_socket, tls)
        announce = Once(lambda: print(f"READY blob={endpoint}", flush=True))
        front = FrontEnd(directory, config, settings, blob_socket, tls, announce)
        for number in range(1, settings.workers + 1):
            children[f"front end {number}"] = front.main()
        return Supervisor(children).run()
    finally:
        os.close(held)
        blob_socket.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(f"port {port} on {host} cannot be had: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def _endpoint(listener: socket.socket, tls: ssl.SSLContext | None) -> str:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'http' if tls is None else 'https'}://{shown}:{port}"


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_cert, settings.tls_key)
    return context

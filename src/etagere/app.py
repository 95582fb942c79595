"""The composition root: the only module that knows how the parts are put together."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import apsw

from etagere import directories
from etagere.bodies import collector, files, presence
from etagere.clock import Clock, SystemClock
from etagere.config import MIB, Config
from etagere.engine import groups, ledger, reserve
from etagere.engine.writer import SOCKET_NAME, listen, writer_main
from etagere.front import FrontEnd, Last
from etagere.jobs import purging
from etagere.processes import ChildMain, Supervisor
from etagere.settings import WORKERS_BY_ITSELF_MAX, Settings

logger = logging.getLogger(__name__)

LOCK_NAME = "lock"
# Children of a server that was killed let go of the directory a moment after it.
_CLAIM_SECONDS_MAX = 5.0
_BACKLOG = 1024
_OWN_NAMES = (
    LOCK_NAME,
    groups.LOCK_NAME,
    collector.LOCK_NAME,
    purging.LOCK_NAME,
    SOCKET_NAME,
    reserve.RESERVE_NAME,
    *(f"{ledger.DATABASE_NAME}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
    files.DIRECTORY_NAME,
    presence.DIRECTORY_NAME,
)
"""What a data directory holds."""
_PAGE_CACHE_BYTES_MIN = 16 * MIB

Announce = Callable[[Mapping[str, int]], None]
"""Told once, when all front ends answer requests: the ports, by the names of the services."""


class CannotUse(Exception):
    """What a server needs cannot be had; says why, in one line."""


class DirectoryInUse(CannotUse):
    """Another process works on this data directory."""


@contextmanager
def _using(directory: Path) -> Iterator[None]:
    try:
        yield
    except (ledger.NotALedger, ledger.SchemaTooNew) as error:
        raise CannotUse(str(error)) from error
    except apsw.Error as error:
        raise CannotUse(f"the ledger in {directory} cannot be used: {error}") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise CannotUse(f"{error.filename} is not a directory") from error
    except OSError as error:
        path = error.filename or directory
        raise CannotUse(f"{path} cannot be used: {error.strerror}") from error


def claim(directory: Path) -> int:
    """Makes the data directory ours alone, for as long as the returned descriptor is open here
    or in a child."""
    with _using(directory):
        directories.make(directory)
        descriptor = directories.open_private(directory / LOCK_NAME)
    deadline = time.monotonic() + _CLAIM_SECONDS_MAX
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise DirectoryInUse(f"{directory} is in use by another etagere process") from None
            time.sleep(0.02)
    # Older versions, or copies, may have left files that everybody can read.
    for name in _OWN_NAMES:
        directories.make_private(directory / name)
    return descriptor


def _warn_of_others(directory: Path) -> None:
    """The directory itself may be shared on purpose: whoever runs the server decides."""
    if not directories.is_private(directory):
        logger.warning(
            "other users of this machine can look into %s; `chmod 700` keeps them out", directory
        )


@contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    descriptor = claim(directory)
    try:
        yield
    finally:
        os.close(descriptor)


def engine_children(
    directory: Path, config: Config, clock: Clock | None = None
) -> dict[str, ChildMain]:
    """Prepares the ledger of a claimed directory; returns the processes that serve it."""
    clock = clock or SystemClock()
    with _using(directory):
        reserve.give_way(directory)
        ledger.create(directory, config, clock)
        return {"writer": writer_main(directory, listen(directory), config, clock)}


def serve_engine(directory: Path, config: Config, clock: Clock | None = None) -> int:
    """Runs the engine's processes until told to stop; returns an exit status."""
    with _claimed(directory):
        return Supervisor(engine_children(directory, config, clock)).run()


def serve(settings: Settings, announce: Announce) -> int:
    """Runs a whole server until told to stop; returns an exit status."""
    if not settings.memory:
        return _serve_in(settings.data, settings, Config(), announce)
    directory = Path(tempfile.mkdtemp(prefix="etagere-"))
    try:
        return _serve_in(directory, settings, Config(durable=False), announce)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _serve_in(directory: Path, settings: Settings, config: Config, announce: Announce) -> int:
    tls = _tls(settings)
    asked = {
        "blob": settings.blob_port,
        "queue": settings.queue_port,
        "table": settings.table_port,
    }
    with ExitStack() as held:
        sockets = {
            service: held.enter_context(_bind(settings.host, port, f"--{service}-port"))
            for service, port in asked.items()
        }
        held.enter_context(_claimed(directory))
        children = engine_children(directory, config)
        _warn_of_others(directory)
        ports = {service: listener.getsockname()[1] for service, listener in sockets.items()}
        workers = settings.workers or _workers_for_cores()
        announce_all = Last(workers, lambda: announce(ports))
        front_config = _for_one_of(workers, config)
        front = FrontEnd(directory, front_config, settings, sockets, tls, announce_all)
        for number in range(1, workers + 1):
            children[f"front end {number}"] = front.main()
        return Supervisor(children).run()


def _workers_for_cores() -> int:
    """More than a few would wait for the one writer, and take memory."""
    return min(len(os.sched_getaffinity(0)), WORKERS_BY_ITSELF_MAX)


def _for_one_of(workers: int, config: Config) -> Config:
    """Pages that one front end has not at hand, the kernel has: they share what one would have."""
    cache_bytes = max(_PAGE_CACHE_BYTES_MIN, config.page_cache_bytes // workers)
    return replace(config, page_cache_bytes=cache_bytes)


def _bind(host: str, port: int, port_flag: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, TypeError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = f"port {port} on {host} cannot be had: {error.strerror}"
            raise CannotUse(f"{why}; {port_flag} takes another") from error
        # A name that cannot even be looked up is a TypeError.
        why = getattr(error, "strerror", "it is no address")
        raise CannotUse(f"host {host!r} cannot be had: {why}; --host takes another") from error
    listener.setblocking(False)
    return listener


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        _require_certificates(settings.tls_cert)
        _require_readable(settings.tls_key)
        # Without a password the library would ask the terminal for one.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the private key in {settings.tls_key} is not that of {settings.tls_cert}"
        else:
            why = f"{settings.tls_key} has no private key in PEM without a password"
        raise CannotUse(why) from error
    except OSError as error:
        raise CannotUse(f"{error.filename} cannot be read: {error.strerror}") from error
    return context


def _require_certificates(path: Path) -> None:
    """A chain and its key that are loaded together do not tell which of them is wrong."""
    _require_readable(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError as error:
        raise CannotUse(f"{path} has no certificate in PEM") from error


def _require_readable(path: Path) -> None:
    """The library's errors do not name the file."""
    with path.open("rb"):
        pass

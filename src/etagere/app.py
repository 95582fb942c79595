"""Running a server: the ports, the certificate, and the processes.

`front` puts the parts of a front end together.
"""

from __future__ import annotations

import errno
import logging
import math
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from etagere import descriptors
from etagere.admin.child import (
    ADMIN_NAME,
    AdminAccess,
    BadAdminToken,
    admin_access,
    admin_main,
)
from etagere.clock import TICKS_PER_SECOND, Clock, SystemClock
from etagere.config import Config
from etagere.data_directory import (
    CannotUse,
    claimed,
    errors_in_one_line,
    warn_if_accessible_to_others,
)
from etagere.engine import ledger, reserve, timeline
from etagere.engine.timeline import Timeline
from etagere.engine.writer import listen, writer_main
from etagere.front import blob_queue_table
from etagere.front import file as file_front
from etagere.front.process import Assemble, FrontEnd, ReadyBarrier
from etagere.front.sizing import config_of_front_end, workers_for_cores
from etagere.gc_tuning import freeze_before_fork
from etagere.jobs.health import (
    SUPERVISOR_NAME,
    WRITER_NAME,
    open_health_socket,
)
from etagere.processes import ChildMain, Supervisor
from etagere.protocol.connections.sharing import FrontEndTable
from etagere.settings import Settings
from etagere.tls.contexts import BadCertificate, ServerTls
from etagere.tls.reloading import reload_in_supervisor, warn_if_expiring

if TYPE_CHECKING:
    from etagere.protocol.rest.user_authentication import UserAuthenticator

logger = logging.getLogger(__name__)

_BACKLOG = 1024

Announce = Callable[[Mapping[str, int], Path | None], None]
"""Called once, when all front ends answer requests, with the ports by the names of the services,
and the certificate of the CA, if the server created one."""


class ClockBehind(CannotUse):
    """The wall clock is implausibly far behind the times in the store."""


def engine_children(
    directory: Path,
    config: Config,
    clock: Clock | None = None,
    *,
    accept_clock: bool = False,
) -> dict[str, ChildMain]:
    """Prepares the ledger of a locked directory; returns the processes that serve it."""
    clock = clock or SystemClock()
    with errors_in_one_line(directory):
        reserve.release_if_full(directory)
        stored = ledger.create(directory, config, clock)
        _check_clock(directory, stored, clock, accept_clock)
        health_socket = partial(open_health_socket, directory, WRITER_NAME)
        return {
            WRITER_NAME: writer_main(directory, listen(directory), config, clock, health_socket)
        }


def _check_clock(directory: Path, stored: Timeline, clock: Clock, accept_clock: bool) -> None:
    """Refuses to start if the stored times are implausibly far ahead of the wall clock: either the
    clock is wrong now, or it was when the store was last used. Only the operator knows which, and
    continuing would make changes with dates in the future."""
    ahead = timeline.ticks_ahead(stored, clock)
    if ahead <= timeline.AHEAD_TICKS_MAX:
        return
    days = ahead / (24 * 3600 * TICKS_PER_SECOND)
    text = f"the times in {directory} are {days:.1f} days ahead of this machine's clock"
    if not accept_clock:
        raise ClockBehind(
            f"{text}. If the clock is wrong, set it. If it was wrong before, correct the times "
            "with `etagere clock --reset`. To start anyway, use --accept-clock."
        )
    logger.warning("%s; starting anyway", text)


def serve_engine(directory: Path, config: Config, clock: Clock | None = None) -> int:
    """Runs the engine's processes until stopped; returns an exit status."""
    with claimed(directory):
        return _supervise(directory, engine_children(directory, config, clock))


class StartOptions(NamedTuple):
    """Options that apply to a single start, and so are not settings."""

    accept_clock: bool = False
    """Start even if the times in the store are implausible."""
    stop_at_eof: bool = False
    """Stop when standard input ends."""


def serve(settings: Settings, announce: Announce, options: StartOptions) -> int:
    """Runs a server until stopped; returns an exit status."""
    config = Config(slow_seconds=settings.log_slow_milliseconds / 1_000 or math.inf)
    try:
        if not settings.memory:
            return _serve_in(settings.data, settings, config, announce, options)
        with _temporary_directory() as directory:
            config = replace(config, durable=False)
            return _serve_in(directory, settings, config, announce, options)
    except BadCertificate as error:
        raise CannotUse(str(error)) from error


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """A directory that is removed at the end, which may be a signal before the supervisor runs."""

    def end(_signal: int, _frame: object) -> NoReturn:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    directory = Path(tempfile.mkdtemp(prefix="etagere-"))
    try:
        yield directory
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        shutil.rmtree(directory, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def _serve_in(
    directory: Path, settings: Settings, config: Config, announce: Announce, options: StartOptions
) -> int:
    tls: ServerTls | None = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = ServerTls(settings.tls_cert, settings.tls_key)
    users = _users(settings)
    access = _admin_access(settings)
    descriptors_max = descriptors.raise_limit()
    with ExitStack() as held:
        # A stopping server in this directory keeps its ports until it ends, so the directory is
        # locked first. A directory that does not exist is created after the ports were bound.
        with errors_in_one_line(directory):
            claims_first = directory.exists()
        if claims_first:
            held.enter_context(claimed(directory))
        sockets = _bind_services(settings, held)
        admin = _bind_admin(settings, held)
        if not claims_first:
            held.enter_context(claimed(directory))
        if settings.tls == "self-signed":
            # Not at the top: no other server needs this import, which takes a while.
            from etagere.tls.self_signed import SelfSignedTls  # noqa: PLC0415

            tls = SelfSignedTls(directory, settings.host)
        children = engine_children(directory, config, accept_clock=options.accept_clock)
        warn_if_accessible_to_others(directory)
        ports = {service: listener.getsockname()[1] for service, listener in sockets.items()}
        authority = None if tls is None else tls.authority
        warn_if_expiring(tls)
        workers = settings.workers or workers_for_cores()
        front_ends = workers + 1  # one for files
        announced = ports if admin is None else {**ports, "admin": admin.getsockname()[1]}
        # Not with the admin process, without which all others work. Its port is open already.
        announce_all = ReadyBarrier(front_ends, lambda: announce(announced, authority))
        front_config = config_of_front_end(config, front_ends, descriptors_max)
        front_end_table = FrontEndTable(front_ends, len(sockets))

        def front_end(assemble: Assemble, services: Sequence[str], numbers: range) -> FrontEnd:
            return FrontEnd(
                assemble,
                directory,
                front_config,
                settings,
                sockets={service: sockets[service] for service in services if service in sockets},
                ports={service: port for service, port in ports.items() if service != "smb"},
                tls=tls,
                announce=announce_all,
                table=front_end_table,
                numbers=numbers,
                users=users,
            )

        others = front_end(blob_queue_table.assemble, blob_queue_table.SERVICES, range(workers))
        for number in others.numbers:
            name = f"front end {number + 1}"
            children[name] = others.main(name, number)
        files = front_end(file_front.assemble, file_front.SERVICES, range(workers, front_ends))
        children["file front end"] = files.main("file front end", workers)
        if admin is not None and access is not None:
            children[ADMIN_NAME] = admin_main(
                directory,
                front_config,
                admin,
                access,
                tuple(children),
                None if access.is_local else tls,
            )
        return _supervise(
            directory,
            children,
            lambda: reload_in_supervisor(tls),
            stop_at_eof=options.stop_at_eof,
        )


def _supervise(
    directory: Path,
    children: Mapping[str, ChildMain],
    reload: Callable[[], bool] = lambda: False,
    *,
    stop_at_eof: bool = False,
) -> int:
    freeze_before_fork()
    status_socket = open_health_socket(directory, SUPERVISOR_NAME)
    try:
        watched = sys.stdin.fileno() if stop_at_eof else None
        return Supervisor(
            children,
            status_socket=status_socket,
            reload=reload,
            stop_at_eof=watched,
            dispensable=(ADMIN_NAME,),
        ).run()
    finally:
        if status_socket is not None:
            status_socket.close()


def _admin_access(settings: Settings) -> AdminAccess | None:
    """Returns who may use the admin port; None if there is none."""
    if settings.admin_port is None:
        return None
    try:
        return admin_access(settings)
    except BadAdminToken as error:
        raise CannotUse(str(error)) from error


def _bind_services(settings: Settings, held: ExitStack) -> dict[str, socket.socket]:
    """Returns the listening sockets of the services, which `held` closes."""
    ports = settings.rest_ports
    if settings.smb:
        ports["smb"] = settings.smb_port
    return {
        service: held.enter_context(_bind(settings.host, port, f"--{service}-port"))
        for service, port in ports.items()
    }


def _bind_admin(settings: Settings, held: ExitStack) -> socket.socket | None:
    if settings.admin_port is None:
        return None
    return held.enter_context(
        _bind(settings.admin_host, settings.admin_port, "--admin-port", "--admin-host")
    )


def _bind(host: str, port: int, port_flag: str, host_flag: str = "--host") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, TypeError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = f"cannot listen on port {port} of {host}: {error.strerror}"
            raise CannotUse(f"{why}; choose another with {port_flag}") from error
        # A name that cannot even be looked up is a TypeError.
        why = getattr(error, "strerror", "not an address")
        raise CannotUse(
            f"cannot listen on host {host!r}: {why}; choose another with {host_flag}"
        ) from error
    listener.setblocking(False)
    return listener


def _users(settings: Settings) -> UserAuthenticator | None:
    """Returns what verifies bearer tokens, None if they are not accepted."""
    if settings.oauth == "off":
        return None
    # The libraries for tokens take a while to load; imported here, they are loaded once.
    from etagere.protocol.rest import key_sources, user_authentication  # noqa: PLC0415

    try:
        return user_authentication.user_authenticator(settings)
    except key_sources.KeysUnavailable as error:
        raise CannotUse(str(error)) from error

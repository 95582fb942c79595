"""Running a server: the ports, the certificate, and the processes.

`front` puts the parts of a front end together.
"""

from __future__ import annotations

import math
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
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
from etagere.clock import Clock, SystemClock
from etagere.config import Config
from etagere.data_directory import (
    CannotUse,
    claimed,
    raising_cannot_use,
    warn_if_accessible_to_others,
)
from etagere.front.sizing import config_of_front_end, workers_for_cores
from etagere.front.storage import Storage
from etagere.gc_tuning import freeze_before_fork
from etagere.jobs.health import SUPERVISOR_NAME, WRITER_NAME, open_health_socket
from etagere.node import embedded
from etagere.node.front_ends import front_end_children
from etagere.node.listening import bind_admin, bind_services
from etagere.node.opening import prepare_cluster
from etagere.processes import ChildMain, Supervisor
from etagere.settings import Settings
from etagere.tls.contexts import BadCertificate, ServerTls
from etagere.tls.reloading import reload_in_supervisor, warn_if_expiring

if TYPE_CHECKING:
    from etagere.protocol.rest.user_authentication import UserAuthenticator

Announce = Callable[[Mapping[str, int], Path | None], None]
"""Called once, when all front ends answer requests, with the ports by the names of the services,
and the certificate of the CA, if the server created one."""


def engine_children(
    directory: Path,
    config: Config,
    clock: Clock | None = None,
    *,
    accept_clock: bool = False,
) -> dict[str, ChildMain]:
    """Prepares the ledger of a locked directory; returns the processes that serve it."""
    storage = embedded.prepare(directory, config, clock or SystemClock(), accept_clock=accept_clock)
    return {WRITER_NAME: storage.writer_main()}


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

    # The signal is blocked until the directory is known, so that the directory is removed.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    before = signal.signal(signal.SIGTERM, end)
    directory = Path(tempfile.mkdtemp(prefix="etagere-"))
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        yield directory
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        shutil.rmtree(directory, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def _serve_in(
    directory: Path, settings: Settings, config: Config, announce: Announce, options: StartOptions
) -> int:
    tls = _configured_tls(settings)
    users = _users(settings)
    access = _admin_access(settings)
    descriptors_max = descriptors.raise_limit()
    with ExitStack() as held:
        sockets, admin = _claim_and_bind(directory, settings, held)
        if settings.tls == "self-signed":
            # Not at the top: no other server needs this import, which takes a while.
            from etagere.tls.self_signed import SelfSignedTls  # noqa: PLC0415

            tls = SelfSignedTls(directory, settings.host)
        ports = {service: listener.getsockname()[1] for service, listener in sockets.items()}
        storage = _prepare_storage(directory, settings, config, options, ports)
        warn_if_accessible_to_others(directory)
        warn_if_expiring(tls)
        authority = None if tls is None else tls.authority
        announced = ports if admin is None else {**ports, "admin": admin.getsockname()[1]}
        children = _children(
            directory,
            config,
            settings,
            storage,
            descriptors_max=descriptors_max,
            sockets=sockets,
            admin=admin,
            access=access,
            tls=tls,
            users=users,
            announce=lambda: announce(announced, authority),
        )
        status = _supervise(
            directory,
            children,
            lambda: reload_in_supervisor(tls),
            stop_at_eof=options.stop_at_eof,
        )
        storage.leave()
        return status


def _children(
    directory: Path,
    config: Config,
    settings: Settings,
    storage: Storage,
    *,
    descriptors_max: int,
    sockets: Mapping[str, socket.socket],
    admin: socket.socket | None,
    access: AdminAccess | None,
    tls: ServerTls | None,
    users: UserAuthenticator | None,
    announce: Callable[[], None],
) -> dict[str, ChildMain]:
    """Returns the main functions of all processes of a server, by their names."""
    workers = settings.workers or workers_for_cores()
    front_config = config_of_front_end(
        config, workers + 1, descriptors_max, relays=settings.account_map is not None
    )
    children = {
        WRITER_NAME: storage.writer_main(),
        **front_end_children(
            directory,
            front_config,
            settings,
            storage,
            workers=workers,
            sockets=sockets,
            tls=tls,
            users=users,
            announce=announce,
        ),
    }
    if admin is not None and access is not None:
        children[ADMIN_NAME] = admin_main(
            directory,
            front_config,
            storage,
            admin,
            access,
            tuple(children),
            None if access.is_local else tls,
        )
    return children


def _claim_and_bind(
    directory: Path, settings: Settings, held: ExitStack
) -> tuple[dict[str, socket.socket], socket.socket | None]:
    """Locks the directory; returns the listening sockets of the services and of the admin port."""
    # A stopping server in this directory keeps its ports until it ends, so the directory is
    # locked first. A directory that does not exist is created after the ports were bound.
    with raising_cannot_use(directory):
        claims_first = directory.exists()
    if claims_first:
        held.enter_context(claimed(directory))
    sockets = bind_services(settings, held)
    admin = bind_admin(settings, held)
    if not claims_first:
        held.enter_context(claimed(directory))
    return sockets, admin


def _prepare_storage(
    directory: Path,
    settings: Settings,
    config: Config,
    options: StartOptions,
    ports: Mapping[str, int],
) -> Storage:
    if settings.engine is None:
        clock = SystemClock()
        return embedded.prepare(directory, config, clock, accept_clock=options.accept_clock)
    return prepare_cluster(directory, settings, config, ports)


def _configured_tls(settings: Settings) -> ServerTls | None:
    """Returns the certificate in the settings, if there is one."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerTls(settings.tls_cert, settings.tls_key)


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

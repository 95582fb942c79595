"""The front ends of a node."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etagere.config import Config
from etagere.front import blob_queue_table
from etagere.front import file as file_front
from etagere.front.process import Assemble, FrontEnd, ReadyBarrier
from etagere.front.storage import Storage
from etagere.processes import ChildMain
from etagere.protocol.connections.sharing import FrontEndTable
from etagere.settings import Settings
from etagere.tls.contexts import ServerTls

if TYPE_CHECKING:
    from etagere.protocol.rest.user_authentication import UserAuthenticator

FILE_NAME = "file front end"


def front_end_children(
    directory: Path,
    config: Config,
    settings: Settings,
    storage: Storage,
    *,
    workers: int,
    sockets: Mapping[str, socket.socket],
    tls: ServerTls | None,
    users: UserAuthenticator | None,
    announce: Callable[[], None],
) -> dict[str, ChildMain]:
    """Returns the main functions of the front ends: as many as `workers`, and one for files.
    `announce` is called once, when all of them answer requests."""
    front_ends = workers + 1
    # Not with the admin process, without which all others work. Its port is open already.
    announce_all = ReadyBarrier(front_ends, announce)
    table = FrontEndTable(front_ends, len(sockets))
    ports = {service: listener.getsockname()[1] for service, listener in sockets.items()}

    def front_end(assemble: Assemble, services: Sequence[str], numbers: range) -> FrontEnd:
        return FrontEnd(
            assemble,
            directory,
            config,
            settings,
            storage,
            sockets={service: sockets[service] for service in services if service in sockets},
            ports={service: port for service, port in ports.items() if service != "smb"},
            tls=tls,
            announce=announce_all,
            table=table,
            numbers=numbers,
            users=users,
        )

    others = front_end(blob_queue_table.assemble, blob_queue_table.SERVICES, range(workers))
    names = {number: f"front end {number + 1}" for number in others.numbers}
    children = {name: others.main(name, number) for number, name in names.items()}
    files = front_end(file_front.assemble, file_front.SERVICES, range(workers, front_ends))
    children[FILE_NAME] = storage.file_main(files, FILE_NAME, workers)
    return children

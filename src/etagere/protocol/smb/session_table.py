"""The sessions of all SMB clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from etagere.protocol.smb.state import OpenCount, Session

if TYPE_CHECKING:
    from etagere.protocol.smb.connection import Connection


class SessionTable:
    """The sessions of all connections of the server, by ID."""

    def __init__(self) -> None:
        self._sessions: dict[int, tuple[Session, Connection]] = {}
        self._opens_by_address: WeakValueDictionary[str, OpenCount] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, connection: Connection, address: str) -> Session:
        """Creates a session of a connection of a client at this address.

        Its ID is random, so that a client that comes back after a restart does not meet the session
        of another one. Some tools keep 32 bits of it."""
        session_id = 0
        while not session_id or session_id in self._sessions:
            session_id = int.from_bytes(os.urandom(4), "little") >> 1
        session = Session(session_id)
        session.open_count = self._opens_by_address.setdefault(address, session.open_count)
        self._sessions[session_id] = session, connection
        return session

    def authenticated(self) -> list[tuple[Session, Connection]]:
        return [one for one in self._sessions.values() if one[0].is_authenticated]

    def find(self, session_id: int) -> tuple[Session, Connection] | None:
        return self._sessions.get(session_id)

    def remove(self, session: Session) -> None:
        self._sessions.pop(session.id, None)

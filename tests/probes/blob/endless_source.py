"""A copy source that announces bytes and never sends them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

_HEAD: Final = b'HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nETag: "endless"\r\n\r\n'


@contextlib.contextmanager
def endless_source() -> Iterator[str]:
    """Runs the source and yields its host and port."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as connections:
        answering = threading.Thread(target=_answer, args=(listener, connections), daemon=True)
        answering.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        # Wakes the thread that waits for the next connection.
        listener.shutdown(socket.SHUT_RDWR)
        answering.join()


def _answer(listener: socket.socket, connections: contextlib.ExitStack) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connections.enter_context(connection)
        received = b""
        # The client may reset its connection; the others need an answer all the same.
        with contextlib.suppress(OSError):
            while b"\r\n\r\n" not in received and (data := connection.recv(4_096)):
                received += data
            connection.sendall(_HEAD)

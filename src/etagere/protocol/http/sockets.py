"""System calls on the sockets of connections."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios

from etagere.descriptors import OpenFile

_WINDOW_BYTES_MAX = 8 << 20


def enlarge_receive_window(connected: socket.socket, length: int) -> None:
    """Enlarges the receive window for a body of this length.

    Setting SO_RCVLOWAT makes the kernel enlarge the window at once, and resetting it leaves the
    window as it is. By itself the kernel would enlarge it over many round trips. SO_RCVBUF would
    turn that off, to the disadvantage of connections with a long round trip time.
    """
    with contextlib.suppress(OSError):  # the window is only an optimisation
        least = min(length, _WINDOW_BYTES_MAX)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def waiting_bytes(connected: socket.socket) -> int:
    """Returns how many received bytes have not been read."""
    answer = fcntl.ioctl(connected.fileno(), termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", answer)[0])


def duplicate(connected: socket.socket) -> OpenFile | None:
    """Duplicates the descriptor; returns None if the process has none left."""
    try:
        return OpenFile(os.dup(connected.fileno()))
    except OSError:
        return None


def shut_down_socket(descriptor: int) -> None:
    """Shuts a connection down for all descriptors of it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connected:
        connected.shutdown(socket.SHUT_RDWR)


def reset_on_close(connected: socket.socket) -> None:
    """Makes closing the socket discard what the client has not acknowledged. Otherwise the kernel
    would keep it for a client that the server has given up."""
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def untaken_bytes(connected: socket.socket) -> int:
    """Returns how many bytes were sent and not acknowledged."""
    answer = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", answer)[0])

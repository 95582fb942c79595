"""What is asked of the sockets under connections."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios

from etagere.descriptors import OpenFile

_WINDOW_BYTES_MAX = 8 << 20


def widen(connected: socket.socket, length: int) -> None:
    """Lets much of a body of this length come before it is read.

    The kernel makes room for what somebody says to be waiting for, and leaves it there when
    nobody is any more. By itself it would find out over many round trips how much is needed.
    SO_RCVBUF would keep it from ever making more, where a connection is slow and far away.
    """
    with contextlib.suppress(OSError):  # without it, it is only slower
        least = min(length, _WINDOW_BYTES_MAX)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def waiting_bytes(connected: socket.socket) -> int:
    """How many there are to be read."""
    answer = fcntl.ioctl(connected.fileno(), termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", answer)[0])


def duplicate(connected: socket.socket) -> OpenFile | None:
    """A descriptor of its own, if there are any left."""
    try:
        return OpenFile(os.dup(connected.fileno()))
    except OSError:
        return None


def shut(descriptor: int) -> None:
    """Ends a connection for all who have a descriptor of it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connected:
        connected.shutdown(socket.SHUT_RDWR)


def reset_on_close(connected: socket.socket) -> None:
    """Has the kernel throw away what the client has not taken, when the socket is closed. It
    would wait for the client otherwise, long after we have given it up."""
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def untaken_bytes(connected: socket.socket) -> int:
    """How many were sent and not acknowledged."""
    answer = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", answer)[0])

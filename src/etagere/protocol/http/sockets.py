"""What is asked of the sockets under connections."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios

_WINDOW_BYTES_MAX = 8 << 20


def widen(connected: socket.socket, length: int) -> None:
    """Lets much of a body of this length come before it is read.

    The kernel makes room for what somebody says to be waiting for, and leaves it there when
    nobody is any more. By itself it would find out over many round trips how much room is
    needed, and never forget a size that it was told plainly, in SO_RCVBUF.
    """
    with contextlib.suppress(OSError):  # without it, it is only slower
        least = min(length, _WINDOW_BYTES_MAX)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def waiting_bytes(connected: socket.socket) -> int:
    """How many there are to be read."""
    answer = fcntl.ioctl(connected.fileno(), termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", answer)[0])


def untaken_bytes(connected: socket.socket) -> int:
    """How many were sent and not acknowledged."""
    answer = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", answer)[0])

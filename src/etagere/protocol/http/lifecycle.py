"""The lifecycle of a connection, as tables of states and events.

All transitions live here: a connection reports events, and the tables say what follows. A
connection has two states. The first says what the server does:

      CONNECTING ──ESTABLISHED──► OPEN ──LAST_RESPONSE──► DRAINING
                                   │                         │
                                   ├─────────────────────────┘
                     ┌──SHUT_DOWN──┴──CLOSE──┐
                     ▼                       ▼
                 LINGERING ────CLOSE────► CLOSING
                     │                       │
                     └─────────LOST──────────┴───────────► CLOSED

The transport may be lost in any of these states. The second state says what happens to the bytes
that still arrive:

      INPUT_OPEN ──MALFORMED, SHUT_DOWN, CLOSE, LOST──► INPUT_IGNORED
          │                                                  │
          └────────────────────END_OF_INPUT──────────────────┴──► INPUT_ENDED

Requests that arrived before the input was closed are still answered, in order.
"""

from __future__ import annotations

import enum


class ConnectionState(enum.Enum):
    """What the server does on a connection."""

    CONNECTING = enum.auto()
    """There is no transport yet: with TLS, the handshake is under way."""
    OPEN = enum.auto()
    """Requests are read and answered."""
    DRAINING = enum.auto()
    """The response under way is the last: the server is stopping, or the response or the rest of
    its request leaves no other way to go on."""
    LINGERING = enum.auto()
    """The last response is out, and the server's side is shut down. The client was still sending:
    if the socket were closed now, the kernel would reset the connection, and the client might
    never read that response."""
    CLOSING = enum.auto()
    """The transport writes what it has buffered, and closes."""
    CLOSED = enum.auto()


class InputState(enum.Enum):
    """What happens to bytes that arrive."""

    INPUT_OPEN = enum.auto()
    """They are parsed."""
    INPUT_IGNORED = enum.auto()
    """They are read and dropped."""
    INPUT_ENDED = enum.auto()
    """There are none: the client has closed its side."""


class LifecycleEvent(enum.Enum):
    """What happens to a connection."""

    ESTABLISHED = enum.auto()
    MALFORMED = enum.auto()
    """The client sent something that is not a valid request."""
    END_OF_INPUT = enum.auto()
    """The client closed its side."""
    LAST_RESPONSE = enum.auto()
    """No request is to be answered after the one under way."""
    SHUT_DOWN = enum.auto()
    """The server closes its side and waits for the client to close the other."""
    CLOSE = enum.auto()
    """The server closes both sides."""
    LOST = enum.auto()
    """The transport is gone."""


CONNECTING = ConnectionState.CONNECTING
OPEN = ConnectionState.OPEN
DRAINING = ConnectionState.DRAINING
LINGERING = ConnectionState.LINGERING
CLOSING = ConnectionState.CLOSING
CLOSED = ConnectionState.CLOSED

INPUT_OPEN = InputState.INPUT_OPEN
INPUT_IGNORED = InputState.INPUT_IGNORED
INPUT_ENDED = InputState.INPUT_ENDED

ESTABLISHED = LifecycleEvent.ESTABLISHED
MALFORMED = LifecycleEvent.MALFORMED
END_OF_INPUT = LifecycleEvent.END_OF_INPUT
LAST_RESPONSE = LifecycleEvent.LAST_RESPONSE
SHUT_DOWN = LifecycleEvent.SHUT_DOWN
CLOSE = LifecycleEvent.CLOSE
LOST = LifecycleEvent.LOST

# A pair that is missing cannot occur; `Lifecycle.apply` raises ImpossibleTransition for it.
CONNECTION_STEPS: dict[tuple[ConnectionState, LifecycleEvent], ConnectionState] = {
    (CONNECTING, ESTABLISHED): OPEN,
    (OPEN, MALFORMED): OPEN,
    (OPEN, END_OF_INPUT): OPEN,
    (OPEN, LAST_RESPONSE): DRAINING,
    (OPEN, SHUT_DOWN): LINGERING,
    (OPEN, CLOSE): CLOSING,
    (OPEN, LOST): CLOSED,
    (DRAINING, MALFORMED): DRAINING,
    (DRAINING, END_OF_INPUT): DRAINING,
    (DRAINING, LAST_RESPONSE): DRAINING,
    (DRAINING, SHUT_DOWN): LINGERING,
    (DRAINING, CLOSE): CLOSING,
    (DRAINING, LOST): CLOSED,
    (LINGERING, END_OF_INPUT): LINGERING,
    (LINGERING, LAST_RESPONSE): LINGERING,
    (LINGERING, CLOSE): CLOSING,
    (LINGERING, LOST): CLOSED,
    # A request may still run when the server gives up its connection, or its client does.
    (CLOSING, END_OF_INPUT): CLOSING,
    (CLOSING, LAST_RESPONSE): CLOSING,
    (CLOSING, CLOSE): CLOSING,
    (CLOSING, LOST): CLOSED,
    (CLOSED, LAST_RESPONSE): CLOSED,
}

INPUT_STEPS: dict[tuple[InputState, LifecycleEvent], InputState] = {
    (INPUT_OPEN, ESTABLISHED): INPUT_OPEN,
    (INPUT_OPEN, MALFORMED): INPUT_IGNORED,
    (INPUT_OPEN, END_OF_INPUT): INPUT_ENDED,
    (INPUT_OPEN, LAST_RESPONSE): INPUT_OPEN,
    (INPUT_OPEN, SHUT_DOWN): INPUT_IGNORED,
    (INPUT_OPEN, CLOSE): INPUT_IGNORED,
    (INPUT_OPEN, LOST): INPUT_IGNORED,
    (INPUT_IGNORED, END_OF_INPUT): INPUT_ENDED,
    (INPUT_IGNORED, LAST_RESPONSE): INPUT_IGNORED,
    (INPUT_IGNORED, SHUT_DOWN): INPUT_IGNORED,
    (INPUT_IGNORED, CLOSE): INPUT_IGNORED,
    (INPUT_IGNORED, LOST): INPUT_IGNORED,
    (INPUT_ENDED, END_OF_INPUT): INPUT_ENDED,
    (INPUT_ENDED, LAST_RESPONSE): INPUT_ENDED,
    (INPUT_ENDED, CLOSE): INPUT_ENDED,
    (INPUT_ENDED, LOST): INPUT_ENDED,
}


class ImpossibleTransition(Exception):
    """An event was reported that cannot occur in the state of the connection: a bug."""


class Lifecycle:
    """The states of one connection. A request on an open connection causes no event."""

    __slots__ = ("connection", "input")

    def __init__(self) -> None:
        self.connection = CONNECTING
        self.input = INPUT_OPEN

    def apply(self, event: LifecycleEvent) -> None:
        try:
            connection = CONNECTION_STEPS[self.connection, event]
            self.input = INPUT_STEPS[self.input, event]
        except KeyError:
            states = f"{self.connection.name} and {self.input.name}"
            raise ImpossibleTransition(f"{event.name} while {states}") from None
        self.connection = connection

"""Requests to a queue and their outcomes."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tests.history import events
from tests.history.events import Refused, Unknown


class Verb(enum.Enum):
    PUT = "put"
    GET = "get"
    UPDATE = "update"
    DELETE = "delete"


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to the queue, with the fields that its verb uses."""

    verb: Verb
    token: str = ""
    """Of the text that is put; an update may leave the text as it is."""
    message: str = ""
    """The id that the service gave it."""
    receipt: str = ""
    count: int = 1
    hidden_seconds: int = 0
    ttl_seconds: int | None = None
    """None: longer than any run."""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer shows of a message."""

    message: str
    receipt: str
    token: str = ""
    """Of its text; an unknown one if it is damaged. Only a get shows this and the next."""
    count: int = 0
    """How often it has been delivered."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The operation succeeded."""

    seen: tuple[Seen, ...] = ()


Outcome = Done | Refused | Unknown


class Operation(events.Operation[Request, Done], frozen=True, tag="operation"):
    """An operation of the queue service."""


History = events.History[Operation]
"""Of a queue that was emptied in the end: all that was left was received and deleted."""
LOG: Final = events.EventLog(Operation, Request, Done)


def message_of(token: str) -> str:
    """Returns the token that the message was put with, which is the first part of later tokens."""
    return token.partition("/")[0]

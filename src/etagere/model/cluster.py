"""Records and commands of a cluster: its identity, and the nodes that work on its tasks."""

from __future__ import annotations

from typing import Final

from etagere.model.base import Command, Record

FILE_TASK: Final = "file service"
"""Serving files, over REST and SMB: one node at a time has the table of open files."""
SECRET_BYTES: Final = 32
"""The length of the secrets by which nodes recognize each other."""


class StoreIdentity(Record, frozen=True):
    """What tells a store from others."""

    id: bytes
    """Also stored with the bodies, so that a node notices if its bodies are those of another
    ledger."""
    secret: bytes
    """By which the nodes recognize each other."""
    is_marked: bool = False
    """Whether the bodies have the id too."""

    def __repr__(self) -> str:
        return f"StoreIdentity({self.id.hex()})"


class IdentifyStore(Command, frozen=True):
    """Gives a store this identity unless it has one."""

    identity: StoreIdentity


class MarkBodies(Command, frozen=True):
    """Records that the bodies of the store with this id have it too."""

    id: bytes


class TaskHolder(Record, frozen=True):
    """The node that works on a task."""

    epoch: int
    """Increases with each holder."""
    node: str
    host: str = ""
    """Where the process that works on the task listens for the other nodes; empty after it has
    stopped."""
    port: int = 0


class TakeTask(Command, frozen=True):
    """Makes a node the holder of a task."""

    task: str
    holder: TaskHolder


class LeaveTask(Command, frozen=True):
    """Tells the others that the holder of this epoch has stopped."""

    task: str
    epoch: int

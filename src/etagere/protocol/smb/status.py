"""Errors of SMB commands, and the NTSTATUS that a refusal amounts to."""

from __future__ import annotations

from etagere.errors import Refusal
from etagere.nt_status import NtStatus


class SmbError(Exception):
    """Ends a command with an error response."""

    def __init__(self, status: NtStatus, data: bytes = b"") -> None:
        """`data` is the error data of the response, such as the needed length of a buffer."""
        super().__init__(status.name)
        self.status = status
        self.data = data


class Disconnect(Exception):
    """Ends the connection without a response: the client breaks the protocol, or somebody changes
    its messages."""


def status_of(refusal: Refusal) -> NtStatus:
    """Returns what a refusal of an operation amounts to in SMB."""
    status = refusal.nt_status
    return NtStatus.ACCESS_DENIED if status is None else NtStatus(status)

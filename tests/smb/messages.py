"""Requests that tests build themselves, sent by smbprotocol."""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Any, NamedTuple

from smbprotocol.exceptions import SMBResponseException
from smbprotocol.ioctl import SMB2IOCTLRequest
from smbprotocol.open import Open
from smbprotocol.structure import BytesField, Structure

from etagere.protocol.smb.header import Command

FILE, FILE_SYSTEM, SECURITY = 1, 2, 3


class Message(Structure):  # type: ignore[misc]
    """The body of a message, as bytes."""

    def __init__(self, command: int, body: bytes) -> None:
        self.COMMAND = command
        self.fields = OrderedDict([("body", BytesField(default=body))])
        super().__init__()


class Answer(NamedTuple):
    """The body of a response, and its status."""

    status: int
    body: bytes


def send(opened: Open, message: Structure) -> Answer:
    """Sends a request, and returns its response, also if it is an error."""
    tree, connection = opened.tree_connect, opened.connection
    sent = connection.send(message, tree.session.session_id, tree.tree_connect_id)
    response: Any
    try:
        response = connection.receive(sent)
    except SMBResponseException as error:
        response = error.header
    return Answer(response["status"].get_value(), response["data"].get_value())


def query(
    opened: Open,
    info_type: int,
    info_class: int,
    *,
    bytes_max: int = 65_536,
    additional: int = 0,
) -> Answer:
    """Sends QUERY_INFO; the body of the answer is the information."""
    fields = (41, info_type, info_class, bytes_max, 0, 0, additional, 0)
    body = struct.pack("<HBBIH2xIII", *fields) + opened.file_id
    status, answer = send(opened, Message(Command.QUERY_INFO, body))
    return Answer(
        status, answer[8:] if answer[:2] == b"\x09\0" and status < 0xC000_0000 else answer
    )


def change(
    opened: Open, info_type: int, info_class: int, data: bytes, *, additional: int = 0
) -> int:
    """Sends SET_INFO; returns the status."""
    fields = (33, info_type, info_class, len(data), 96, additional)
    body = struct.pack("<HBBIH2xI", *fields) + opened.file_id + data
    return send(opened, Message(Command.SET_INFO, body)).status


def ioctl(
    opened: Open, code: int, data: bytes = b"", *, bytes_max: int = 65_536, file_id: bytes = b""
) -> Answer:
    """Sends IOCTL; the body of the answer is the output."""
    message = SMB2IOCTLRequest()
    # The client does not know all codes.
    message.fields["ctl_code"].enum_strict = False
    message["ctl_code"], message["file_id"] = code, file_id or opened.file_id
    message["max_output_response"], message["flags"] = bytes_max, 1
    message["buffer"] = data
    status, answer = send(opened, message)
    return Answer(status, answer[48:] if answer[:2] == b"\x31\0" else answer)

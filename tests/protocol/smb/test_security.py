"""Parts of security descriptors that clients read and set."""

from __future__ import annotations

import asyncio
import threading

import pytest

from etagere.model.security_descriptors import Control, SecurityDescriptor
from etagere.protocol.smb.information import security
from etagere.protocol.smb.information.security import (
    DACL,
    GROUP,
    OWNER,
    SACL,
    changed_permission,
    replace_parts,
    select_parts,
)
from etagere.rules.file_permissions import check_permission
from etagere.rules.sddl import format_sddl, parse_sddl
from etagere.rules.security_descriptors import decode_descriptor, encode_descriptor

_OLD = parse_sddl("O:SYG:BAD:P(A;;FA;;;SY)S:(AU;SA;FA;;;WD)")
_NEW = parse_sddl("O:BUG:BUD:(A;;FR;;;WD)")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (OWNER, "O:SY"),
        (GROUP, "G:BA"),
        (DACL, "D:P(A;;FA;;;SY)"),
        (SACL, "S:(AU;SA;FA;;;WD)"),
        (OWNER | GROUP | DACL, "O:SYG:BAD:P(A;;FA;;;SY)"),
        (0, ""),
    ],
)
def test_selected(parts: int, expected: str) -> None:
    assert format_sddl(select_parts(_OLD, parts)) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (OWNER, "O:BUG:BAD:P(A;;FA;;;SY)S:(AU;SA;FA;;;WD)"),
        (GROUP, "O:SYG:BUD:P(A;;FA;;;SY)S:(AU;SA;FA;;;WD)"),
        (DACL, "O:SYG:BAD:(A;;FR;;;WD)S:(AU;SA;FA;;;WD)"),
        (0, "O:SYG:BAD:P(A;;FA;;;SY)S:(AU;SA;FA;;;WD)"),
    ],
)
def test_replaced(parts: int, expected: str) -> None:
    assert format_sddl(replace_parts(_OLD, _NEW, parts)) == expected


def test_control_flags_follow_their_part() -> None:
    descriptor = SecurityDescriptor(control=Control.DACL_PROTECTED | Control.SACL_PROTECTED)
    assert select_parts(descriptor, DACL).control == Control.DACL_PROTECTED


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("D:(A;;FA;;;WD)", "D:(A;;FA;;;WD)"),
        ("D:AI(A;;FA;;;WD)", "D:(A;;FA;;;WD)"),
        ("D:AR(A;;FA;;;WD)", "D:(A;;FA;;;WD)"),
        ("D:ARAI(A;;FA;;;WD)", "D:AI(A;;FA;;;WD)"),
        ("D:PARAI(A;;FA;;;WD)", "D:PAI(A;;FA;;;WD)"),
    ],
)
def test_inheritance_is_marked_only_on_request(sent: str, stored: str) -> None:
    old = parse_sddl("D:PAI(A;;FA;;;SY)")
    assert format_sddl(replace_parts(old, parse_sddl(sent), DACL)) == stored


@pytest.mark.parametrize(("entries", "in_thread"), [(1, False), (2_000, True)])
def test_long_descriptors_are_converted_in_threads(
    monkeypatch: pytest.MonkeyPatch, entries: int, in_thread: bool
) -> None:
    threads = []

    def recorded(descriptor: SecurityDescriptor) -> SecurityDescriptor:
        threads.append(threading.current_thread())
        return check_permission(descriptor)

    monkeypatch.setattr(security, "check_permission", recorded)
    sent = encode_descriptor(parse_sddl("O:BUG:BUD:" + "(A;;FR;;;WD)" * entries))
    changed = asyncio.run(changed_permission(encode_descriptor(_OLD), sent, OWNER))
    assert format_sddl(decode_descriptor(changed.descriptor)).startswith("O:BUG:BAD:P(A;;FA;;;SY)")
    assert [one is not threading.main_thread() for one in threads] == [in_thread]

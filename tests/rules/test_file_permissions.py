"""The rules for permissions of files against what the service is known to answer."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given

from etagere.model.security_descriptors import (
    NULL_ACL,
    AceType,
    Acl,
    CustomAce,
    SecurityDescriptor,
)
from etagere.rules.file_permissions import (
    DEFAULT_DIRECTORY_DESCRIPTOR,
    DEFAULT_DIRECTORY_SDDL,
    DEFAULT_PERMISSIONS,
    SYSTEM,
    check_permission,
    format_permission_key,
    inherit,
    inherited_default,
    parse_permission_key,
)
from etagere.rules.sddl import format_sddl, parse_sddl
from etagere.rules.security_descriptors import (
    InvalidDescriptorError,
    decode_descriptor,
    encode_descriptor,
)
from etagere.rules.sids import parse_sid
from tests.rules.descriptors import descriptors

USER = parse_sid("S-1-5-21-1-2-3-1001")
GROUP = parse_sid("S-1-5-21-1-2-3-513")


# Permissions


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("O:SYG:SYD:P(A;;FA;;;BA)", "O:SYG:SYD:P(A;;FA;;;BA)S:NO_ACCESS_CONTROL"),
        ("O:SYG:SYD:NO_ACCESS_CONTROL", "O:SYG:SYD:NO_ACCESS_CONTROLS:NO_ACCESS_CONTROL"),
        ("O:SYG:SYD:S:(AU;SA;FA;;;WD)", "O:SYG:SYD:S:(AU;SA;FA;;;WD)"),
        ("O:SYG:SYD:S:NO_ACCESS_CONTROL", "O:SYG:SYD:S:NO_ACCESS_CONTROL"),
    ],
)
def test_permission_is_stored_with_a_null_sacl(text: str, stored: str) -> None:
    assert format_sddl(check_permission(parse_sddl(text))) == stored


@pytest.mark.parametrize("text", ["", "O:SY", "O:SYG:SY", "G:SYD:", "O:SYD:", "S:", "O:SYG:SYS:"])
def test_permission_needs_owner_group_and_dacl(text: str) -> None:
    with pytest.raises(InvalidDescriptorError):
        check_permission(parse_sddl(text))


@pytest.mark.parametrize("number", [0, 1, 2, 139_000_000_000_000_000, (1 << 63) - 1])
def test_key_of_a_number_is_parsed_back(number: int) -> None:
    key = format_permission_key(number)
    match = re.fullmatch(r"([0-9]+)\*([0-9]+)", key)
    assert match is not None
    assert all(int(half) < 1 << 64 for half in match.groups())
    assert parse_permission_key(key) == number


def test_keys_do_not_change_between_releases() -> None:
    assert format_permission_key(0) == "0*12842438599266020595"
    assert format_permission_key(1) == "1*2333475988426792775"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "*",
        "0*0",
        "1*" + format_permission_key(0).split("*")[1],
        "0" + format_permission_key(1),
        " " + format_permission_key(1),
        format_permission_key(1) + "0",
        format_permission_key(1)[:-1],
        "-" + format_permission_key(1),
        f"{1 << 64}*1",
        "9" * 5_000 + "*1",
        "\u0661*1",
    ],
)
def test_other_keys_are_not_parsed(key: str) -> None:
    assert parse_permission_key(key) is None


def test_default_permissions_are_what_the_root_gives() -> None:
    directory, file = (DEFAULT_PERMISSIONS[number] for number in (0, 1))
    assert format_sddl(decode_descriptor(directory)) == DEFAULT_DIRECTORY_SDDL
    child = inherit(DEFAULT_DIRECTORY_DESCRIPTOR, SYSTEM, SYSTEM, directory=False)
    assert decode_descriptor(file) == child
    assert inherited_default(0, directory=True) == 0
    assert inherited_default(0, directory=False) == 1
    assert inherited_default(1, directory=True) is None


# Inheritance


def inherited(dacl: str, *, directory: bool) -> str:
    parent = parse_sddl(f"O:BAG:BAD:{dacl}")
    child = inherit(parent, USER, GROUP, directory=directory)
    assert (child.owner, child.group) == (USER, GROUP)
    text = format_sddl(child)
    return text[text.index("D:") + 2 :]


def test_default_of_a_directory_is_its_own_heir() -> None:
    child = inherit(DEFAULT_DIRECTORY_DESCRIPTOR, SYSTEM, SYSTEM, directory=True)
    assert child == DEFAULT_DIRECTORY_DESCRIPTOR
    assert format_sddl(child) == DEFAULT_DIRECTORY_SDDL


@pytest.mark.parametrize(
    ("owner", "directory", "expected"),
    [
        # Answers of the service for a new file, and for a new directory of another owner.
        (
            "SY",
            False,
            "O:SYG:SYD:(A;;FA;;;BA)(A;;FA;;;SY)(A;;0x1200a9;;;BU)(A;;0x1301bf;;;AU)(A;;FA;;;SY)",
        ),
        (
            "BA",
            True,
            "O:BAG:SYD:(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;;0x1200a9;;;BU)(A;OICIIO;GXGR;;;BU)"
            "(A;OICI;0x1301bf;;;AU)(A;;FA;;;BA)(A;OICIIO;GA;;;CO)",
        ),
    ],
)
def test_default_of_new_entries(owner: str, directory: bool, expected: str) -> None:
    child = inherit(DEFAULT_DIRECTORY_DESCRIPTOR, parse_sid(owner), SYSTEM, directory=directory)
    assert format_sddl(child) == expected


@pytest.mark.parametrize(
    ("parent", "file", "directory"),
    [
        ("(A;;FA;;;WD)", "", ""),
        ("(A;OI;FA;;;WD)", "(A;;FA;;;WD)", "(A;OIIO;FA;;;WD)"),
        ("(A;CI;FA;;;WD)", "", "(A;CI;FA;;;WD)"),
        ("(A;OICI;FA;;;WD)", "(A;;FA;;;WD)", "(A;OICI;FA;;;WD)"),
        ("(A;OICIIO;FA;;;WD)", "(A;;FA;;;WD)", "(A;OICI;FA;;;WD)"),
        ("(A;OINP;FA;;;WD)", "(A;;FA;;;WD)", ""),
        ("(A;CINP;FA;;;WD)", "", "(A;;FA;;;WD)"),
        ("(A;OICINPIO;FA;;;WD)", "(A;;FA;;;WD)", "(A;;FA;;;WD)"),
        ("(A;OICIID;FA;;;WD)", "(A;;FA;;;WD)", "(A;OICI;FA;;;WD)"),
        ("(D;OICI;GW;;;WD)", "(D;;FW;;;WD)", "(D;;FW;;;WD)(D;OICIIO;GW;;;WD)"),
        ("(A;CI;GR;;;WD)", "", "(A;;FR;;;WD)(A;CIIO;GR;;;WD)"),
        ("(A;CINP;GR;;;WD)", "", "(A;;FR;;;WD)"),
        ("(A;OI;GR;;;WD)", "(A;;FR;;;WD)", "(A;OIIO;GR;;;WD)"),
        (
            "(A;OICI;FR;;;CG)",
            "(A;;FR;;;S-1-5-21-1-2-3-513)",
            "(A;;FR;;;S-1-5-21-1-2-3-513)(A;OICIIO;FR;;;CG)",
        ),
    ],
)
def test_inheritance_of_an_entry(parent: str, file: str, directory: str) -> None:
    assert inherited(parent, directory=False) == file
    assert inherited(parent, directory=True) == directory


def test_inherited_entries_are_marked_if_the_parent_is() -> None:
    parent = "PAI(A;OICI;FA;;;WD)(A;OI;FR;;;BU)(A;;FA;;;SY)"
    assert inherited(parent, directory=False) == "AI(A;ID;FA;;;WD)(A;ID;FR;;;BU)"
    assert inherited(parent, directory=True) == "AI(A;OICIID;FA;;;WD)(A;OIIOID;FR;;;BU)"
    assert inherited("P(A;OICIID;FA;;;WD)", directory=True) == "(A;OICI;FA;;;WD)"


def test_audit_entries_are_inherited_with_their_audit_flags() -> None:
    parent = parse_sddl("O:BAG:BAD:S:AI(AU;OICISAFA;FA;;;WD)")
    child = inherit(parent, SYSTEM, SYSTEM, directory=False)
    assert format_sddl(child) == "O:SYG:SYD:S:AI(AU;IDSAFA;FA;;;WD)"


def test_null_and_absent_lists_are_inherited_as_such() -> None:
    parent = SecurityDescriptor(SYSTEM, SYSTEM, NULL_ACL, None)
    child = inherit(parent, SYSTEM, SYSTEM, directory=False)
    assert (child.dacl, child.sacl) == (NULL_ACL, None)


def test_custom_entries_are_not_inherited() -> None:
    parent = SecurityDescriptor(SYSTEM, SYSTEM, Acl((CustomAce(0x99, 3, b"abcd"),)))
    assert inherit(parent, SYSTEM, SYSTEM, directory=True).dacl == Acl(())


@given(descriptors)
def test_anything_can_be_inherited(parent: SecurityDescriptor) -> None:
    for directory in (False, True):
        child = inherit(parent, SYSTEM, SYSTEM, directory=directory)
        encode_descriptor(child)
        for acl in (child.dacl, child.sacl):
            for ace in (acl.entries if acl is not None else None) or ():
                assert ace.type in set(AceType)
                if not directory:
                    assert not ace.flags & 0x0F


def test_descriptor_can_be_stored_as_a_record() -> None:
    parent = parse_sddl(
        "O:SYG:SYD:P(A;OICI;GA;;;CO)(OA;;CR;;bf967aba-0de6-11d0-a285-00aa003049e2;WD)"
    )
    for descriptor in (parent, inherit(parent, USER, GROUP, directory=True)):
        stored = msgspec.msgpack.encode(descriptor)
        assert msgspec.msgpack.decode(stored, type=SecurityDescriptor) == descriptor

"""The rights of roles."""

from __future__ import annotations

import pytest

from etagere.auth.roles import (
    ALL_RIGHTS,
    ALL_RIGHTS_EVERYWHERE,
    NO_RIGHT,
    RIGHTS_OF_ROLES,
    SERVICES,
    Right,
    rights_of,
)
from etagere.settings.oauth import (
    AZURE_NAMES,
    Role,
    RoleAssignment,
    parse_role_assignments,
)


def test_every_role_grants_rights_in_its_service() -> None:
    assert RIGHTS_OF_ROLES.keys() == set(Role)
    for role, rights in RIGHTS_OF_ROLES.items():
        expected = SERVICES if role is Role.OWNER else (role.value.partition("-")[0],)
        assert tuple(rights) == expected
        assert all(rights.values())


@pytest.mark.parametrize("service", SERVICES)
def test_readers_contributors_and_owners_differ(service: str) -> None:
    reader, contributor, owner = (
        RIGHTS_OF_ROLES[Role(f"{service}-{kind}")][service]
        for kind in ("reader", "contributor", "owner")
    )
    changes = Right.ADD | Right.WRITE | Right.DELETE | Right.PROCESS
    assert reader & changes == NO_RIGHT
    assert Right.READ in reader
    assert contributor == reader | changes
    assert owner == ALL_RIGHTS
    reserved = Right.TAGS | Right.ACCESS_POLICIES | Right.PROPERTIES | Right.SHARES
    assert contributor & reserved == NO_RIGHT


def test_roles_add_up() -> None:
    sender_and_processor = (Role.QUEUE_MESSAGE_SENDER, Role.QUEUE_MESSAGE_PROCESSOR)
    assert rights_of(sender_and_processor) == {"queue": Right.ADD | Right.PEEK | Right.PROCESS}
    assert rights_of([Role.BLOB_DELEGATOR, Role.FILE_DELEGATOR]) == {
        "blob": Right.DELEGATE,
        "file": Right.DELEGATE,
    }
    assert rights_of([Role.OWNER]) == ALL_RIGHTS_EVERYWHERE
    assert rights_of([]) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("readers=blob-reader", [RoleAssignment("", "readers", Role.BLOB_READER)]),
        (
            " a=b = blob-owner , queue-reader@logs ",
            [
                RoleAssignment("", "a=b", Role.BLOB_OWNER),
                RoleAssignment("", "a=b", Role.QUEUE_READER, "logs"),
            ],
        ),
        ("Groups:a b=file-owner", [RoleAssignment("groups", "a b", Role.FILE_OWNER)]),
        ("api://x:y=owner", [RoleAssignment("", "api://x:y", Role.OWNER)]),
        (
            "x=Storage Table Data Reader@one,OWNER@two",
            [
                RoleAssignment("", "x", Role.TABLE_READER, "one"),
                RoleAssignment("", "x", Role.OWNER, "two"),
            ],
        ),
    ],
)
def test_assignments_are_parsed(text: str, expected: list[RoleAssignment]) -> None:
    assert parse_role_assignments(text) == tuple(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x=",
        "=owner",
        " =owner",
        "oid:=owner",
        "x=admin",
        "x=owner,",
        "x=owner@",
        "x=owner@A",
        "x=@abc",
    ],
)
def test_malformed_assignments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|has no value|has an unknown role|limits a role"):
        parse_role_assignments(text)


def test_names_of_azure_are_accepted() -> None:
    for role, name in AZURE_NAMES.items():
        assert parse_role_assignments(f"x={name}") == (RoleAssignment("", "x", role),)

"""The derivation of user delegation keys."""

from __future__ import annotations

import msgspec
import pytest

from etagere.auth.delegation import check_required_user, derive, key_time
from etagere.auth.principal import TokenHolder, TokenKind, User
from etagere.auth.sas import DelegationKey, iso_time

KEY = DelegationKey(
    "oid", "tid", "2030-01-01T00:00:00Z", "2030-01-02T03:04:05Z", "b", "2026-10-06", ""
)
SECRET = b"secret"


@pytest.mark.parametrize("field", KEY.__struct_fields__)
def test_every_field_determines_the_key(field: str) -> None:
    changed = msgspec.structs.replace(KEY, **{field: getattr(KEY, field) + "1"})
    assert derive(SECRET, changed) != derive(SECRET, KEY)


def test_fields_are_not_joined_in_another_way() -> None:
    one = DelegationKey("ab", "c", "", "", "", "", "")
    assert derive(SECRET, one) != derive(SECRET, DelegationKey("a", "bc", "", "", "", "", ""))


def test_the_secret_determines_the_key() -> None:
    assert derive(b"another", KEY) != derive(SECRET, KEY)
    assert derive(SECRET, KEY) == derive(SECRET, KEY)
    assert len(derive(SECRET, KEY)) == 32


@pytest.mark.parametrize(
    ("start", "is_same"),
    [
        ("2030-01-01T00:00:00Z", True),
        ("2030-01-01T00:00Z", True),
        ("2030-01-01", True),
        ("2030-01-01T00:00:00.0000000Z", True),
        ("2030-01-01T00:00:00.0000001Z", False),
        ("2030-01-01T00:00:01Z", False),
        ("", False),
    ],
)
def test_times_in_other_forms(start: str, is_same: bool) -> None:
    other = msgspec.structs.replace(KEY, start=start)
    assert (derive(SECRET, other) == derive(SECRET, KEY)) is is_same


def test_times_are_issued_to_the_second() -> None:
    ticks = iso_time("2030-01-02T03:04:05.9999999Z")
    assert ticks is not None
    assert key_time(ticks) == "2030-01-02T03:04:05Z"


GUID = "5a4c8ad6-0f3b-4bb5-9a8d-0d36f4f4cf2e"


@pytest.mark.parametrize(
    ("required", "sent", "is_same"),
    [
        (GUID, GUID.upper(), True),
        ("alice", "alice", True),
        ("alice", "Alice", False),
        (GUID, "alice", False),
        (GUID, f"{GUID}\n", False),
    ],
)
def test_the_user_that_a_token_requires(required: str, sent: str, is_same: bool) -> None:
    holder = TokenHolder(
        account="a",
        kind=TokenKind.DELEGATION,
        version="2025-07-05",
        permissions="r",
        required_user=required,
        required_tenant=GUID,
    )
    sender = User(account="a", object_id=sent, tenant_id=GUID, rights={})
    assert (check_required_user(holder, sender) is None) is is_same
    elsewhere = User(account="a", object_id=sent, tenant_id=GUID[::-1], rights={})
    assert check_required_user(holder, elsewhere) is not None
    assert check_required_user(holder, None) is not None

"""Accounts: names, keys, and from where the built-in one may be used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.model.accounts import BUILT_IN, Account, AddAccount, RotateKey, new_key
from etagere.rules.accounts import (
    check_absent,
    check_account_name,
    check_built_in_access,
    check_changeable,
    check_key,
    check_key_number,
    is_loopback,
)
from etagere.settings import Settings
from etagere.settings.values import parse_account

INVALID = "InvalidResourceName"
RANGE = "OutOfRangeInput"
DEVELOPMENT = "devstoreaccount1"
STORED = Account(b"one", b"two", created=7, key1_created=7, key2_created=7)


def code_of(refusal: Refusal | None) -> str | None:
    return refusal.code if refusal else None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("abc", None),
        ("123", None),
        ("a1b2", None),
        ("a" * 24, None),
        (DEVELOPMENT, None),
        ("", RANGE),
        ("ab", RANGE),
        ("a" * 25, RANGE),
        ("Abc", INVALID),
        ("a-b", INVALID),
        ("a_b", INVALID),
        ("a.b", INVALID),
        ("a b", INVALID),
        ("äöü", INVALID),
        ("٣٣٣", INVALID),
        ("abc\n", INVALID),
        ("abc\udcff", INVALID),
    ],
)
def test_names(name: str, expected: str | None) -> None:
    assert code_of(check_account_name(name)) == expected


@given(st.one_of(st.text(alphabet="ab09-A", max_size=27), st.text(max_size=27)))
def test_the_settings_accept_the_same_names(name: str) -> None:
    try:
        known = parse_account(f"{name}:a2V5").name == name
    except ValueError:
        known = name == DEVELOPMENT
    assert known is (check_account_name(name) is None)


@pytest.mark.parametrize(("length", "expected"), [(0, RANGE), (1, None), (64, None), (65, RANGE)])
def test_keys(length: int, expected: str | None) -> None:
    assert code_of(check_key(bytes(length))) == expected


def test_new_keys_have_64_bytes_and_differ() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {64}


@pytest.mark.parametrize("number", range(-1, 5))
def test_there_are_two_keys(number: int) -> None:
    assert code_of(check_key_number(number)) == (None if number in (1, 2) else RANGE)


@pytest.mark.parametrize(
    ("name", "stored", "expected"),
    [
        ("mine", None, None),
        ("mine", STORED, "AccountAlreadyExists"),
        (DEVELOPMENT, None, "AccountAlreadyExists"),
    ],
)
def test_account_names_are_unique(name: str, stored: Account | None, expected: str | None) -> None:
    assert code_of(check_absent(name, stored)) == expected


def test_built_in_accounts_do_not_change() -> None:
    assert code_of(check_changeable(DEVELOPMENT)) == "InsufficientAccountPermissions"
    assert check_changeable("mine") is None


def test_the_development_account_has_the_well_known_key() -> None:
    key1, key2 = BUILT_IN[DEVELOPMENT].keys
    assert key1 == key2
    assert len(key1) == 64
    assert key1.startswith(b"\x11\xbc\xbc\xbd\xd3\x34\xdb\x13")


@pytest.mark.parametrize(
    ("client", "near"),
    [
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("::1%lo", True),
        ("::ffff:127.0.0.1", True),
        ("126.255.255.255", False),
        ("128.0.0.1", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("169.254.0.1", False),
        ("::", False),
        ("::2", False),
        ("fe80::1%lo", False),
        ("::ffff:10.0.0.1", False),
        ("2001:db8::1", False),
        ("", False),
        ("localhost", False),
        ("127.0.0.1:80", False),
        ("127.1", False),
    ],
)
@pytest.mark.parametrize("anywhere", [False, True])
def test_client_addresses_of_accounts(client: str, near: bool, anywhere: bool) -> None:
    settings = Settings(development_account_anywhere=anywhere)
    assert is_loopback(client) is near
    refused = not near and not anywhere
    expected = "AuthorizationSourceIPMismatch" if refused else None
    assert code_of(check_built_in_access(DEVELOPMENT, client, "localhost", settings)) == expected
    assert check_built_in_access("mine", client, "localhost", settings) is None


@pytest.mark.parametrize(
    ("host", "near"),
    [
        (None, True),
        ("localhost", True),
        ("LOCALHOST.:10000", True),
        ("devstoreaccount1.blob.localhost:10000", True),
        ("127.0.0.1", True),
        ("127.255.255.254:1", True),
        ("[::1]:10000", True),
        ("[::ffff:127.0.0.1]", True),
        ("[localhost]", False),
        ("127.1", False),
        ("127.0.0.1.example", False),
        ("localhost.example", False),
        (".localhost.example", False),
        ("etagere", False),
        ("host.docker.internal:10000", False),
        ("devstoreaccount1.blob.core.windows.net", False),
        ("192.168.0.1:10000", False),
        ("localhost,example", False),
        ("localhost:10000\n", False),
        ("a." * 200 + "localhost", False),
        ("", False),
        (":", False),
    ],
)
@pytest.mark.parametrize("anywhere", [False, True])
def test_host_names_of_accounts(host: str | None, near: bool, anywhere: bool) -> None:
    settings = Settings(development_account_anywhere=anywhere)
    expected = None if near or anywhere else "AuthorizationFailure"
    assert code_of(check_built_in_access(DEVELOPMENT, "127.0.0.1", host, settings)) == expected
    assert check_built_in_access("mine", "127.0.0.1", host, settings) is None


def test_no_repr_shows_a_key() -> None:
    shown = [
        repr(Account(b"hidden", b"hidden", created=7, key1_created=8, key2_created=9)),
        repr(AddAccount("mine", b"hidden", b"hidden")),
        repr(RotateKey("mine", 2, b"hidden")),
    ]
    assert not any("hidden" in text for text in shown)
    assert shown[0] == "Account(key1=…, key2=…, created=7, key1_created=8, key2_created=9)"
    assert "mine" in shown[1]
    assert "number=2" in shown[2]

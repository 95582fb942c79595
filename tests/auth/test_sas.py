"""Judging SAS tokens: validity period, IP range and protocol, stored access policies, the
principal."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from etagere.auth.principal import TokenHolder, TokenKind
from etagere.auth.sas import (
    Effective,
    Policy,
    Sas,
    check_origin,
    check_time,
    effective,
    iso_time,
    principal,
)
from etagere.auth.sas_parsing import parse
from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from tests.auth.samples import ACCOUNT, request, ticks
from tests.auth.sas_samples import TOKENS, accepted, blob_token, built

# Times


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:01Z", 60 * TICKS_PER_SECOND),
        ("1970-01-01T00:00:01Z", TICKS_PER_SECOND),
        ("1970-01-01T00:00:01.5Z", 15_000_000),
        ("1970-01-01T00:00:00.0000001Z", 1),
        ("1970-01-01T00:00:00.00000001Z", None),
        ("2024-02-29", 1_709_164_800 * TICKS_PER_SECOND),
        ("2023-02-29", None),
        ("0000-01-01", None),
        ("1970-01-01T24:00Z", None),
        ("1970-01-01T00:60Z", None),
        ("1970-01-01T00:00", None),
        ("1970-01-01T00:00:00+00:00", None),
        ("1970-01-01Z", None),
        ("1970-1-1", None),
        ("", None),
        ("\u0661970-01-01", None),
        ("1970-01-01\n", None),
    ],
)
def test_iso_times(written: str, expected: int | None) -> None:
    assert iso_time(written) == expected


def made_token(**changes: Any) -> Sas:
    sas = accepted(built(TOKENS[0]))
    return type(sas)(**{**{name: getattr(sas, name) for name in sas.__struct_fields__}, **changes})


@pytest.mark.parametrize(
    ("now", "valid"), [(9, False), (10, True), (15, True), (20, True), (21, False)]
)
def test_time_window(now: int, valid: bool) -> None:
    assert (check_time(Effective("r", 10, 20), now) is None) is valid
    assert (check_time(Effective("r", None, 20), now) is None) is (now <= 20)


def test_refusals_name_the_times_as_the_service_does() -> None:
    """Clients search for these words to know when they need another token."""
    start, expiry, now = map(ticks, ("2024-01-07T00:00:00Z", "2024-01-08T00:00:00Z", "2024-02-01"))
    refusal = check_time(Effective("r", start, expiry), now)
    assert refusal is not None
    assert refusal.facts["AuthenticationErrorDetail"] == (
        "Signature not valid in the specified time frame: "
        "Start [Sun, 07 Jan 2024 00:00:00 GMT] - Expiry [Mon, 08 Jan 2024 00:00:00 GMT] - "
        "Current [Thu, 01 Feb 2024 00:00:00 GMT]"
    )
    refusal = check_time(Effective("r", None, expiry), now)
    assert refusal is not None
    assert refusal.facts["AuthenticationErrorDetail"] == (
        "Signed expiry time [Mon, 08 Jan 2024 00:00:00 GMT] must be after signed start time "
        "[Thu, 01 Feb 2024 00:00:00 GMT]"
    )


def test_a_delegated_token_ends_with_its_key() -> None:
    vector = next(each for each in TOKENS if each["userDelegation"])
    sas = accepted(built(vector))
    granted = effective(sas, None)
    assert isinstance(granted, Effective)
    assert (granted.start, granted.expiry) == (ticks("2024-01-02T03:04:05Z"), ticks("2024-01-07"))
    assert check_time(granted, ticks("2024-01-07T00:00:01Z")) is not None
    assert principal(sas, granted).delegating_user == "oid-1"


# Policies

AT, LATER = 10, 20


@pytest.mark.parametrize(
    ("in_token", "in_policy"), list(product(product((False, True), repeat=3), repeat=2))
)
def test_policy_merge(
    in_token: tuple[bool, bool, bool], in_policy: tuple[bool, bool, bool]
) -> None:
    """Tests start, expiry and permissions: each is in the token or in the policy, never in both."""
    sas = made_token(
        policy_id="id",
        start=AT if in_token[0] else None,
        expiry=LATER if in_token[1] else None,
        permissions="rw" if in_token[2] else "",
    )
    policy = Policy(
        AT if in_policy[0] else None,
        LATER if in_policy[1] else None,
        "rw" if in_policy[2] else "",
    )
    granted = effective(sas, policy)
    twice = any(mine and theirs for mine, theirs in zip(in_token, in_policy, strict=True))
    merged = [mine or theirs for mine, theirs in zip(in_token, in_policy, strict=True)]
    if twice or not merged[1] or not merged[2]:
        assert isinstance(granted, Refusal)
        assert granted.code == "AuthenticationFailed"
    else:
        assert granted == Effective("rw", AT if merged[0] else None, LATER)


def test_unknown_policy() -> None:
    refusal = effective(made_token(policy_id="id"), None)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "AuthenticationFailed"


def test_a_policy_is_looked_up_only_if_named() -> None:
    sas = made_token()
    assert effective(sas, Policy(1, 2, "d")) == effective(sas, None)


def test_policy_permissions_that_the_token_cannot_have() -> None:
    sas = made_token(policy_id="id", permissions="", start=None, expiry=LATER)
    assert effective(sas, Policy(permissions="rfl")) == Effective("rl", None, LATER)
    assert isinstance(effective(sas, Policy(permissions="f")), Refusal)


# IP ranges and protocols


@pytest.mark.parametrize(
    ("sip", "client", "expected"),
    [
        ("1.2.3.4", "1.2.3.4", ""),
        ("1.2.3.4", "1.2.3.5", "AuthorizationSourceIPMismatch"),
        ("1.2.3.4-1.2.3.9", "1.2.3.4", ""),
        ("1.2.3.4-1.2.3.9", "1.2.3.9", ""),
        ("1.2.3.4-1.2.3.9", "1.2.3.10", "AuthorizationSourceIPMismatch"),
        ("1.2.3.4-1.2.3.9", "1.2.3.3", "AuthorizationSourceIPMismatch"),
        ("1.2.3.4", "::ffff:1.2.3.4", ""),
        ("1.2.3.4", "::1", "AuthorizationSourceIPMismatch"),
        ("1.2.3.4", "", "AuthorizationSourceIPMismatch"),
        ("1.2.3.9-1.2.3.4", "1.2.3.5", "AuthenticationFailed"),
        ("1.2.3.4-", "1.2.3.4", "AuthenticationFailed"),
        ("-1.2.3.4", "1.2.3.4", "AuthenticationFailed"),
        ("1.2.3.4-1.2.3.5-1.2.3.6", "1.2.3.4", "AuthenticationFailed"),
        ("1.2.3", "1.2.3.4", "AuthenticationFailed"),
        ("1.2.3.256", "1.2.3.4", "AuthenticationFailed"),
        ("01.2.3.4", "1.2.3.4", "AuthenticationFailed"),
        ("1.2.3.4/24", "1.2.3.4", "AuthenticationFailed"),
        ("::1", "::1", "AuthenticationFailed"),
    ],
)
def test_addresses(sip: str, client: str, expected: str) -> None:
    token = blob_token("b", "c/b", sip=sip)
    made = request(target=f"/{ACCOUNT}/c/b?{token}", client=client)
    sas = parse(made)
    refusal = sas if isinstance(sas, Refusal) else check_origin(sas, made)
    assert ("" if refusal is None else refusal.code) == expected


@pytest.mark.parametrize(
    ("spr", "scheme", "expected"),
    [
        ("https", "https", ""),
        ("https", "http", "AuthorizationProtocolMismatch"),
        ("https,http", "http", ""),
        ("https,http", "https", ""),
        ("", "http", ""),
        ("http", "http", "AuthenticationFailed"),
        ("HTTPS", "https", "AuthenticationFailed"),
    ],
)
def test_protocols(spr: str, scheme: str, expected: str) -> None:
    token = blob_token("b", "c/b", spr=spr)
    made = request(target=f"/{ACCOUNT}/c/b?{token}", scheme=scheme)
    sas = parse(made)
    refusal = sas if isinstance(sas, Refusal) else check_origin(sas, made)
    assert ("" if refusal is None else refusal.code) == expected


# The principal


def test_principal_of_a_service_token() -> None:
    vector = next(each for each in TOKENS if each["canonicalName"] == "c/a b/ü.txt")
    sas = accepted(built(vector))
    granted = effective(sas, None)
    assert isinstance(granted, Effective)
    assert principal(sas, granted) == TokenHolder(
        account=ACCOUNT,
        kind=TokenKind.SERVICE,
        version="2026-10-06",
        permissions="racwd",
        service="blob",
        resource="b",
        scope="c/a b/ü.txt",
        overrides={
            "cache-control": "cc",
            "content-disposition": "cd",
            "content-encoding": "ce",
            "content-language": "cl",
            "content-type": "ct",
        },
    )


def test_principal_of_an_account_token() -> None:
    vector = next(each for each in TOKENS if "srt=co" in each["token"] and "ses" in each["token"])
    sas = accepted(built(vector))
    granted = effective(sas, None)
    assert isinstance(granted, Effective)
    assert principal(sas, granted) == TokenHolder(
        account=ACCOUNT,
        kind=TokenKind.ACCOUNT,
        version=sas.version,
        permissions="rl",
        services="b",
        resource_types="co",
        encryption_scope="es",
    )

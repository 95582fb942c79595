"""A shared access signature grants what its fields say, and nothing else, in every service."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any, Final

from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    AUTHORIZATION_FAILURE,
    BLOB_OVERWRITE,
    NO_AUTHENTICATION,
    PERMISSION_MISMATCH,
    SERVICE_MISMATCH,
    refusal_fault,
)
from tests.probes.blob.fixture import BlobFixture
from tests.probes.client import Request, encoded
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import each_granted_kind, each_operation, each_token_kind
from tests.probes.token_kinds import ACCOUNT_KIND, SERVICE_LETTERS, TokenKind
from tests.probes.tokens import ACCOUNT_LETTERS, Token, moment, service_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

UNSIGNED_FIELDS: Final = {"sdd"}
"""The depth of a directory is not signed, and means nothing without `sr=d`."""


# What a token grants


@each_granted_kind
def test_valid_tokens(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    """The tokens that the other tests spoil are valid."""
    with fixture.target_for(operation) as target:
        token = kind.make(operation, target, sip="127.0.0.1", spr="https,http")
        answer = fixture.ask(token.put_on(operation.request(target)))
        assert 200 <= answer.status < 300, answer


@each_token_kind
def test_every_permission(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    """Each letter that suffices is enough alone, and all others together are not."""
    letters = string.ascii_lowercase
    allowed = [letter for letter in letters if kind.grants(operation, letter)]
    rest = "".join(set(kind.letters) - set(allowed))
    refused = [*(set(letters) - set(allowed)), "", "R", rest]
    if needs_all := next(iter(_sets_of_letters(operation, kind)), ""):
        refused += [kind.letters.replace(letter, "") for letter in needs_all]
        allowed.append(needs_all)
    expected = (AUTHENTICATION_FAILED, PERMISSION_MISMATCH, BLOB_OVERWRITE, AUTHORIZATION_FAILURE)
    with fixture.target_for(operation) as target, fixture.unchanged():
        request = operation.request(target)
        for permissions in refused:
            if kind.grants(operation, permissions):
                continue
            answer = fixture.ask(
                kind.make(operation, target, permissions=permissions).put_on(request)
            )
            assert not refusal_fault(answer, *expected), (permissions, answer)
    for permissions in allowed:
        with fixture.target_for(operation) as target:
            token = kind.make(operation, target, permissions=permissions)
            answer = fixture.ask(token.put_on(operation.request(target)))
            assert 200 <= answer.status < 300, (permissions, answer)


def _sets_of_letters(operation: Operation[Any], kind: TokenKind) -> Iterator[str]:
    """Yields alternatives of the permission table that ask for several letters at once."""
    permission = operation.permission
    wanted = permission.account_letters if kind is ACCOUNT_KIND else permission.service_letters
    for letters in (wanted or "").split("|"):
        if len(letters) > 1 and kind.grants(operation, letters):
            yield letters


@each_operation
def test_services_and_resource_types(
    fixture: ServiceFixture[Any], operation: Operation[Any]
) -> None:
    own = SERVICE_LETTERS[operation.service]
    others = "".join(sorted(set("bqtf") - {own}))
    with fixture.target_for(operation) as target, fixture.unchanged():
        request = operation.request(target)
        for services in (*others, others):
            token = ACCOUNT_KIND.make(operation, target, services=services)
            answer = fixture.ask(token.put_on(request))
            assert not refusal_fault(answer, SERVICE_MISMATCH, PERMISSION_MISMATCH)
        types = "".join(sorted(set("sco") - set(operation.permission.resource_types)))
        for own_types in filter(None, {types, *types}):
            token = ACCOUNT_KIND.make(operation, target, types=own_types)
            answer = fixture.ask(token.put_on(request))
            type_mismatch = (403, "AuthorizationResourceTypeMismatch")
            assert not refusal_fault(answer, type_mismatch, PERMISSION_MISMATCH), own_types


# What was signed


def _other_values(name: str, value: str) -> Iterator[str]:
    """Yields values that an attacker would like a field to have."""
    likely = {
        "sp": (ACCOUNT_LETTERS, "r", "w", value[::-1], value + value[:1], value.upper()),
        "se": (moment(days=9), value[:10], value.replace("Z", ""), "9999-12-31"),
        "st": (moment(days=-9), "2000-01-01"),
        "sv": ("2020-12-06", "2018-11-09", "2015-04-05", "2026-10-06", "2012-02-12", "x"),
        "ss": ("bqtf", "qb", "B"),
        "srt": ("s", "c", "o", "ocs", "SCO"),
        "sr": ("c", "b", "d", "bs", "bv", "B", "C"),
        "sip": ("127.0.0.0-127.0.0.255", "0.0.0.0-255.255.255.255", "127.0.0.01"),
        "spr": ("https", "http", "http,https"),
        "sig": (value.swapcase(), value[:-1], value.rstrip("="), value + "=", f" {value}"),
    }
    yield from (other for other in likely.get(name, ()) if other != value)
    yield value + "\n"
    yield ""


def _forged(token: Token) -> Iterator[tuple[str, Token]]:
    for name, value in token.fields.items():
        yield f"{name} removed", token.lacking(name)
        for other in _other_values(name, value):
            yield f"{name}={other!r}", token.setting(name, other)
    added = {"si": "readers", "ses": "scope", "skoid": "a", "sdd": "1", "ss": "b", "srt": "sco"}
    added |= {"spk": "a", "epk": "z"} if "tn" in token.fields else {}
    for name, value in added.items():
        if name not in token.fields and name not in UNSIGNED_FIELDS:
            yield f"{name} added", token.setting(name, value)


@each_granted_kind
def test_fields_changed_after_signing(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    with fixture.target_for(operation) as target, fixture.unchanged():
        request = operation.request(target)
        token = kind.make(operation, target, sip="127.0.0.1", spr="https,http")
        wrong = []
        for label, forged in _forged(token):
            answer = fixture.ask(forged.put_on(request))
            if fault := refusal_fault(answer, AUTHENTICATION_FAILED, NO_AUTHENTICATION):
                wrong.append((label, fault))
        signed = token.put_on(request)
        for name, value in token.fields.items():
            for other in (value, "", "b"):
                for written in (name, name.upper()):
                    doubled = signed.asking(*encoded([(written, other)]))
                    if fault := refusal_fault(fixture.ask(doubled), AUTHENTICATION_FAILED):
                        wrong.append((f"{written} doubled with {other!r}", fault))
        assert not wrong


def test_response_headers_are_signed(blobs: BlobFixture) -> None:
    """A holder cannot choose the content type under which a blob is shown."""
    target = blobs.create()
    token = service_token(ACCOUNT, KEY, target.container, target.blob)
    request = Request("GET", f"/{ACCOUNT}/{target.container}/{target.blob}")
    for name in ("rscc", "rscd", "rsce", "rscl", "rsct"):
        answer = blobs.client.ask(token.setting(name, "text/html").put_on(request))
        assert not refusal_fault(answer, AUTHENTICATION_FAILED), name
    blobs.remove(target)


# When, from where and by whom


@each_granted_kind
def test_times_addresses_and_protocols(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    address_mismatch = (403, "AuthorizationSourceIPMismatch")
    cases: list[tuple[dict[str, str], tuple[int, str]]] = [
        ({"se": moment(seconds=-2)}, AUTHENTICATION_FAILED),
        ({"se": moment(days=-400)}, AUTHENTICATION_FAILED),
        ({"st": moment(minutes=5)}, AUTHENTICATION_FAILED),
        ({"st": moment(days=400), "se": moment(days=401)}, AUTHENTICATION_FAILED),
        ({"st": moment(hours=1), "se": moment(hours=-1)}, AUTHENTICATION_FAILED),
        ({"sip": "10.0.0.1"}, address_mismatch),
        ({"sip": "127.0.0.2-127.255.255.255"}, address_mismatch),
        ({"sip": "0.0.0.0"}, address_mismatch),
        ({"sip": "127.0.0.2-127.0.0.1"}, AUTHENTICATION_FAILED),
        ({"sip": "::1"}, AUTHENTICATION_FAILED),
        ({"spr": "https"}, (403, "AuthorizationProtocolMismatch")),
        ({"spr": "http"}, AUTHENTICATION_FAILED),
    ]
    with fixture.target_for(operation) as target, fixture.unchanged():
        request = operation.request(target)
        for options, expected in cases:
            # Headers of proxies are not trusted.
            forwarded = request.having(
                ("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Proto", "https")
            )
            answer = fixture.ask(kind.make(operation, target, **options).put_on(forwarded))
            assert not refusal_fault(answer, expected), (options, answer)


@each_granted_kind
def test_signed_with_another_key(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    with fixture.target_for(operation) as target, fixture.unchanged():
        for account in (ACCOUNT, SECOND_ACCOUNT):
            for key in (WRONG_KEY, *SECOND_KEYS):
                token = kind.make(operation, target, account=account, key=key)
                answer = fixture.ask(token.put_on(operation.request(target)))
                assert not refusal_fault(answer, AUTHENTICATION_FAILED)

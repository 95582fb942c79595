"""A shared access signature grants what its fields say, and nothing else, in every service."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any, Final

from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    NO_AUTHENTICATION,
    refusal_fault,
)
from tests.probes.blob.fixture import BlobFixture
from tests.probes.client import Request, encoded
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import SERVICES, each_granted_kind, each_service
from tests.probes.token_kinds import TokenKind
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


@each_service
def test_unknown_letters(fixture: ServiceFixture[Any], service: str) -> None:
    """A token with a letter that its resource does not have is not valid, nor is one without."""
    probed = SERVICES[service]
    for kind in probed.token_kinds:
        unknown = set(string.ascii_lowercase) - set(kind.letters)
        read = next(each for each in probed.operations if kind.grants(each, "r"))
        with fixture.target_for(read) as target:
            for permissions in (*sorted(unknown), "", "R", kind.letters + min(unknown)):
                token = kind.make(read, target, permissions=permissions)
                answer = fixture.ask(token.put_on(read.request(target)))
                assert not refusal_fault(answer, AUTHENTICATION_FAILED), (permissions, answer)


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

"""A shared access signature grants what its fields say, and nothing else, in every service."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any, Final

from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    NO_AUTHENTICATION,
    Code,
    refusal_fault,
    unrefused,
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


def _doubled(request: Request, token: Token) -> Iterator[tuple[str, Request]]:
    signed = token.put_on(request)
    for name, value in token.fields.items():
        for other in (value, "", "b"):
            for written in (name, name.upper()):
                doubled = signed.asking(*encoded([(written, other)]))
                yield f"{written} doubled with {other!r}", doubled


# When, from where and by whom


def _other_tokens() -> Iterator[tuple[dict[str, str], Code]]:
    """Yields options of tokens that are not valid now, here, without TLS, or with their key."""
    address_mismatch = (403, "AuthorizationSourceIPMismatch")
    yield {"se": moment(seconds=-2)}, AUTHENTICATION_FAILED
    yield {"se": moment(days=-400)}, AUTHENTICATION_FAILED
    yield {"st": moment(minutes=5)}, AUTHENTICATION_FAILED
    yield {"st": moment(days=400), "se": moment(days=401)}, AUTHENTICATION_FAILED
    yield {"st": moment(hours=1), "se": moment(hours=-1)}, AUTHENTICATION_FAILED
    yield {"sip": "10.0.0.1"}, address_mismatch
    yield {"sip": "127.0.0.2-127.255.255.255"}, address_mismatch
    yield {"sip": "0.0.0.0"}, address_mismatch
    yield {"sip": "127.0.0.2-127.0.0.1"}, AUTHENTICATION_FAILED
    yield {"sip": "::1"}, AUTHENTICATION_FAILED
    yield {"spr": "https"}, (403, "AuthorizationProtocolMismatch")
    yield {"spr": "http"}, AUTHENTICATION_FAILED
    for account in (ACCOUNT, SECOND_ACCOUNT):
        for key in (WRONG_KEY, *SECOND_KEYS):
            yield {"account": account, "key": key}, AUTHENTICATION_FAILED


@each_granted_kind
def test_tokens_that_are_not_valid(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    """The token that is spoiled is valid."""
    with fixture.target_for(operation) as target:
        request = operation.request(target)
        token = kind.make(operation, target, sip="127.0.0.1", spr="https,http")
        # Headers of proxies are not trusted.
        forwarded = request.having(("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Proto", "https"))
        forged = [(label, other.put_on(request)) for label, other in _forged(token)]
        others = [
            (options, refusal, kind.make(operation, target, **options).put_on(forwarded))
            for options, refusal in _other_tokens()
        ]
        with fixture.unchanged():
            wrong = [
                *unrefused(fixture.ask, forged, AUTHENTICATION_FAILED, NO_AUTHENTICATION),
                *unrefused(fixture.ask, _doubled(request, token), AUTHENTICATION_FAILED),
            ]
            for options, refusal, other in others:
                wrong += unrefused(fixture.ask, [(f"{options}", other)], refusal)
        assert not wrong
        answer = fixture.ask(token.put_on(request))
        assert 200 <= answer.status < 300, answer


def test_response_headers_are_signed(blobs: BlobFixture) -> None:
    """A holder cannot choose the content type under which a blob is shown."""
    target = blobs.create()
    token = service_token(ACCOUNT, KEY, target.container, target.blob)
    request = Request("GET", f"/{ACCOUNT}/{target.container}/{target.blob}")
    for name in ("rscc", "rscd", "rsce", "rscl", "rsct"):
        answer = blobs.client.ask(token.setting(name, "text/html").put_on(request))
        assert not refusal_fault(answer, AUTHENTICATION_FAILED), name
    blobs.remove(target)

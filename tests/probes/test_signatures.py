"""A signature is valid for the request that was signed, and for no other, in every service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.probes.answers import AUTHENTICATION_FAILED, refusal_fault, unrefused
from tests.probes.blob.fixture import BlobFixture
from tests.probes.client import Request, Signer, http_date, shared_key
from tests.probes.service import Operation, ServiceFixture, SigningScheme
from tests.probes.services import each_operation, each_scheme
from tests.server import ACCOUNT, KEY

SIGN: Final = shared_key(ACCOUNT, KEY)
METHODS: Final = ("GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS")
# The signature does not match, or before that: no such operation, version or preflight.
EXPECTED: Final = (
    AUTHENTICATION_FAILED,
    (400, "InvalidQueryParameterValue"),
    (400, "InvalidUri"),
    (400, "XMethodNotUsingPost"),
    (405, "UnsupportedHttpVerb"),
    (400, "InvalidHeaderValue"),
)

Changes = Iterator[tuple[str, Request]]


def in_headers(request: Request, headers: dict[str, str], sign: Signer) -> Changes:
    """Each header added, removed, changed and doubled after signing."""
    for name, value in headers.items():
        request = request.lacking(name)
        yield f"{name} added", sign(request).having((name, value))
        signed = sign(request.having((name, value)))
        yield f"{name} removed", signed.lacking(name)
        yield f"{name} changed", signed.setting(name, value + "1")
        if value != value.swapcase():
            yield f"{name} in another case", signed.setting(name, value.swapcase())
        yield f"{name} doubled", signed.having((name, value))
        yield f"{name} emptied", signed.setting(name, "")


def in_extension_headers(request: Request, sign: Signer) -> Changes:
    signed = sign(request)
    sent = [(name, value) for name, value in signed.headers if name.startswith("x-ms-")]
    for name, value in sent:
        yield f"{name} removed", signed.lacking(name)
        yield f"{name} changed", signed.setting(name, value + "0")
        yield f"{name} doubled", signed.having((name, value))
        yield f"{name} emptied", signed.setting(name, "")
        # Another name that results in a similar line of the string to sign.
        yield (
            f"{name} without its dashes",
            signed.lacking(name).having((name.replace("-", "", 1), value)),
        )
    for name in ("x-ms-meta-added", "x-ms-lease-id", "x-ms-client-request-id", "x-ms-"):
        yield f"{name} added", signed.having((name, "11111111-2222-3333-4444-555555555555"))


def in_path(request: Request, sign: Signer) -> Changes:
    signed = sign(request)
    path = request.path
    others = {
        "longer": f"{path}2",
        "shorter": path[:-1],
        "below": f"{path}/b",
        "ends in a slash": f"{path}/",
        "doubled slash": path.replace("/", "//", 2),
        "dot": path.replace("/", "/./", 1),
        "dots": f"{path}/../{path.rpartition('/')[2]}",
        "encoded letter": f"{path[:-1]}%{ord(path[-1]):02x}",
        "encoded slash": "/" + path[1:].replace("/", "%2F", 1),
        "upper case": path[:-1] + path[-1:].upper() + "X",
        "NUL": f"{path}%00",
        "account encoded": path.replace("/d", "/%64", 1),
    }
    for label, other in others.items():
        yield f"path: {label}", replace(signed, path=other)


def in_method(request: Request, sign: Signer) -> Changes:
    signed = sign(request)
    for method in METHODS:
        if method != request.method:
            yield f"method: {method}", replace(signed, method=method)


def in_content_length(request: Request, sign: Signer) -> Changes:
    signed = sign(request)
    body = signed.body + b" "
    yield "a longer body", replace(signed.setting("Content-Length", str(len(body))), body=body)


def in_date(request: Request, sign: Signer) -> Changes:
    signed = sign(request.having(("Date", http_date())))
    later = http_date(60)
    yield "date changed", signed.setting("Date", later)
    yield "date removed", signed.lacking("Date")
    yield "date replaced", signed.lacking("Date").having(("x-ms-date", later))
    yield "date joined by another", signed.having(("x-ms-date", later))
    yield "date doubled", signed.having(("Date", later))


def in_query(request: Request, sign: Signer, names: frozenset[str] | None = None) -> Changes:
    """Parameters, or only those with these names, removed, changed, doubled and added."""
    signed = sign(request)
    for name, value in request.query:
        if names is not None and name not in names:
            continue
        yield f"{name} removed", signed.asking_not(name)
        yield f"{name} emptied", signed.asking_not(name).asking((name, ""))
        yield f"{name} changed", signed.asking_not(name).asking((name, value + "s"))
        if value != value.upper():
            yield f"{name} in capitals", signed.asking_not(name).asking((name, value.upper()))
        yield f"{name} doubled", signed.asking((name, value))
        yield f"{name} doubled in capitals", signed.asking((name.upper(), value))
        yield f"{name} encoded twice", signed.asking_not(name).asking((name, f"%25{value}"))
    added = {"timeout": "30", "prefix": "a", "include": "metadata", "snapshot": "now"}
    added |= {"comp": "metadata", "restype": "container", "unheard": "of", "": "a"}
    for name, value in added.items():
        if names is None or name in names:
            yield f"{name} added", signed.asking((name, value))


def accepted(fixture: ServiceFixture[Any], changes: Changes) -> list[tuple[str, str]]:
    """Returns the changed requests that were not refused as expected."""
    return unrefused(fixture.client.ask, changes, *EXPECTED)


def _headers_covered(
    scheme: SigningScheme, operation: Operation[Any], request: Request
) -> dict[str, str]:
    headers, covered = operation.neutral_headers(request), scheme.covers.headers
    return {name: text for name, text in headers.items() if covered is None or name in covered}


@each_operation
def test_neutral_headers(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    """The headers that the next test changes do not change the outcome when they are signed."""
    with fixture.target_for(operation) as target:
        request = operation.request(target)
        names = _headers_covered(fixture.schemes[0], operation, request)
    for name in names:
        with fixture.target_for(operation) as target:
            request = operation.request(target)
            fixture.send_as_owner(request.setting(name, operation.neutral_headers(request)[name]))


@each_scheme
@each_operation
def test_changed_after_signing(
    fixture: ServiceFixture[Any], operation: Operation[Any], scheme: int
) -> None:
    used = fixture.schemes[scheme]
    sign = used.signer(ACCOUNT, KEY)
    with fixture.target_for(operation) as target, fixture.unchanged():
        request = operation.request(target)
        wrong = accepted(fixture, in_path(request, sign))
        wrong += accepted(fixture, in_query(request, sign, used.covers.query))
        headers = _headers_covered(used, operation, request)
        wrong += accepted(fixture, in_headers(request, headers, sign))
        if used.covers.extension_headers:
            wrong += accepted(fixture, in_extension_headers(request, sign))
        if used.covers.method:
            wrong += accepted(fixture, in_method(request, sign))
        if used.covers.content_length:
            wrong += accepted(fixture, in_content_length(request, sign))
        wrong += accepted(fixture, in_date(request, sign))
        assert not wrong


# Two requests with the same string to sign


LISTING: Final = (
    ("restype", "container"),
    ("comp", "list"),
    ("delimiter", "%2F"),
    ("prefix", "secret%3Aonly"),
)


def _without_lines(request: Request) -> Request:
    """Has the same string to sign, with the prefix as a part of the delimiter."""
    query = (("restype", "container"), ("comp", "list"))
    return replace(request, query=(*query, ("delimiter", "%2F%0Aprefix:secret:only")))


def _with_a_longer_name(request: Request) -> Request:
    """Has the same string to sign, with a part of the prefix in the name of the parameter."""
    return request.asking_not("prefix").asking(("prefix%3Asecret", "only"))


@pytest.mark.parametrize("rewritten", [_without_lines, _with_a_longer_name])
def test_ambiguous_string_to_sign(
    blobs: BlobFixture, rewritten: Callable[[Request], Request]
) -> None:
    """A listing signed for a prefix cannot be turned into one of everything."""
    target = blobs.create()
    path = f"/{ACCOUNT}/{target.container}"
    listing = Request("GET", path, LISTING)
    assert b"<BlobPrefix>" not in blobs.send_as_owner(listing).body
    answer = blobs.client.ask(rewritten(SIGN(listing)))
    blobs.remove(target)
    assert not refusal_fault(answer, AUTHENTICATION_FAILED), answer.body

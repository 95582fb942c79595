"""Every operation of every service, sent without credentials, with wrong ones, or another's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.permissions import PERMISSIONS
from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    NO_AUTHENTICATION,
    refusal_fault,
    unrefused,
)
from tests.probes.blob import operations as blob
from tests.probes.blob.fixture import BlobFixture
from tests.probes.client import VERSION, Request, Signer, http_date, shared_key
from tests.probes.service import Operation, ServiceFixture, SigningScheme
from tests.probes.services import (
    SERVICES,
    each_operation,
    each_scheme,
    each_service,
)
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

UNPROBED: Final = {
    "table.entity_group_transaction",
    *[f"{service}.get_user_delegation_key" for service in ("blob", "queue", "file")],
}
"""An envelope that needs no permission: its operations are probed by themselves. And what only
users may do, which no key or token allows."""
OLD_VERSION: Final = "2019-07-07"
ACCESS_LEVELS: Final = {"blob": {"blob"}, "container": {"blob", "container"}}
"""The levels that the access level of a container includes."""


# Checks of the harness


@each_service
def test_every_operation_is_probed(service: str) -> None:
    probed = {f"{service}.{operation.row}" for operation in SERVICES[service].operations}
    assert probed == {name for name in PERMISSIONS if name.startswith(f"{service}.")} - UNPROBED


@each_operation
def test_dump_shows_changes(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    """The dump differs after every operation that changes something, and after no other."""
    with fixture.target_for(operation) as target:
        before = fixture.dump()
        fixture.send_as_owner(operation.request(target))
        assert (fixture.dump() != before) == operation.changes_state


# Keys


@pytest.mark.parametrize("operation", SERVICES["table"].operations, ids=str)
def test_tables_refuse_signatures_of_other_services(
    fixture: ServiceFixture[Any], operation: Operation[Any]
) -> None:
    """The string to sign of tables differs from that of the other services."""
    with fixture.target_for(operation) as target, fixture.unchanged():
        answer = fixture.client.ask(shared_key(ACCOUNT, KEY)(operation.request(target)))
        assert not refusal_fault(answer, AUTHENTICATION_FAILED)


@each_operation
def test_request_signed_for_another_account(
    fixture: ServiceFixture[Any], operation: Operation[Any]
) -> None:
    sign = fixture.schemes[0].signer(SECOND_ACCOUNT, SECOND_KEYS[0])
    with fixture.target_for(operation) as target, fixture.unchanged():
        signed = sign(operation.request(target._replace(account=SECOND_ACCOUNT)))
        redirected = replace(signed, path=operation.request(target).path)
        answer = fixture.client.ask(redirected)
        assert not refusal_fault(answer, AUTHENTICATION_FAILED)


def _malformed_authorizations(signed: str) -> Iterator[str]:
    """Variations of the value of an Authorization header that are not valid."""
    scheme, _, claim = signed.partition(" ")
    account, _, signature = claim.partition(":")
    yield from ("", " ", scheme, f"{scheme} ", f"{scheme} {account}", f"{scheme} {account}:")
    yield f"{scheme} :{signature}"
    yield f"{scheme} {account}:{signature[:-1]}"
    yield f"{scheme} {account}:{signature}="
    yield f"{scheme} {account}:{signature.swapcase()}"
    yield f"{scheme} {account}:{signature.rstrip('=')}"
    # Base64 of the same bytes with other padding bits.
    spare = chr(ord(signature[-2]) + 1)
    yield f"{scheme} {account}:{signature[:-2]}{spare}="
    yield f"{scheme} {account}:{signature}, {signed}"
    yield f"{scheme} {account.upper()}:{signature}"
    yield f"{scheme} {account}-secondary:{signature}"
    yield f"{'SharedKey' if scheme == 'SharedKeyLite' else 'SharedKeyLite'} {claim}"
    yield f"Basic {claim}"
    yield f"Bearer {signature}"


def _malformed(signed: Request) -> Iterator[tuple[str, Request]]:
    authorization = signed.header("authorization") or ""
    for malformed in _malformed_authorizations(authorization):
        yield malformed, signed.setting("Authorization", malformed)
    yield "twice", signed.having(("Authorization", authorization))


def _signed_with_wrong_keys(
    request: Request, scheme: SigningScheme
) -> Iterator[tuple[str, Request]]:
    for key in (WRONG_KEY, *SECOND_KEYS):
        for account in (ACCOUNT, SECOND_ACCOUNT):
            yield f"{account} {key}", scheme.signer(account, key)(request)


def _dated_out_of_range(request: Request, sign: Signer) -> Iterator[tuple[str, Request]]:
    dates = [http_date(seconds) for seconds in (-16 * 60, 16 * 60, -86_400, 86_400 * 365)]
    dates += ["", "now", "2026-11-15T02:50:16Z", http_date().replace("GMT", "CET")]
    for header in ("x-ms-date", "Date"):
        for date in dates:
            yield f"{header}: {date}", sign(request.having((header, date)))


@each_scheme
@each_operation
def test_only_the_owner_is_authorized(
    fixture: ServiceFixture[Any], operation: Operation[Any], scheme: int
) -> None:
    used = fixture.schemes[scheme]
    sign = used.signer(ACCOUNT, KEY)
    unreadable = (
        AUTHENTICATION_FAILED,
        (400, "InvalidAuthenticationInfo"),
        (401, "InvalidAuthenticationInfo"),  # a bearer token
    )
    with fixture.target_for(operation) as target:
        request = operation.request(target)
        with fixture.unchanged():
            wrong = unrefused(fixture.client.ask, _malformed(sign(request)), *unreadable)
            for cases in (
                _signed_with_wrong_keys(request, used),
                _dated_out_of_range(request, sign),
            ):
                wrong += unrefused(fixture.client.ask, cases, AUTHENTICATION_FAILED)
        assert not wrong
        answer = fixture.ask(sign(request))
        assert 200 <= answer.status < 300, answer


# No credentials


def _anonymous(operation: Operation[Any], target: object, version: str) -> Request:
    return operation.request(target).framed().setting("x-ms-version", version)


@each_operation
def test_anonymous_callers(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    with fixture.target_for(operation) as target, fixture.unchanged():
        for version, expected in (
            (VERSION, NO_AUTHENTICATION),
            (OLD_VERSION, (404, "ResourceNotFound")),
        ):
            answer = fixture.client.ask(_anonymous(operation, target, version))
            assert not refusal_fault(answer, expected), version
            assert (answer.status == 401) == ("www-authenticate" in answer.headers)


@pytest.mark.parametrize("access", ["blob", "container"])
@pytest.mark.parametrize(
    "operation",
    [pytest.param(each, id=str(each), marks=each.marks) for each in blob.OPERATIONS],
)
def test_anonymous_callers_read_public_containers(
    blobs: BlobFixture, operation: blob.BlobOperation, access: str
) -> None:
    """Anonymous callers may read what is public, and nothing else, with any version."""
    target = blobs.create_for(operation, access)
    try:
        allowed = operation.rule.public in ACCESS_LEVELS[access]
        with blobs.unchanged():
            for version, expected in (
                (VERSION, NO_AUTHENTICATION),
                (OLD_VERSION, (404, "ResourceNotFound")),
            ):
                answer = blobs.client.ask(_anonymous(operation, target, version))
                if allowed:
                    assert 200 <= answer.status < 300, answer
                else:
                    assert not refusal_fault(answer, expected), answer
                assert (answer.status == 401) == ("www-authenticate" in answer.headers)
    finally:
        blobs.remove(target)


@each_operation
def test_unsigned_token_fields(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    with fixture.target_for(operation) as target, fixture.unchanged():
        request = _anonymous(operation, target, VERSION)
        unsigned = (("sv", VERSION), ("sp", "rwdl"), ("se", "2099-01-01"), ("sr", "c"), ("ss", "b"))
        answer = fixture.client.ask(request.asking(*unsigned))
        assert not refusal_fault(answer, NO_AUTHENTICATION)
        answer = fixture.client.ask(request.asking(*unsigned, ("sig", "")))
        assert not refusal_fault(answer, AUTHENTICATION_FAILED)

"""Nobody does anything without the right: no credentials, wrong ones, or those of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from etagere.auth.permissions import Public
from etagere.protocol.blob.operations import OPERATIONS as SERVED
from tests.permissions import PERMISSIONS
from tests.probes.client import (
    VERSION,
    Request,
    Signer,
    http_date,
    shared_key,
    shared_key_lite,
)
from tests.probes.judgement import refusal
from tests.probes.operations import OPERATIONS, Operation, Place, each_operation
from tests.probes.stage import Stage
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

OLD_VERSION = "2019-07-07"
ACCESSES = {"": Public.NOTHING, "blob": Public.BLOB, "container": Public.CONTAINER}

each_scheme = pytest.mark.parametrize("scheme", [shared_key, shared_key_lite])
Scheme = Callable[[str, str], Signer]


# The ground that the rest stands on


def test_every_operation_is_probed() -> None:
    rows = {name for operation in SERVED for name in operation.permissions}
    assert {operation.row for operation in OPERATIONS} == rows


@each_scheme
@each_operation
def test_the_owner_may(stage: Stage, operation: Operation, scheme: Scheme) -> None:
    sign = scheme(ACCOUNT, KEY)
    with stage.place_for(operation) as place:
        answer = stage.client.ask(sign(operation.request(place)))
        assert 200 <= answer.status < 300, answer


def test_the_owner_is_seen_to_change_things(stage: Stage) -> None:
    """Every operation that changes something shows in the dump by which we judge the others."""
    unseen = []
    for operation in filter(lambda operation: operation.changes, OPERATIONS):
        with stage.place_for(operation) as place:
            before = stage.dump()
            stage.own(operation.request(place))
            if stage.dump() == before:
                unseen.append(operation.name)
    # Renewing an infinite lease, and changing its id, show nowhere.
    hidden = ["renew_container_lease", "change_container_lease"]
    assert unseen == [*hidden, "renew_blob_lease", "change_blob_lease"]


# Keys


@each_scheme
@each_operation
def test_wrong_keys(stage: Stage, operation: Operation, scheme: Scheme) -> None:
    with stage.place_for(operation) as place, stage.unchanged():
        wrong = []
        for key in (WRONG_KEY, SECOND_KEYS[0], SECOND_KEYS[1]):
            for account in (ACCOUNT, SECOND_ACCOUNT):
                answer = stage.client.ask(scheme(account, key)(operation.request(place)))
                if told := refusal(answer, (403, "AuthenticationFailed")):
                    wrong.append((account, key, told))
        assert not wrong


@each_operation
def test_a_request_to_one_account_sent_to_another(stage: Stage, operation: Operation) -> None:
    second = shared_key(SECOND_ACCOUNT, SECOND_KEYS[0])
    with stage.place_for(operation) as place, stage.unchanged():
        signed = second(operation.request(place._replace(account=SECOND_ACCOUNT)))
        redirected = replace(signed, path=operation.request(place).path)
        answer = stage.client.ask(redirected)
        assert not refusal(answer, (403, "AuthenticationFailed"))


def _authorizations(signed: str) -> Iterator[str]:
    """What is nearly the value of an Authorization header."""
    scheme, _, claim = signed.partition(" ")
    account, _, signature = claim.partition(":")
    yield from ("", " ", scheme, f"{scheme} ", f"{scheme} {account}", f"{scheme} {account}:")
    yield f"{scheme} :{signature}"
    yield f"{scheme} {account}:{signature[:-1]}"
    yield f"{scheme} {account}:{signature}="
    yield f"{scheme} {account}:{signature.swapcase()}"
    yield f"{scheme} {account}:{signature.rstrip('=')}"
    # Another spelling of the same bytes: the last bits of base64 that count for nothing.
    spare = chr(ord(signature[-2]) + 1)
    yield f"{scheme} {account}:{signature[:-2]}{spare}="
    yield f"{scheme} {account}:{signature}, {signed}"
    yield f"{scheme} {account.upper()}:{signature}"
    yield f"{scheme} {account}-secondary:{signature}"
    yield f"{'SharedKey' if scheme == 'SharedKeyLite' else 'SharedKeyLite'} {claim}"
    yield f"Basic {claim}"
    yield f"Bearer {signature}"


@each_scheme
@each_operation
def test_nearly_authorized(stage: Stage, operation: Operation, scheme: Scheme) -> None:
    with stage.place_for(operation) as place, stage.unchanged():
        signed = scheme(ACCOUNT, KEY)(operation.request(place))
        authorization = signed.header("authorization")
        assert authorization is not None
        answers = {
            nearly: stage.client.ask(signed.setting("Authorization", nearly))
            for nearly in _authorizations(authorization)
        }
        expected = (
            (403, "AuthenticationFailed"),
            (400, "InvalidAuthenticationInfo"),
            (401, "InvalidAuthenticationInfo"),  # a bearer token
        )
        wrong = {
            nearly: told for nearly in answers if (told := refusal(answers[nearly], *expected))
        }
        assert not wrong
        twice = stage.client.ask(signed.having(("Authorization", authorization)))
        assert not refusal(twice, *expected)


@each_scheme
@each_operation
def test_signed_at_another_time(stage: Stage, operation: Operation, scheme: Scheme) -> None:
    sign = scheme(ACCOUNT, KEY)
    dates = [http_date(seconds) for seconds in (-16 * 60, 16 * 60, -86_400, 86_400 * 365)]
    dates += ["", "now", "2026-11-15T02:50:16Z", http_date().replace("GMT", "CET")]
    with stage.place_for(operation) as place, stage.unchanged():
        request = operation.request(place)
        for header in ("x-ms-date", "Date"):
            for date in dates:
                answer = stage.client.ask(sign(request.having((header, date))))
                assert not refusal(answer, (403, "AuthenticationFailed")), (header, date)


# No credentials


def _anonymous(operation: Operation, place: Place, version: str) -> Request:
    return operation.request(place).framed().setting("x-ms-version", version)


@pytest.mark.parametrize("access", ACCESSES)
@each_operation
def test_callers_without_a_name(stage: Stage, operation: Operation, access: str) -> None:
    """They may read what is public, and nothing else, by any version."""
    place = stage.make_for(operation, access)
    try:
        need = PERMISSIONS[f"blob.{operation.row}"].public
        allowed = need <= ACCESSES[access]
        with stage.unchanged():
            for version, expected in (
                (VERSION, (401, "NoAuthenticationInformation")),
                (OLD_VERSION, (404, "ResourceNotFound")),
            ):
                answer = stage.client.ask(_anonymous(operation, place, version))
                if allowed:
                    assert 200 <= answer.status < 300, answer
                else:
                    assert not refusal(answer, expected), answer
                assert (answer.status == 401) == ("www-authenticate" in answer.headers)
    finally:
        stage.remove(place)


def test_what_is_public() -> None:
    """The whole list: what is added to it is added here."""
    assert {
        operation.row: PERMISSIONS[f"blob.{operation.row}"].public for operation in OPERATIONS
    } == {operation.row: Public.NEVER for operation in OPERATIONS} | {
        "get_blob": Public.BLOB,
        "get_blob_properties": Public.BLOB,
        "get_blob_metadata": Public.BLOB,
        "get_block_list": Public.BLOB,
        "get_page_ranges": Public.BLOB,
        "list_blobs": Public.CONTAINER,
        "get_container_properties": Public.CONTAINER,
        "get_container_metadata": Public.CONTAINER,
    }


@each_operation
def test_parts_of_a_token_are_no_credentials(stage: Stage, operation: Operation) -> None:
    with stage.place_for(operation) as place, stage.unchanged():
        request = _anonymous(operation, place, VERSION)
        unsigned = (("sv", VERSION), ("sp", "rwdl"), ("se", "2099-01-01"), ("sr", "c"), ("ss", "b"))
        answer = stage.client.ask(request.asking(*unsigned))
        assert not refusal(answer, (401, "NoAuthenticationInformation"))
        answer = stage.client.ask(request.asking(*unsigned, ("sig", "")))
        assert not refusal(answer, (403, "AuthenticationFailed"))

"""Each request of a batch is authorized by itself, or by the token of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.probes.answers import refusal_fault
from tests.probes.blob.batches import CONTENT_TYPE, answered, batch
from tests.probes.blob.fixture import BlobFixture
from tests.probes.blob.operations import OPERATIONS, BlobOperation, BlobTarget
from tests.probes.client import VERSION, Request, http_date, shared_key, shared_key_lite
from tests.probes.tokens import Token, account_token, moment, service_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

SIGN = shared_key(ACCOUNT, KEY)

Sender = Callable[[Request], Request]

each_part = pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if operation.row in {"delete_blob", "set_blob_tier"}],
    ids=str,
)
each_envelope = pytest.mark.parametrize("level", ["service", "container"])


UNUSABLE: Final = [(400, "InvalidInput")]
"""The only part of the answer to an invalid batch."""


def _envelope(target: BlobTarget, level: str, parts: list[Request]) -> Request:
    container = level == "container"
    path = f"/{target.account}/" + (target.container if container else "")
    query = (("restype", "container"), ("comp", "batch")) if container else (("comp", "batch"),)
    headers = (("x-ms-version", VERSION), ("Content-Type", CONTENT_TYPE))
    return Request("POST", path, query, headers, batch(parts))


def _unsigned(operation: BlobOperation, target: BlobTarget) -> Request:
    """A part without credentials and version."""
    return operation.request(target).lacking("x-ms-version").having(("Content-Length", "0"))


def _part_faults(blobs: BlobFixture, envelope: Request) -> str:
    """Returns what is wrong with the answer to parts that must all be refused."""
    answer = blobs.client.ask(envelope)
    if answer.status != 202:
        return refusal_fault(answer)
    if answered(answer) == UNUSABLE:
        return ""
    unauthenticated = (400, "InvalidAuthenticationInfo")
    return "".join(
        f"{part}"
        for part in answered(answer)
        if part.status not in {401, 403} and part != unauthenticated
    )


# A batch signed with the key


def _unauthorized_parts(
    unsigned: Request, target: BlobTarget, other: BlobTarget
) -> Iterator[tuple[str, Request]]:
    """Parts that must be refused, although the batch is signed with the key."""
    path = f"/{ACCOUNT}/{other.container}/{other.blob}"
    signed, signature = SIGN(unsigned), SIGN(unsigned).header("authorization") or ""
    yield "no credentials", unsigned
    yield "no credentials, dated", unsigned.having(("x-ms-date", http_date()))
    for key in (WRONG_KEY, *SECOND_KEYS):
        yield "another key", shared_key(ACCOUNT, key)(unsigned)
        yield "another key, Shared Key Lite", shared_key_lite(ACCOUNT, key)(unsigned)
        yield "another account", shared_key(SECOND_ACCOUNT, key)(unsigned)
    yield "another path", replace(signed, path=path)
    yield "signed for another path", replace(SIGN(replace(unsigned, path=path)), path=unsigned.path)
    yield "another method", replace(SIGN(replace(unsigned, method="GET")), method=unsigned.method)
    yield "another header", signed.having(("x-ms-delete-snapshots", "include"))
    yield "two Authorization headers", signed.having(("Authorization", signature))
    yield "an empty Authorization header", signed.setting("Authorization", "")
    yield "an old date", SIGN(unsigned.having(("x-ms-date", http_date(-3_600))))
    tokens = {
        "another container": service_token(ACCOUNT, KEY, other.container),
        "another blob": service_token(ACCOUNT, KEY, target.container, "shelf/boo"),
        "another account": service_token(SECOND_ACCOUNT, SECOND_KEYS[0], target.container),
        "read only": service_token(ACCOUNT, KEY, target.container, permissions="rltf"),
        "expired": service_token(ACCOUNT, KEY, target.container, se=moment(hours=-1)),
        "another address": service_token(ACCOUNT, KEY, target.container, sip="10.0.0.1"),
        "HTTPS only": service_token(ACCOUNT, KEY, target.container, spr="https"),
        "queues": account_token(ACCOUNT, KEY, services="qtf"),
        "containers": account_token(ACCOUNT, KEY, types="sc"),
        "a missing permission": account_token(ACCOUNT, KEY, permissions="rlacupfti"),
        "forged": service_token(ACCOUNT, KEY, target.container, permissions="r").setting(
            "sp", "rwdt"
        ),
    }
    for label, token in tokens.items():
        yield f"a token: {label}", token.put_on(unsigned)


@each_envelope
@each_part
def test_key_of_the_envelope(blobs: BlobFixture, operation: BlobOperation, level: str) -> None:
    other = blobs.create()
    with blobs.target_for(operation) as target:
        unsigned = _unsigned(operation, target)
        with blobs.unchanged():
            faults = {
                label: _part_faults(blobs, SIGN(_envelope(target, level, [part])))
                for label, part in _unauthorized_parts(unsigned, target, other)
            }
            assert not {label: fault for label, fault in faults.items() if fault}
        # With valid credentials the part is carried out.
        for sign in (SIGN, shared_key_lite(ACCOUNT, KEY)):
            last = blobs.client.ask(SIGN(_envelope(target, level, [sign(unsigned)])))
            assert answered(last)[0].status in {200, 202, 404}
    blobs.remove(other)


@each_envelope
@each_part
def test_credentials_of_neighbours(
    blobs: BlobFixture, operation: BlobOperation, level: str
) -> None:
    """A part does not gain the rights of its neighbours."""
    with blobs.target_for(operation) as target, blobs.unchanged():
        unsigned = _unsigned(operation, target)
        nothing = replace(unsigned, path=f"/{ACCOUNT}/{target.container}/nothing")
        token = service_token(ACCOUNT, KEY, target.container, "nothing")
        parts = [SIGN(nothing), unsigned, token.put_on(nothing), unsigned]
        parts_answered = answered(blobs.client.ask(SIGN(_envelope(target, level, parts))))
        assert [part.status for part in parts_answered] == [404, 401, 404, 401]


# A batch with a token


def _insufficient_tokens(target: BlobTarget, other: BlobTarget) -> dict[str, Token]:
    """Tokens that authorize the batch, but not its parts."""
    return {
        "reads": service_token(ACCOUNT, KEY, target.container, permissions="racltf"),
        "reads the account": account_token(ACCOUNT, KEY, permissions="rlacupft"),
        "containers only": account_token(ACCOUNT, KEY, types="sc"),
        "another container": service_token(ACCOUNT, KEY, other.container),
    }


@each_envelope
@each_part
def test_scope_of_the_token(blobs: BlobFixture, operation: BlobOperation, level: str) -> None:
    other = blobs.create()
    with blobs.target_for(operation) as target:
        unsigned = _unsigned(operation, target)
        with blobs.unchanged():
            for label, token in _insufficient_tokens(target, other).items():
                envelope = token.put_on(_envelope(target, level, [unsigned]))
                assert not _part_faults(blobs, envelope), label
        allowed = account_token(ACCOUNT, KEY)
        answer = blobs.client.ask(allowed.put_on(_envelope(target, level, [unsigned])))
        assert answered(answer)[0].status in {200, 202}
    blobs.remove(other)


@each_part
def test_container_token_and_parts_elsewhere(blobs: BlobFixture, operation: BlobOperation) -> None:
    own = blobs.create()
    with blobs.target_for(operation) as target, blobs.unchanged():
        token = service_token(ACCOUNT, KEY, own.container)
        unsigned = _unsigned(operation, target)
        for path in (
            unsigned.path,
            f"/{ACCOUNT}/{own.container}/../{target.container}/{target.blob}",
            f"/{ACCOUNT}/{own.container}%2F..%2F{target.container}/{target.blob}",
            f"/{ACCOUNT}/%2E%2E/{target.container}/{target.blob}",
            f"//{ACCOUNT}/{target.container}/{target.blob}",
            f"/{SECOND_ACCOUNT}/{target.container}/{target.blob}",
            f"http://127.0.0.1/{ACCOUNT}/{target.container}/{target.blob}",
            f"http://{own.container}/{ACCOUNT}/{target.container}/{target.blob}",
        ):
            for level in ("service", "container"):
                envelope = token.put_on(_envelope(own, level, [replace(unsigned, path=path)]))
                answer = blobs.client.ask(envelope)
                if answer.status == 202:
                    assert all(part.status >= 400 for part in answered(answer)), path
                else:
                    assert not refusal_fault(answer), (path, answer)
    blobs.remove(own)


# Operations that are not allowed in a batch


@each_envelope
def test_operations_that_are_not_allowed(blobs: BlobFixture, level: str) -> None:
    """A batch may only delete blobs of its account, or set their tiers."""
    mixed = (400, "AllBatchSubRequestsShouldBeSameApi")
    foreign = blobs.create(account=SECOND_ACCOUNT)
    target = blobs.create()
    delete = next(operation for operation in OPERATIONS if operation.row == "delete_blob")
    tier = next(operation for operation in OPERATIONS if operation.row == "set_blob_tier")
    sign_foreign = shared_key(SECOND_ACCOUNT, SECOND_KEYS[0])
    with blobs.unchanged():
        unsigned = _unsigned(delete, target)
        inner = _envelope(target, level, [SIGN(unsigned)])
        secondary = unsigned.path.replace(ACCOUNT, f"{ACCOUNT}-secondary", 1)
        batches = {
            "another account": [sign_foreign(_unsigned(delete, foreign))],
            "both accounts": [SIGN(unsigned), sign_foreign(_unsigned(delete, foreign))],
            "the secondary": [SIGN(replace(unsigned, path=secondary))],
            "a batch": [SIGN(inner)],
            "both": [SIGN(unsigned), SIGN(_unsigned(tier, target))],
            "a container": [
                SIGN(
                    Request("DELETE", f"/{ACCOUNT}/{target.container}", (("restype", "container"),))
                )
            ],
            "none": [],
        }
        batches |= {
            operation.name: [SIGN(operation.request(target).lacking("x-ms-version"))]
            for operation in OPERATIONS
            if operation.row not in {"delete_blob", "set_blob_tier"}
        }
        for label, parts in batches.items():
            answer = blobs.client.ask(SIGN(_envelope(target, level, parts)))
            if label == "the secondary" and answer.status == 202:
                assert all(part.status == 403 for part in answered(answer)), answer
            elif label == "both":
                assert not refusal_fault(answer, mixed), (label, answer)
            else:
                assert answer.status == 202
                assert answered(answer) == UNUSABLE, (label, answer)
    for created in (target, foreign):
        blobs.remove(created)


def test_another_account_by_host(blobs: BlobFixture) -> None:
    """If the host names the account, it is that of all parts."""
    foreign = blobs.create(account=SECOND_ACCOUNT)
    target = blobs.create()
    delete = next(operation for operation in OPERATIONS if operation.row == "delete_blob")
    host = ("Host", f"{SECOND_ACCOUNT}.blob.localhost")
    with blobs.unchanged():
        unsigned = _unsigned(delete, foreign)
        for path in (unsigned.path, f"/{foreign.container}/{foreign.blob}"):
            for part in (
                SIGN(replace(unsigned, path=path)),
                SIGN(replace(unsigned, path=path)).having(host),
            ):
                answer = blobs.client.ask(SIGN(_envelope(target, "service", [part])))
                if answer.status == 202:
                    assert answered(answer)[0].status in {400, 403, 404}, (path, answer)
                else:
                    assert not refusal_fault(answer), (path, answer)
    for created in (target, foreign):
        blobs.remove(created)

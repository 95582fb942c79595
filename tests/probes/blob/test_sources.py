"""A copy source is read only if the caller may read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest

from tests.probes.answers import refusal_fault
from tests.probes.blob.fixture import SOURCE, BlobFixture
from tests.probes.blob.operations import OPERATIONS, SERVER_URL, BlobOperation, BlobTarget
from tests.probes.client import Answer, Request, shared_key
from tests.probes.tokens import Token, account_token, moment, service_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

SIGN = shared_key(ACCOUNT, KEY)
SIGN_SECOND = shared_key(SECOND_ACCOUNT, SECOND_KEYS[0])
WITH_SOURCES = [form for form in OPERATIONS if form.source]
# Rows of operations that read a source in the same account as the caller.
OWNER_READS = {"copy_blob", "incremental_copy_blob"}
CANNOT_VERIFY = "CannotVerifyCopySource"

each_operation = pytest.mark.parametrize("operation", WITH_SOURCES, ids=str)


def _with_source(request: Request, address: str) -> Request:
    return request.setting("x-ms-copy-source", address)


def _read_fault(answer: Answer, *codes: str) -> str:
    """Returns what is wrong with the answer to a request whose source must not be read."""
    if SOURCE in answer.body or SOURCE[:64] in answer.body:
        return "the source was shown"
    if fault := refusal_fault(answer):
        return fault
    expected = (CANNOT_VERIFY, "InvalidHeaderValue", *codes)
    return "" if answer.code in expected else f"answered {answer.status} {answer.code}"


def _insufficient_tokens(target: BlobTarget, other: BlobTarget) -> Iterator[tuple[str, Token]]:
    """Tokens that do not grant reading the source."""

    def token(**options: str) -> Token:
        return service_token(ACCOUNT, KEY, target.container, target.source, **options)

    yield "only writes", token(permissions="acwdxytmeop")
    yield "has expired", token(se=moment(hours=-1))
    yield "is not valid yet", token(st=moment(minutes=30))
    yield "is for another address", token(sip="10.0.0.1")
    yield "is for the address of this server", token(sip="0.0.0.0")
    yield "is for HTTPS", token(spr="https")
    yield "was forged", token(permissions="w").setting("sp", "rw")
    yield "has no signature", token().lacking("sig")
    yield "names a missing policy", service_token(ACCOUNT, KEY, target.container, si="readers")
    yield "is for a snapshot", token(sr="bs")
    yield "is for the destination", service_token(ACCOUNT, KEY, target.container, target.blob)
    yield "is for a prefix", service_token(ACCOUNT, KEY, target.container, target.source[:-1])
    yield "is for another container", service_token(ACCOUNT, KEY, other.container)
    yield (
        "only writes and lists the container",
        service_token(ACCOUNT, KEY, target.container, permissions="wlf"),
    )
    for key in (WRONG_KEY, *SECOND_KEYS):
        yield "has another key", service_token(ACCOUNT, key, target.container, target.source)
        yield "is of another account", service_token(SECOND_ACCOUNT, key, target.container)
    yield "is for the service", account_token(ACCOUNT, KEY, types="sc")
    yield "is for queues", account_token(ACCOUNT, KEY, services="qtf")
    yield "lacks a permission", account_token(ACCOUNT, KEY, permissions="wdxylacupfti")


def _spellings(target: BlobTarget) -> Iterator[str]:
    """URLs of the source without a token."""
    path = f"/{target.account}/{target.container}/{target.source}"
    snapshot = f"snapshot={quote(target.snapshot or '2026-01-01T00:00:00.0000000Z')}"
    for written in (
        path,
        path.replace("s", "%73"),
        path[:-1] + f"%{ord(path[-1]):02X}",
        f"/{target.account}-secondary/{target.container}/{target.source}",
        f"/{target.account}/{target.container}/{target.source.replace('/', '%2F')}",
        f"/{target.account}/nothing/../{target.container}/{target.source}",
        f"/{target.account}/{target.container}/x/../{target.source}",
        f"/{target.account}/{target.container}//{target.source}",
        f"//{target.account}/{target.container}/{target.source}",
        f"/{target.account}/{target.container}/./{target.source}",
        f"/./{target.account}/{target.container}/{target.source}",
        f"/{target.account}/{target.container}%2F{target.source}",
        f"/{target.account}/%24root/{target.container}",
    ):
        yield SERVER_URL + written
        yield f"{SERVER_URL}{written}?{snapshot}"
    for authority in (
        "localhost", "[::1]", "127.0.0.1:80", "127.0.0.1.", "127.1", "2130706433", "0.0.0.0",
        f"{target.account}.blob.127.0.0.1", "devstoreaccount1.blob.localhost", "other@127.0.0.1",
        "127.0.0.1:80@127.0.0.1", "127.0.0.1%00", "127.0.0.1\\@127.0.0.1", "127.0.0.1#@localhost",
    ):  # fmt: skip
        yield f"http://{authority}{path}"
        yield f"https://{authority}{path}"
        yield f"http://{authority}/{target.container}/{target.source}"
    yield path
    yield f"{SERVER_URL}{path}?sv=2021-12-02&sp=r&se=2099-01-01&sr=b"
    yield f"{SERVER_URL}{path}?sv=2021-12-02&sp=r&se=2099-01-01&sr=b&sig="
    yield f"file://{path}"
    yield f"ftp://127.0.0.1{path}"


# Checks of the harness


@each_operation
def test_readable_sources(blobs: BlobFixture, operation: BlobOperation) -> None:
    """The sources of the other tests can be read with a token."""
    with blobs.target_for(operation) as target:
        everything = service_token(ACCOUNT, KEY, target.container)
        blobs.send_as_owner(_with_source(operation.request(target), target.source_address))
        if not operation.creates:
            answer = blobs.client.ask(everything.put_on(operation.request(target)))
            assert 200 <= answer.status < 300, answer


# A token for the destination


@each_operation
def test_rights_on_the_destination(blobs: BlobFixture, operation: BlobOperation) -> None:
    other = blobs.create()
    with blobs.target_for(operation) as target:
        request = operation.request(target)
        token = service_token(ACCOUNT, KEY, target.container, target.blob, permissions="racwdt")
        if operation.creates:
            token = service_token(ACCOUNT, KEY, target.container, target.free_blob)
        wrong = []
        with blobs.unchanged():
            for address in _spellings(target):
                authorized = token.put_on(_with_source(request, address))
                if fault := _read_fault(blobs.client.ask(authorized)):
                    wrong.append((address, fault))
            plain = target.source_address.partition("?")[0]
            for label, useless in _insufficient_tokens(target, other):
                authorized = token.put_on(_with_source(request, f"{plain}?{useless}"))
                if fault := _read_fault(blobs.client.ask(authorized)):
                    wrong.append((label, fault))
            doubled = f"{target.source_address}&sp=rw"
            if fault := _read_fault(blobs.client.ask(token.put_on(_with_source(request, doubled)))):
                wrong.append(("a field twice", fault))
            assert not wrong
    blobs.remove(other)


@each_operation
def test_token_of_the_request(blobs: BlobFixture, operation: BlobOperation) -> None:
    """A token of the request is not used for the source, even if it covers it."""
    with blobs.target_for(operation) as target, blobs.unchanged():
        plain = target.source_address.partition("?")[0]
        request = _with_source(operation.request(target), plain)
        for token in (account_token(ACCOUNT, KEY), service_token(ACCOUNT, KEY, target.container)):
            assert not _read_fault(blobs.client.ask(token.put_on(request)))


# Requests signed with a key


@each_operation
def test_key_and_sources_of_another_account(blobs: BlobFixture, operation: BlobOperation) -> None:
    foreign = blobs.create(account=SECOND_ACCOUNT)
    with blobs.target_for(operation) as target, blobs.unchanged():
        request = operation.request(target)
        path = f"/{SECOND_ACCOUNT}/{foreign.container}/{foreign.blob}"
        own = service_token(ACCOUNT, KEY, foreign.container, foreign.blob)
        disguised = service_token(SECOND_ACCOUNT, KEY, foreign.container, foreign.blob)
        for address in (
            f"{SERVER_URL}{path}",
            f"{SERVER_URL}{path}?{own}",
            f"{SERVER_URL}{path}?{disguised}",
            f"{SERVER_URL}/{ACCOUNT}/../{path[1:]}",
            f"http://{SECOND_ACCOUNT}.blob.127.0.0.1/{foreign.container}/{foreign.blob}",
        ):
            fault = _read_fault(
                blobs.client.ask(SIGN(_with_source(request, address))), "BlobNotFound"
            )
            assert not fault, (address, fault)
    blobs.remove(foreign)


@each_operation
def test_key_and_sources_of_the_account(blobs: BlobFixture, operation: BlobOperation) -> None:
    """Copy Blob reads the source as the caller; all other operations need a token."""
    with blobs.target_for(operation) as target:
        plain = target.source_address.partition("?")[0]
        if target.snapshot:
            plain += f"?snapshot={quote(target.snapshot)}"
        request = SIGN(_with_source(operation.request(target), plain))
        if operation.row in OWNER_READS:
            assert blobs.client.ask(request).status == 202
        else:
            with blobs.unchanged():
                assert not _read_fault(blobs.client.ask(request))


@each_operation
def test_other_credentials_for_a_source(blobs: BlobFixture, operation: BlobOperation) -> None:
    """Credentials that are not accepted are refused, not ignored."""
    with blobs.target_for(operation) as target, blobs.unchanged():
        plain = target.source_address.partition("?")[0]
        request = _with_source(operation.request(target), plain)
        for value in ("Bearer a", SIGN(Request("GET", plain)).header("authorization") or ""):
            signed = SIGN(request.having(("x-ms-copy-source-authorization", value)))
            assert not _read_fault(blobs.client.ask(signed), "UnsupportedHeader")


# Public sources


def test_tags_of_public_sources(blobs: BlobFixture) -> None:
    """Copying tags needs the permission to read them; public access and `r` are not enough."""
    source, target = blobs.create(access="blob"), blobs.create()
    address = f"{SERVER_URL}/{ACCOUNT}/{source.container}/{source.blob}"
    reads = service_token(ACCOUNT, KEY, source.container, source.blob, permissions="r")
    both = service_token(ACCOUNT, KEY, source.container, source.blob, permissions="rt")
    option = ("x-ms-copy-source-tag-option", "COPY")
    for row in ("copy_blob_from_url", "put_blob_from_url"):
        form = next(form for form in OPERATIONS if form.row == row)
        request = form.request(target)
        with blobs.unchanged():
            for refused in (address, f"{address}?{reads}"):
                assert not _read_fault(
                    blobs.client.ask(SIGN(_with_source(request, refused).having(option)))
                )
        for allowed in (address, f"{address}?{reads}"):
            blobs.send_as_owner(_with_source(request, allowed))
        blobs.send_as_owner(_with_source(request, f"{address}?{both}").having(option))
    for created in (source, target):
        blobs.remove(created)


@each_operation
def test_sources_of_another_account(blobs: BlobFixture, operation: BlobOperation) -> None:
    """The owner of one account copies from another only what a token grants."""
    second = blobs.create(account=SECOND_ACCOUNT, kind=operation.kind)
    with blobs.target_for(operation) as target:
        request = replace(operation.request(target), path=operation.request(second).path)
        plain = target.source_address.partition("?")[0]
        with blobs.unchanged():
            for token in ("", service_token(ACCOUNT, WRONG_KEY, target.container)):
                signed = SIGN_SECOND(_with_source(request, f"{plain}?{token}"))
                assert not _read_fault(blobs.client.ask(signed))
        answer = blobs.client.ask(SIGN_SECOND(request))
        assert 200 <= answer.status < 300, answer
    blobs.remove(second)

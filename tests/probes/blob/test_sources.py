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
FROM_SOURCES = [form for form in OPERATIONS if form.source]
# The owner of both ends need not say so again.
OWNER_READS = {"copy_blob", "incremental_copy_blob"}
UNREAD = "CannotVerifyCopySource"

each_operation = pytest.mark.parametrize("operation", FROM_SOURCES, ids=str)


def _from(request: Request, address: str) -> Request:
    return request.setting("x-ms-copy-source", address)


def _unread(answer: Answer, *codes: str) -> str:
    """What is wrong with the answer to a request whose source must not be read."""
    if SOURCE in answer.body or SOURCE[:64] in answer.body:
        return "the source was shown"
    if told := refusal_fault(answer):
        return told
    expected = (UNREAD, "InvalidHeaderValue", *codes)
    return "" if answer.code in expected else f"answered {answer.status} {answer.code}"


def _useless(target: BlobTarget, other: BlobTarget) -> Iterator[tuple[str, Token]]:
    """Tokens that do not let anybody read the source."""

    def made(**options: str) -> Token:
        return service_token(ACCOUNT, KEY, target.container, target.source, **options)

    yield "writes", made(permissions="acwdxytmeop")
    yield "is past", made(se=moment(hours=-1))
    yield "is to come", made(st=moment(minutes=30))
    yield "comes from elsewhere", made(sip="10.0.0.1")
    yield "comes from this server", made(sip="0.0.0.0")
    yield "is encrypted", made(spr="https")
    yield "was forged", made(permissions="w").setting("sp", "rw")
    yield "lacks its signature", made().lacking("sig")
    yield "has no policy", service_token(ACCOUNT, KEY, target.container, si="readers")
    yield "is for a snapshot", made(sr="bs")
    yield "is for the destination", service_token(ACCOUNT, KEY, target.container, target.blob)
    yield "is for a prefix", service_token(ACCOUNT, KEY, target.container, target.source[:-1])
    yield "is for another container", service_token(ACCOUNT, KEY, other.container)
    yield "writes the container", service_token(ACCOUNT, KEY, target.container, permissions="wlf")
    for key in (WRONG_KEY, *SECOND_KEYS):
        yield "has another key", service_token(ACCOUNT, key, target.container, target.source)
        yield "is of another account", service_token(SECOND_ACCOUNT, key, target.container)
    yield "is for the service", account_token(ACCOUNT, KEY, types="sc")
    yield "is for queues", account_token(ACCOUNT, KEY, services="qtf")
    yield "lacks a letter", account_token(ACCOUNT, KEY, permissions="wdxylacupfti")


def _spellings(target: BlobTarget) -> Iterator[str]:
    """Addresses of the source, without a right to read it."""
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


# The ground that the rest stands on


@each_operation
def test_whoever_may_read_it_does(blobs: BlobFixture, operation: BlobOperation) -> None:
    """So that what is refused below is refused for its source."""
    with blobs.target_for(operation) as target:
        everything = service_token(ACCOUNT, KEY, target.container)
        blobs.send_as_owner(_from(operation.request(target), target.source_address))
        if not operation.creates:
            answer = blobs.client.ask(everything.put_on(operation.request(target)))
            assert 200 <= answer.status < 300, answer


# A token for the destination


@each_operation
def test_a_destination_opens_no_source(blobs: BlobFixture, operation: BlobOperation) -> None:
    other = blobs.create()
    with blobs.target_for(operation) as target:
        request = operation.request(target)
        token = service_token(ACCOUNT, KEY, target.container, target.blob, permissions="racwdt")
        if operation.creates:
            token = service_token(ACCOUNT, KEY, target.container, target.free_blob)
        wrong = []
        with blobs.unchanged():
            for address in _spellings(target):
                asked = token.put_on(_from(request, address))
                if told := _unread(blobs.client.ask(asked)):
                    wrong.append((address, told))
            plain = target.source_address.partition("?")[0]
            for label, useless in _useless(target, other):
                asked = token.put_on(_from(request, f"{plain}?{useless}"))
                if told := _unread(blobs.client.ask(asked)):
                    wrong.append((label, told))
            doubled = f"{target.source_address}&sp=rw"
            if told := _unread(blobs.client.ask(token.put_on(_from(request, doubled)))):
                wrong.append(("a field twice", told))
            assert not wrong
    blobs.remove(other)


@each_operation
def test_a_token_in_the_request_is_not_for_the_source(
    blobs: BlobFixture, operation: BlobOperation
) -> None:
    """Even one that would do: it was not given for it."""
    with blobs.target_for(operation) as target, blobs.unchanged():
        plain = target.source_address.partition("?")[0]
        request = _from(operation.request(target), plain)
        for token in (account_token(ACCOUNT, KEY), service_token(ACCOUNT, KEY, target.container)):
            assert not _unread(blobs.client.ask(token.put_on(request)))


# A key


@each_operation
def test_a_key_opens_only_its_account(blobs: BlobFixture, operation: BlobOperation) -> None:
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
            told = _unread(blobs.client.ask(SIGN(_from(request, address))), "BlobNotFound")
            assert not told, (address, told)
    blobs.remove(foreign)


@each_operation
def test_a_key_is_not_sent_along(blobs: BlobFixture, operation: BlobOperation) -> None:
    """Only copies of blobs are read by the one who asks; whatever else needs a token."""
    with blobs.target_for(operation) as target:
        plain = target.source_address.partition("?")[0]
        if target.snapshot:
            plain += f"?snapshot={quote(target.snapshot)}"
        request = SIGN(_from(operation.request(target), plain))
        if operation.row in OWNER_READS:
            assert blobs.client.ask(request).status == 202
        else:
            with blobs.unchanged():
                assert not _unread(blobs.client.ask(request))


@each_operation
def test_other_credentials_for_a_source(blobs: BlobFixture, operation: BlobOperation) -> None:
    """What other schemes would carry is refused, not ignored."""
    with blobs.target_for(operation) as target, blobs.unchanged():
        plain = target.source_address.partition("?")[0]
        request = _from(operation.request(target), plain)
        for value in ("Bearer a", SIGN(Request("GET", plain)).header("authorization") or ""):
            asked = SIGN(request.having(("x-ms-copy-source-authorization", value)))
            assert not _unread(blobs.client.ask(asked), "UnsupportedHeader")


# What is public, and what comes with it


def test_public_blobs_do_not_show_their_tags(blobs: BlobFixture) -> None:
    """Tags are copied by those who may read them: not by everybody, nor with a mere `r`."""
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
                assert not _unread(blobs.client.ask(SIGN(_from(request, refused).having(option))))
        for allowed in (address, f"{address}?{reads}"):
            blobs.send_as_owner(_from(request, allowed))
        blobs.send_as_owner(_from(request, f"{address}?{both}").having(option))
    for made in (source, target):
        blobs.remove(made)


@each_operation
def test_sources_of_another_account(blobs: BlobFixture, operation: BlobOperation) -> None:
    """The owner of one account copies from another what a token lets it read, and no more."""
    second = blobs.create(account=SECOND_ACCOUNT, kind=operation.kind)
    with blobs.target_for(operation) as target:
        request = replace(operation.request(target), path=operation.request(second).path)
        plain = target.source_address.partition("?")[0]
        with blobs.unchanged():
            for token in ("", service_token(ACCOUNT, WRONG_KEY, target.container)):
                asked = SIGN_SECOND(_from(request, f"{plain}?{token}"))
                assert not _unread(blobs.client.ask(asked))
        answer = blobs.client.ask(SIGN_SECOND(request))
        assert 200 <= answer.status < 300, answer
    blobs.remove(second)

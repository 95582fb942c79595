"""Who may write somewhere does not thereby read: a source is opened to those who may read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest

from tests.probes.client import Answer, Request, shared_key
from tests.probes.judgement import refusal
from tests.probes.operations import HERE, OPERATIONS, Operation, Place
from tests.probes.stage import SOURCE, Stage
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
    if told := refusal(answer):
        return told
    expected = (UNREAD, "InvalidHeaderValue", *codes)
    return "" if answer.code in expected else f"answered {answer.status} {answer.code}"


def _useless(place: Place, other: Place) -> Iterator[tuple[str, Token]]:
    """Tokens that do not let anybody read the source."""

    def made(**options: str) -> Token:
        return service_token(ACCOUNT, KEY, place.container, place.source, **options)

    yield "writes", made(permissions="acwdxytmeop")
    yield "is past", made(se=moment(hours=-1))
    yield "is to come", made(st=moment(minutes=30))
    yield "comes from elsewhere", made(sip="10.0.0.1")
    yield "comes from this server", made(sip="0.0.0.0")
    yield "is encrypted", made(spr="https")
    yield "was forged", made(permissions="w").setting("sp", "rw")
    yield "lacks its signature", made().lacking("sig")
    yield "has no policy", service_token(ACCOUNT, KEY, place.container, si="readers")
    yield "is for a snapshot", made(sr="bs")
    yield "is for the destination", service_token(ACCOUNT, KEY, place.container, place.blob)
    yield "is for a prefix", service_token(ACCOUNT, KEY, place.container, place.source[:-1])
    yield "is for another container", service_token(ACCOUNT, KEY, other.container)
    yield "writes the container", service_token(ACCOUNT, KEY, place.container, permissions="wlf")
    for key in (WRONG_KEY, *SECOND_KEYS):
        yield "has another key", service_token(ACCOUNT, key, place.container, place.source)
        yield "is of another account", service_token(SECOND_ACCOUNT, key, place.container)
    yield "is for the service", account_token(ACCOUNT, KEY, types="sc")
    yield "is for queues", account_token(ACCOUNT, KEY, services="qtf")
    yield "lacks a letter", account_token(ACCOUNT, KEY, permissions="wdxylacupfti")


def _spellings(place: Place) -> Iterator[str]:
    """Addresses of the source, without a right to read it."""
    path = f"/{place.account}/{place.container}/{place.source}"
    snapshot = f"snapshot={quote(place.snapshot or '2026-01-01T00:00:00.0000000Z')}"
    for written in (
        path,
        path.replace("s", "%73"),
        path[:-1] + f"%{ord(path[-1]):02X}",
        f"/{place.account}-secondary/{place.container}/{place.source}",
        f"/{place.account}/{place.container}/{place.source.replace('/', '%2F')}",
        f"/{place.account}/nothing/../{place.container}/{place.source}",
        f"/{place.account}/{place.container}/x/../{place.source}",
        f"/{place.account}/{place.container}//{place.source}",
        f"//{place.account}/{place.container}/{place.source}",
        f"/{place.account}/{place.container}/./{place.source}",
        f"/./{place.account}/{place.container}/{place.source}",
        f"/{place.account}/{place.container}%2F{place.source}",
        f"/{place.account}/%24root/{place.container}",
    ):
        yield HERE + written
        yield f"{HERE}{written}?{snapshot}"
    for authority in (
        "localhost", "[::1]", "127.0.0.1:80", "127.0.0.1.", "127.1", "2130706433", "0.0.0.0",
        f"{place.account}.blob.127.0.0.1", "devstoreaccount1.blob.localhost", "other@127.0.0.1",
        "127.0.0.1:80@127.0.0.1", "127.0.0.1%00", "127.0.0.1\\@127.0.0.1", "127.0.0.1#@localhost",
    ):  # fmt: skip
        yield f"http://{authority}{path}"
        yield f"https://{authority}{path}"
        yield f"http://{authority}/{place.container}/{place.source}"
    yield path
    yield f"{HERE}{path}?sv=2021-12-02&sp=r&se=2099-01-01&sr=b"
    yield f"{HERE}{path}?sv=2021-12-02&sp=r&se=2099-01-01&sr=b&sig="
    yield f"file://{path}"
    yield f"ftp://127.0.0.1{path}"


# The ground that the rest stands on


@each_operation
def test_whoever_may_read_it_does(stage: Stage, operation: Operation) -> None:
    """So that what is refused below is refused for its source."""
    with stage.place_for(operation) as place:
        everything = service_token(ACCOUNT, KEY, place.container)
        stage.own(_from(operation.request(place), place.source_address))
        if not operation.creates:
            answer = stage.client.ask(everything.put_on(operation.request(place)))
            assert 200 <= answer.status < 300, answer


# A token for the destination


@each_operation
def test_a_destination_opens_no_source(stage: Stage, operation: Operation) -> None:
    other = stage.make()
    with stage.place_for(operation) as place:
        request = operation.request(place)
        token = service_token(ACCOUNT, KEY, place.container, place.blob, permissions="racwdt")
        if operation.creates:
            token = service_token(ACCOUNT, KEY, place.container, place.free_blob)
        wrong = []
        with stage.unchanged():
            for address in _spellings(place):
                asked = token.put_on(_from(request, address))
                if told := _unread(stage.client.ask(asked)):
                    wrong.append((address, told))
            plain = place.source_address.partition("?")[0]
            for label, useless in _useless(place, other):
                asked = token.put_on(_from(request, f"{plain}?{useless}"))
                if told := _unread(stage.client.ask(asked)):
                    wrong.append((label, told))
            doubled = f"{place.source_address}&sp=rw"
            if told := _unread(stage.client.ask(token.put_on(_from(request, doubled)))):
                wrong.append(("a field twice", told))
            assert not wrong
    stage.remove(other)


@each_operation
def test_a_token_in_the_request_is_not_for_the_source(stage: Stage, operation: Operation) -> None:
    """Even one that would do: it was not given for it."""
    with stage.place_for(operation) as place, stage.unchanged():
        plain = place.source_address.partition("?")[0]
        request = _from(operation.request(place), plain)
        for token in (account_token(ACCOUNT, KEY), service_token(ACCOUNT, KEY, place.container)):
            assert not _unread(stage.client.ask(token.put_on(request)))


# A key


@each_operation
def test_a_key_opens_only_its_account(stage: Stage, operation: Operation) -> None:
    foreign = stage.make(account=SECOND_ACCOUNT)
    with stage.place_for(operation) as place, stage.unchanged():
        request = operation.request(place)
        path = f"/{SECOND_ACCOUNT}/{foreign.container}/{foreign.blob}"
        own = service_token(ACCOUNT, KEY, foreign.container, foreign.blob)
        disguised = service_token(SECOND_ACCOUNT, KEY, foreign.container, foreign.blob)
        for address in (
            f"{HERE}{path}",
            f"{HERE}{path}?{own}",
            f"{HERE}{path}?{disguised}",
            f"{HERE}/{ACCOUNT}/../{path[1:]}",
            f"http://{SECOND_ACCOUNT}.blob.127.0.0.1/{foreign.container}/{foreign.blob}",
        ):
            told = _unread(stage.client.ask(SIGN(_from(request, address))), "BlobNotFound")
            assert not told, (address, told)
    stage.remove(foreign)


@each_operation
def test_a_key_is_not_sent_along(stage: Stage, operation: Operation) -> None:
    """Only copies of blobs are read by the one who asks; whatever else needs a token."""
    with stage.place_for(operation) as place:
        plain = place.source_address.partition("?")[0]
        if place.snapshot:
            plain += f"?snapshot={quote(place.snapshot)}"
        request = SIGN(_from(operation.request(place), plain))
        if operation.row in OWNER_READS:
            assert stage.client.ask(request).status == 202
        else:
            with stage.unchanged():
                assert not _unread(stage.client.ask(request))


@each_operation
def test_credentials_for_a_source_are_not_made_up(stage: Stage, operation: Operation) -> None:
    """What other schemes would carry is refused, not ignored."""
    with stage.place_for(operation) as place, stage.unchanged():
        plain = place.source_address.partition("?")[0]
        request = _from(operation.request(place), plain)
        for value in ("Bearer a", SIGN(Request("GET", plain)).header("authorization") or ""):
            asked = SIGN(request.having(("x-ms-copy-source-authorization", value)))
            assert not _unread(stage.client.ask(asked), "UnsupportedHeader")


# What is public, and what comes with it


def test_public_blobs_do_not_show_their_tags(stage: Stage) -> None:
    """Tags are copied by those who may read them: not by everybody, nor with a mere `r`."""
    source, place = stage.make(access="blob"), stage.make()
    address = f"{HERE}/{ACCOUNT}/{source.container}/{source.blob}"
    reads = service_token(ACCOUNT, KEY, source.container, source.blob, permissions="r")
    both = service_token(ACCOUNT, KEY, source.container, source.blob, permissions="rt")
    option = ("x-ms-copy-source-tag-option", "COPY")
    for row in ("copy_blob_from_url", "put_blob_from_url"):
        form = next(form for form in OPERATIONS if form.row == row)
        request = form.request(place)
        with stage.unchanged():
            for refused in (address, f"{address}?{reads}"):
                assert not _unread(stage.client.ask(SIGN(_from(request, refused).having(option))))
        for allowed in (address, f"{address}?{reads}"):
            stage.own(_from(request, allowed))
        stage.own(_from(request, f"{address}?{both}").having(option))
    for made in (source, place):
        stage.remove(made)


@each_operation
def test_sources_of_another_account(stage: Stage, operation: Operation) -> None:
    """The owner of one account copies from another what a token lets it read, and no more."""
    second = stage.make(account=SECOND_ACCOUNT, kind=operation.kind)
    with stage.place_for(operation) as place:
        request = replace(operation.request(place), path=operation.request(second).path)
        plain = place.source_address.partition("?")[0]
        with stage.unchanged():
            for token in ("", service_token(ACCOUNT, WRONG_KEY, place.container)):
                asked = SIGN_SECOND(_from(request, f"{plain}?{token}"))
                assert not _unread(stage.client.ask(asked))
        answer = stage.client.ask(SIGN_SECOND(request))
        assert 200 <= answer.status < 300, answer
    stage.remove(second)

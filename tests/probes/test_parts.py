"""The requests of a batch are let in each by itself: whoever sends the whole lends them nothing but
the token that it came with, and that no further than it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.probes.client import VERSION, Request, http_date, shared_key, shared_key_lite
from tests.probes.judgement import refusal
from tests.probes.operations import OPERATIONS, Operation, Place
from tests.probes.parts import CONTENT_TYPE, answered, batch
from tests.probes.stage import Stage
from tests.probes.tokens import Token, account_token, moment, service_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

SIGN = shared_key(ACCOUNT, KEY)

Sender = Callable[[Request], Request]

each_part = pytest.mark.parametrize(
    "operation",
    [form for form in OPERATIONS if form.row in {"delete_blob", "set_blob_tier"}],
    ids=str,
)
each_envelope = pytest.mark.parametrize("level", ["service", "container"])


UNUSABLE: Final = [(400, "InvalidInput")]
"""The only part of the answer to what is no batch."""


def _envelope(place: Place, level: str, parts: list[Request]) -> Request:
    container = level == "container"
    path = f"/{place.account}/" + (place.container if container else "")
    query = (("restype", "container"), ("comp", "batch")) if container else (("comp", "batch"),)
    headers = (("x-ms-version", VERSION), ("Content-Type", CONTENT_TYPE))
    return Request("POST", path, query, headers, batch(parts))


def _bare(operation: Operation, place: Place) -> Request:
    """A part without credentials; what version it has, the whole says."""
    return operation.request(place).lacking("x-ms-version").having(("Content-Length", "0"))


def _carried_out(stage: Stage, envelope: Request) -> str:
    """What is wrong with the answer to parts of which none is to be carried out; "" if nothing."""
    answer = stage.client.ask(envelope)
    if answer.status != 202:
        return refusal(answer)
    if answered(answer) == UNUSABLE:
        return ""
    unauthenticated = (400, "InvalidAuthenticationInfo")
    return "".join(
        f"{part}"
        for part in answered(answer)
        if part.status not in {401, 403} and part != unauthenticated
    )


# By whoever has the key


def _strangers(bare: Request, place: Place, other: Place) -> Iterator[tuple[str, Request]]:
    """Parts that nobody may send, and that a key around them must not help."""
    path = f"/{ACCOUNT}/{other.container}/{other.blob}"
    signed, signature = SIGN(bare), SIGN(bare).header("authorization") or ""
    yield "no credentials", bare
    yield "no credentials, dated", bare.having(("x-ms-date", http_date()))
    for key in (WRONG_KEY, *SECOND_KEYS):
        yield "another key", shared_key(ACCOUNT, key)(bare)
        yield "another key, lightly", shared_key_lite(ACCOUNT, key)(bare)
        yield "another account", shared_key(SECOND_ACCOUNT, key)(bare)
    yield "another path", replace(signed, path=path)
    yield "signed elsewhere", replace(SIGN(replace(bare, path=path)), path=bare.path)
    yield "another method", replace(SIGN(replace(bare, method="GET")), method=bare.method)
    yield "another header", signed.having(("x-ms-delete-snapshots", "include"))
    yield "twice authorized", signed.having(("Authorization", signature))
    yield "empty", signed.setting("Authorization", "")
    yield "long ago", SIGN(bare.having(("x-ms-date", http_date(-3_600))))
    tokens = {
        "another container": service_token(ACCOUNT, KEY, other.container),
        "another blob": service_token(ACCOUNT, KEY, place.container, "shelf/boo"),
        "another account": service_token(SECOND_ACCOUNT, SECOND_KEYS[0], place.container),
        "reading": service_token(ACCOUNT, KEY, place.container, permissions="rltf"),
        "past": service_token(ACCOUNT, KEY, place.container, se=moment(hours=-1)),
        "from elsewhere": service_token(ACCOUNT, KEY, place.container, sip="10.0.0.1"),
        "encrypted": service_token(ACCOUNT, KEY, place.container, spr="https"),
        "queues": account_token(ACCOUNT, KEY, services="qtf"),
        "containers": account_token(ACCOUNT, KEY, types="sc"),
        "no letter": account_token(ACCOUNT, KEY, permissions="rlacupfti"),
        "forged": service_token(ACCOUNT, KEY, place.container, permissions="r").setting(
            "sp", "rwdt"
        ),
    }
    for label, token in tokens.items():
        yield f"a token: {label}", token.put_on(bare)


@each_envelope
@each_part
def test_a_key_around_them_helps_nobody(stage: Stage, operation: Operation, level: str) -> None:
    other = stage.make()
    with stage.place_for(operation) as place:
        bare = _bare(operation, place)
        with stage.unchanged():
            told = {
                label: _carried_out(stage, SIGN(_envelope(place, level, [part])))
                for label, part in _strangers(bare, place, other)
            }
            assert not {label: wrong for label, wrong in told.items() if wrong}
        # Nothing but their senders was wrong with them.
        for sign in (SIGN, shared_key_lite(ACCOUNT, KEY)):
            last = stage.client.ask(SIGN(_envelope(place, level, [sign(bare)])))
            assert answered(last)[0].status in {200, 202, 404}
    stage.remove(other)


@each_envelope
@each_part
def test_one_for_another(stage: Stage, operation: Operation, level: str) -> None:
    """The rights of a part are not those of its neighbours."""
    with stage.place_for(operation) as place, stage.unchanged():
        bare = _bare(operation, place)
        nothing = replace(bare, path=f"/{ACCOUNT}/{place.container}/nothing")
        token = service_token(ACCOUNT, KEY, place.container, "nothing")
        parts = [SIGN(nothing), bare, token.put_on(nothing), bare]
        told = answered(stage.client.ask(SIGN(_envelope(place, level, parts))))
        assert [part.status for part in told] == [404, 401, 404, 401]


# By whoever has a token


def _senders(place: Place, other: Place) -> dict[str, Token]:
    """Tokens for a batch that are none for what is in it."""
    return {
        "reads": service_token(ACCOUNT, KEY, place.container, permissions="racltf"),
        "reads the account": account_token(ACCOUNT, KEY, permissions="rlacupft"),
        "containers only": account_token(ACCOUNT, KEY, types="sc"),
        "elsewhere": service_token(ACCOUNT, KEY, other.container),
    }


@each_envelope
@each_part
def test_a_token_reaches_no_further(stage: Stage, operation: Operation, level: str) -> None:
    other = stage.make()
    with stage.place_for(operation) as place:
        bare = _bare(operation, place)
        with stage.unchanged():
            for label, token in _senders(place, other).items():
                envelope = token.put_on(_envelope(place, level, [bare]))
                assert not _carried_out(stage, envelope), label
        allowed = account_token(ACCOUNT, KEY)
        answer = stage.client.ask(allowed.put_on(_envelope(place, level, [bare])))
        assert answered(answer)[0].status in {200, 202}
    stage.remove(other)


@each_part
def test_a_container_token_around_parts_for_another(stage: Stage, operation: Operation) -> None:
    mine = stage.make()
    with stage.place_for(operation) as place, stage.unchanged():
        token = service_token(ACCOUNT, KEY, mine.container)
        bare = _bare(operation, place)
        for path in (
            bare.path,
            f"/{ACCOUNT}/{mine.container}/../{place.container}/{place.blob}",
            f"/{ACCOUNT}/{mine.container}%2F..%2F{place.container}/{place.blob}",
            f"/{ACCOUNT}/%2E%2E/{place.container}/{place.blob}",
            f"//{ACCOUNT}/{place.container}/{place.blob}",
            f"/{SECOND_ACCOUNT}/{place.container}/{place.blob}",
            f"http://127.0.0.1/{ACCOUNT}/{place.container}/{place.blob}",
            f"http://{mine.container}/{ACCOUNT}/{place.container}/{place.blob}",
        ):
            for level in ("service", "container"):
                envelope = token.put_on(_envelope(mine, level, [replace(bare, path=path)]))
                answer = stage.client.ask(envelope)
                if answer.status == 202:
                    assert all(part.status >= 400 for part in answered(answer)), path
                else:
                    assert not refusal(answer), (path, answer)
    stage.remove(mine)


# What is no part


@each_envelope
def test_what_is_no_part(stage: Stage, level: str) -> None:
    """Only blobs of the account are deleted, or moved to another tier, and nothing is hidden."""
    mixed = (400, "AllBatchSubRequestsShouldBeSameApi")
    foreign = stage.make(account=SECOND_ACCOUNT)
    place = stage.make()
    delete = next(form for form in OPERATIONS if form.row == "delete_blob")
    tier = next(form for form in OPERATIONS if form.row == "set_blob_tier")
    sign_foreign = shared_key(SECOND_ACCOUNT, SECOND_KEYS[0])
    with stage.unchanged():
        bare = _bare(delete, place)
        inner = _envelope(place, level, [SIGN(bare)])
        batches = {
            "another account": [sign_foreign(_bare(delete, foreign))],
            "both accounts": [SIGN(bare), sign_foreign(_bare(delete, foreign))],
            "the secondary": [SIGN(replace(bare, path=f"/{ACCOUNT}-secondary{bare.path[17:]}"))],
            "a batch": [SIGN(inner)],
            "both": [SIGN(bare), SIGN(_bare(tier, place))],
            "a container": [
                SIGN(
                    Request("DELETE", f"/{ACCOUNT}/{place.container}", (("restype", "container"),))
                )
            ],
            "none": [],
        }
        batches |= {
            form.name: [SIGN(form.request(place).lacking("x-ms-version"))]
            for form in OPERATIONS
            if form.row not in {"delete_blob", "set_blob_tier"}
        }
        for label, parts in batches.items():
            answer = stage.client.ask(SIGN(_envelope(place, level, parts)))
            if label == "the secondary" and answer.status == 202:
                assert all(part.status == 403 for part in answered(answer)), answer
            elif label == "both":
                assert not refusal(answer, mixed), (label, answer)
            else:
                assert answer.status == 202
                assert answered(answer) == UNUSABLE, (label, answer)
    for made in (place, foreign):
        stage.remove(made)


def test_another_account_by_its_host(stage: Stage) -> None:
    """Where the host names the account, it names that of all parts."""
    foreign = stage.make(account=SECOND_ACCOUNT)
    place = stage.make()
    delete = next(form for form in OPERATIONS if form.row == "delete_blob")
    host = ("Host", f"{SECOND_ACCOUNT}.blob.localhost")
    with stage.unchanged():
        bare = _bare(delete, foreign)
        for path in (bare.path, f"/{foreign.container}/{foreign.blob}"):
            for part in (
                SIGN(replace(bare, path=path)),
                SIGN(replace(bare, path=path)).having(host),
            ):
                answer = stage.client.ask(SIGN(_envelope(place, "service", [part])))
                if answer.status == 202:
                    assert answered(answer)[0].status in {400, 403, 404}, (path, answer)
                else:
                    assert not refusal(answer), (path, answer)
    for made in (place, foreign):
        stage.remove(made)

"""A shared access signature grants what it says, where and when it says, and nothing else."""

from __future__ import annotations

import string
from collections.abc import Iterator

import pytest

from tests.permissions import PERMISSIONS
from tests.probes.client import Request, encoded
from tests.probes.holders import (
    CREATES_ONLY,
    FAILED,
    LACKING,
    LETTERS,
    NOT_HERE,
    Maker,
    for_account,
    grants,
)
from tests.probes.judgement import refusal
from tests.probes.operations import OPERATIONS, Operation, each_operation
from tests.probes.stage import Stage
from tests.probes.tokens import (
    ACCOUNT_LETTERS,
    Token,
    account_token,
    moment,
    service_token,
)
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

each_kind = pytest.mark.parametrize("maker", LETTERS, ids=["account", "container", "blob"])


GRANTED = [
    pytest.param(operation, maker, id=f"{operation}-{maker.__name__}", marks=operation.marks)
    for maker in LETTERS
    for operation in OPERATIONS
    if grants(operation, maker, LETTERS[maker])
]
each_grant = pytest.mark.parametrize(("operation", "maker"), GRANTED)


# What a token grants


@each_grant
def test_a_token_grants_what_it_says(stage: Stage, operation: Operation, maker: Maker) -> None:
    """So that what is refused below is refused for the one thing that is wrong."""
    with stage.place_for(operation) as place:
        token = maker(operation, place, sip="127.0.0.1", spr="https,http")
        answer = stage.client.ask(token.put_on(operation.request(place)))
        assert 200 <= answer.status < 300, answer


@each_kind
@each_operation
def test_every_single_letter(stage: Stage, operation: Operation, maker: Maker) -> None:
    letters = string.ascii_lowercase
    allowed = [letter for letter in letters if grants(operation, maker, letter)]
    rest = "".join(set(LETTERS[maker]) - set(allowed))
    with stage.place_for(operation) as place, stage.unchanged():
        request = operation.request(place)
        for held in (*(set(letters) - set(allowed)), "", "R", rest):
            if grants(operation, maker, held):
                continue
            answer = stage.client.ask(maker(operation, place, permissions=held).put_on(request))
            told = (FAILED, LACKING, CREATES_ONLY, NOT_HERE)
            assert not refusal(answer, *told), (held, answer)
    for letter in allowed:
        with stage.place_for(operation) as place:
            token = maker(operation, place, permissions=letter)
            answer = stage.client.ask(token.put_on(operation.request(place)))
            assert 200 <= answer.status < 300, (letter, answer)


@each_operation
def test_services_and_resource_types(stage: Stage, operation: Operation) -> None:
    need = PERMISSIONS[f"blob.{operation.row}"]
    with stage.place_for(operation) as place, stage.unchanged():
        request = operation.request(place)
        for services in ("q", "t", "f", "qtf"):
            token = account_token(ACCOUNT, KEY, services=services)
            answer = stage.client.ask(token.put_on(request))
            assert not refusal(answer, (403, "AuthorizationServiceMismatch"), LACKING)
        others = "".join(sorted(set("sco") - set(need.resource_types)))
        for types in filter(None, {others, *others}):
            token = account_token(ACCOUNT, KEY, types=types)
            answer = stage.client.ask(token.put_on(request))
            assert not refusal(answer, (403, "AuthorizationResourceTypeMismatch"), LACKING)


# What was signed


def _other_values(name: str, value: str) -> Iterator[str]:
    """What somebody would like a field to say."""
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
    for name, value in added.items():
        # How deep a directory lies is not signed, and means nothing without `sr=d`.
        if name not in token.fields and name != "sdd":
            yield f"{name} added", token.setting(name, value)


@each_grant
def test_a_field_changed_after_it_was_signed(
    stage: Stage, operation: Operation, maker: Maker
) -> None:
    with stage.place_for(operation) as place, stage.unchanged():
        request = operation.request(place)
        token = maker(operation, place, sip="127.0.0.1", spr="https,http")
        wrong = []
        for label, forged in _forged(token):
            if told := refusal(
                stage.client.ask(forged.put_on(request)),
                FAILED,
                (401, "NoAuthenticationInformation"),
            ):
                wrong.append((label, told))
        signed = token.put_on(request)
        for name, value in token.fields.items():
            for other in (value, "", "b"):
                for written in (name, name.upper()):
                    doubled = signed.asking(*encoded([(written, other)]))
                    if told := refusal(stage.client.ask(doubled), FAILED):
                        wrong.append((f"{written} doubled with {other!r}", told))
        assert not wrong


def test_a_token_for_answers_is_signed(stage: Stage) -> None:
    """A page that is shown under our name is of the type that its owner gave it."""
    place = stage.make()
    token = service_token(ACCOUNT, KEY, place.container, place.blob)
    request = Request("GET", f"/{ACCOUNT}/{place.container}/{place.blob}")
    for name in ("rscc", "rscd", "rsce", "rscl", "rsct"):
        answer = stage.client.ask(token.setting(name, "text/html").put_on(request))
        assert not refusal(answer, FAILED), name
    stage.remove(place)


# When, from where and by whom


@each_grant
def test_when_and_from_where(stage: Stage, operation: Operation, maker: Maker) -> None:
    elsewhere = (403, "AuthorizationSourceIPMismatch")
    cases: list[tuple[dict[str, str], tuple[int, str]]] = [
        ({"se": moment(seconds=-2)}, FAILED),
        ({"se": moment(days=-400)}, FAILED),
        ({"st": moment(minutes=5)}, FAILED),
        ({"st": moment(days=400), "se": moment(days=401)}, FAILED),
        ({"st": moment(hours=1), "se": moment(hours=-1)}, FAILED),
        ({"sip": "10.0.0.1"}, elsewhere),
        ({"sip": "127.0.0.2-127.255.255.255"}, elsewhere),
        ({"sip": "0.0.0.0"}, elsewhere),
        ({"sip": "127.0.0.2-127.0.0.1"}, FAILED),
        ({"sip": "::1"}, FAILED),
        ({"spr": "https"}, (403, "AuthorizationProtocolMismatch")),
        ({"spr": "http"}, FAILED),
    ]
    with stage.place_for(operation) as place, stage.unchanged():
        request = operation.request(place)
        for options, expected in cases:
            # What a proxy might say of the client and of its connection counts for nothing.
            asked = request.having(("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Proto", "https"))
            answer = stage.client.ask(maker(operation, place, **options).put_on(asked))
            assert not refusal(answer, expected), (options, answer)


@each_grant
def test_signed_by_somebody_else(stage: Stage, operation: Operation, maker: Maker) -> None:
    with stage.place_for(operation) as place, stage.unchanged():
        fields = maker(operation, place).fields
        for account in (ACCOUNT, SECOND_ACCOUNT):
            for key in (WRONG_KEY, SECOND_KEYS[0], SECOND_KEYS[1]):
                if maker is for_account:
                    token = account_token(account, key)
                else:
                    _, container, *blob = operation.request(place).path[1:].split("/", 2)
                    name = blob[0] if blob and fields["sr"] == "b" else ""
                    token = service_token(account, key, container, name)
                answer = stage.client.ask(token.put_on(operation.request(place)))
                assert not refusal(answer, FAILED)

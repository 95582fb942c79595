"""Nobody does anything to queues without the right: no credentials, wrong ones, or another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from etagere.auth.permissions import Public
from etagere.protocol.queue.operations import OPERATIONS
from tests.permissions import PERMISSIONS
from tests.probes.client import VERSION, Signer, http_date, shared_key, shared_key_lite
from tests.probes.judgement import refusal
from tests.probes.tokens import ACCOUNT_LETTERS, Token, account_token, service_token
from tests.sdk.queue.forms import FORMS, QUEUE_LETTERS, Form, Place, queue_token
from tests.sdk.queue.sentry import Sentry
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY, served

FAILED: Final = (403, "AuthenticationFailed")
LACKING: Final = (403, "AuthorizationPermissionMismatch")
OUT_OF_REACH: Final = (403, "AuthorizationFailure")
OLD_VERSION: Final = "2019-07-07"

each_form = pytest.mark.parametrize("form", FORMS, ids=str)
each_scheme = pytest.mark.parametrize("scheme", [shared_key, shared_key_lite])
Scheme = Callable[[str, str], Signer]


@pytest.fixture(scope="module")
def sentry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentry]:
    directory = tmp_path_factory.mktemp("probed") / "data"
    account = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    with served(directory, "--account", account) as server:
        sentry = Sentry(server)
        sentry.make()
        sentry.make(SECOND_ACCOUNT)
        with sentry.client:
            yield sentry
        assert "Traceback" not in server.log()
        assert server.stop() == 0


# The ground that the rest stands on


def test_every_operation_is_probed() -> None:
    assert {form.row for form in FORMS} == {operation.name for operation in OPERATIONS}


@each_scheme
@each_form
def test_the_owner_may(sentry: Sentry, form: Form, scheme: Scheme) -> None:
    with sentry.place_for(form) as place:
        answer = sentry.client.ask(scheme(ACCOUNT, KEY)(form.request(place)))
        assert 200 <= answer.status < 300, answer


@each_form
def test_the_owner_is_seen_to_change_things(sentry: Sentry, form: Form) -> None:
    """By the dump by which we judge the others."""
    with sentry.place_for(form) as place:
        before = sentry.dump()
        sentry.own(form.request(place))
        assert (sentry.dump() != before) == form.changes


def test_nothing_is_public() -> None:
    for form in FORMS:
        assert PERMISSIONS[f"queue.{form.row}"].public is Public.NEVER


# Keys


@each_scheme
@each_form
def test_wrong_keys(sentry: Sentry, form: Form, scheme: Scheme) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        for key in (WRONG_KEY, *SECOND_KEYS):
            for account in (ACCOUNT, SECOND_ACCOUNT):
                answer = sentry.client.ask(scheme(account, key)(form.request(place)))
                assert not refusal(answer, FAILED), (account, key)


@each_form
def test_a_request_that_was_changed_after_it_was_signed(sentry: Sentry, form: Form) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        signed = shared_key(ACCOUNT, KEY)(form.request(place))
        other = sentry.make()
        elsewhere = form.request(other).path
        changed = [
            signed.having(("x-ms-meta-more", "1")),
            signed.setting("x-ms-date", http_date(-60)),
            signed.asking(("timeout", "30")),
            replace(signed, query=()) if signed.query else signed.asking(("comp", "metadata")),
            *([replace(signed, path=elsewhere)] if elsewhere != signed.path else []),
            replace(signed, path=signed.path.replace(ACCOUNT, SECOND_ACCOUNT)),
        ]
        answers = [sentry.client.ask(request) for request in changed]
        sentry.remove(other)
        # What asks for nothing that there is is refused for that reason first.
        unknown = (400, "InvalidQueryParameterValue"), (405, "UnsupportedHttpVerb")
        assert [refusal(answer, FAILED, *unknown) for answer in answers] == [""] * len(changed)
        assert FAILED in {(answer.status, answer.code) for answer in answers}


@each_form
def test_nearly_authorized(sentry: Sentry, form: Form) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        signed = shared_key(ACCOUNT, KEY)(form.request(place))
        authorization = signed.header("authorization") or ""
        scheme, _, claim = authorization.partition(" ")
        for nearly in (
            "",
            scheme,
            f"{scheme} {ACCOUNT}:",
            authorization[:-1],
            authorization.swapcase(),
            f"SharedKeyLite {claim}",
            f"Basic {claim}",
            f"Bearer {claim}",
            f"{authorization}, {authorization}",
        ):
            answer = sentry.client.ask(signed.setting("Authorization", nearly))
            malformed = (401 if nearly.startswith("Bearer") else 400, "InvalidAuthenticationInfo")
            assert not refusal(answer, FAILED, malformed), nearly


# No credentials


@each_form
def test_callers_without_a_name(sentry: Sentry, form: Form) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        request = form.request(place).framed()
        for version, expected in (
            (VERSION, (401, "NoAuthenticationInformation")),
            (OLD_VERSION, (404, "ResourceNotFound")),
        ):
            answer = sentry.client.ask(request.setting("x-ms-version", version))
            assert not refusal(answer, expected), version
            assert (answer.status == 401) == ("www-authenticate" in answer.headers)


# Tokens


def _needs(form: Form, kind: str) -> list[str]:
    """The sets of letters of which any will do."""
    need = PERMISSIONS[f"queue.{form.row}"]
    letters = need.account_letters if kind == "account" else need.service_letters
    return [] if letters is None else letters.split("|")


def _token(form: Form, place: Place, kind: str, letters: str, key: str = KEY) -> Token:
    if kind == "account":
        return account_token(ACCOUNT, key, permissions=letters, services="q")
    return queue_token(ACCOUNT, key, form.queue_of(place), permissions=letters)


@pytest.mark.parametrize(
    ("kind", "alphabet"), [("account", ACCOUNT_LETTERS), ("queue", QUEUE_LETTERS)]
)
@each_form
def test_letters(sentry: Sentry, form: Form, kind: str, alphabet: str) -> None:
    """One of those that will do is enough, and all others together are not."""
    enough = _needs(form, kind)
    with sentry.place_for(form) as place, sentry.unchanged():
        rest = "".join(letter for letter in alphabet if letter not in "".join(enough))
        answer = sentry.client.ask(_token(form, place, kind, rest).put_on(form.request(place)))
        # The token of a queue has no place in a request that names none.
        expected = (LACKING, OUT_OF_REACH) if "{" in form.path else (FAILED, LACKING)
        assert not refusal(answer, *expected)
    for letters in enough:
        with sentry.place_for(form) as place:
            token = _token(form, place, kind, letters)
            assert sentry.client.ask(token.put_on(form.request(place))).status < 300


@each_form
def test_tokens_that_are_for_something_else(sentry: Sentry, form: Form) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        request, queue = form.request(place), form.queue_of(place)
        full = account_token(ACCOUNT, KEY, services="q")
        tokens = {
            "another queue": queue_token(ACCOUNT, KEY, f"{queue}x"),
            "another account": queue_token(SECOND_ACCOUNT, SECOND_KEYS[0], queue),
            "another key": _token(form, place, "account", ACCOUNT_LETTERS, WRONG_KEY),
            "a container": service_token(ACCOUNT, KEY, queue),
            "another service": account_token(ACCOUNT, KEY, services="btf"),
            "no type of resource": account_token(ACCOUNT, KEY, services="q", types=""),
            "a policy that is not there": queue_token(ACCOUNT, KEY, queue, si="missing"),
            "another time": account_token(ACCOUNT, KEY, services="q", se="2020-01-01"),
            "another address": account_token(ACCOUNT, KEY, services="q", sip="192.0.2.1"),
            "https": account_token(ACCOUNT, KEY, services="q", spr="https"),
            "more than was signed": full.setting("sip", "127.0.0.1"),
            "nobody": full.lacking("sig").setting("sig", ""),
        }
        told = {what: sentry.client.ask(token.put_on(request)) for what, token in tokens.items()}
        assert {what: refusal(answer) for what, answer in told.items()} == dict.fromkeys(tokens, "")
        assert {answer.status for answer in told.values()} == {403}


def test_a_receipt_is_good_in_its_own_queue_only(sentry: Sentry) -> None:
    mine, other, theirs = sentry.make(), sentry.make(), sentry.make(SECOND_ACCOUNT)
    delete = next(form for form in FORMS if form.row == "delete_message")
    with sentry.unchanged():
        for place in (other, theirs):
            crossed = delete.request(mine._replace(message=place.message, receipt=place.receipt))
            answer = sentry.client.ask(shared_key(ACCOUNT, KEY)(crossed))
            assert (answer.status, answer.code) == (404, "MessageNotFound")
    for place in (mine, other, theirs):
        sentry.remove(place)

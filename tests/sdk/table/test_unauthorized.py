"""Nobody does anything to tables without the right: no credentials, wrong ones, or another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from etagere.auth.permissions import Public
from tests.permissions import PERMISSIONS
from tests.probes.client import VERSION, Signer, http_date, shared_key
from tests.probes.judgement import refusal
from tests.probes.tokens import ACCOUNT_LETTERS, Token, account_token, service_token
from tests.sdk.table.forms import (
    FORMS,
    TABLE_LETTERS,
    Form,
    Place,
    table_key,
    table_key_lite,
    table_token,
)
from tests.sdk.table.sentry import Sentry, outcome
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY, served

FAILED: Final = (403, "AuthenticationFailed")
LACKING: Final = (403, "AuthorizationPermissionMismatch")
OUT_OF_REACH: Final = (403, "AuthorizationFailure")
OLD_VERSION: Final = "2019-07-07"

each_form = pytest.mark.parametrize("form", FORMS, ids=str)
each_scheme = pytest.mark.parametrize("scheme", [table_key, table_key_lite])
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
    rows = {name for name in PERMISSIONS if name.startswith("table.")}
    # A group itself needs no permission.
    assert {f"table.{form.row}" for form in FORMS} == rows - {"table.entity_group_transaction"}
    for form in FORMS:
        assert PERMISSIONS[f"table.{form.row}"].public is Public.NEVER


@each_scheme
@each_form
def test_the_owner_may(sentry: Sentry, form: Form, scheme: Scheme) -> None:
    with sentry.place_for(form) as place:
        answer = outcome(sentry.client.ask(scheme(ACCOUNT, KEY)(form.request(place))))
        assert 200 <= answer.status < 300, answer


@each_form
def test_the_owner_is_seen_to_change_things(sentry: Sentry, form: Form) -> None:
    """By the dump by which we judge the others."""
    with sentry.place_for(form) as place:
        before = sentry.dump()
        sentry.own(form.request(place))
        assert (sentry.dump() != before) == form.changes


# Keys


@each_scheme
@each_form
def test_wrong_keys(sentry: Sentry, form: Form, scheme: Scheme) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        for key in (WRONG_KEY, *SECOND_KEYS):
            for account in (ACCOUNT, SECOND_ACCOUNT):
                answer = sentry.client.ask(scheme(account, key)(form.request(place)))
                assert not refusal(answer, FAILED), (account, key)
        # What the other services sign is something else.
        answer = sentry.client.ask(shared_key(ACCOUNT, KEY)(form.request(place)))
        assert not refusal(answer, FAILED)


@each_scheme
@each_form
def test_a_request_that_was_changed_after_it_was_signed(
    sentry: Sentry, form: Form, scheme: Scheme
) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        signed = scheme(ACCOUNT, KEY)(form.request(place))
        other = sentry.make()
        elsewhere = form.request(other).path
        changed = [
            signed.setting("x-ms-date", http_date(-60)),
            signed.asking(("comp", "properties")),
            replace(signed, path=signed.path.replace(ACCOUNT, SECOND_ACCOUNT)),
            *([replace(signed, path=elsewhere)] if elsewhere != signed.path else []),
            *([replace(signed, query=())] if signed.query else []),
        ]
        answers = [sentry.client.ask(request) for request in changed]
        sentry.remove(other)
        # What asks for nothing that there is is refused for that reason first.
        unknown = (400, "InvalidQueryParameterValue"), (405, "UnsupportedHttpVerb")
        assert [refusal(answer, FAILED, *unknown) for answer in answers] == [""] * len(changed)
        assert FAILED in {(answer.status, answer.code) for answer in answers}


@each_form
def test_an_old_signature(sentry: Sentry, form: Form) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        for seconds in (-16 * 60, 16 * 60):
            dated = form.request(place).having(("x-ms-date", http_date(seconds)))
            answer = sentry.client.ask(table_key(ACCOUNT, KEY)(dated))
            assert not refusal(answer, FAILED)
        # The date that is signed is the one that is looked at.
        signed = table_key(ACCOUNT, KEY)(form.request(place).having(("Date", http_date(-16 * 60))))
        assert not refusal(sentry.client.ask(signed.having(("x-ms-date", http_date()))), FAILED)


@each_form
def test_nearly_authorized(sentry: Sentry, form: Form) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        signed = table_key(ACCOUNT, KEY)(form.request(place))
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
    need = PERMISSIONS[f"table.{form.row}"]
    letters = need.account_letters if kind == "account" else need.service_letters
    return [] if letters is None else letters.split("|")


def _token(place: Place, kind: str, letters: str, key: str = KEY) -> Token:
    if kind == "account":
        return account_token(ACCOUNT, key, permissions=letters, services="t")
    return table_token(ACCOUNT, key, place.table, permissions=letters)


@pytest.mark.parametrize(
    ("kind", "alphabet"), [("account", ACCOUNT_LETTERS), ("table", TABLE_LETTERS)]
)
@each_form
def test_letters(sentry: Sentry, form: Form, kind: str, alphabet: str) -> None:
    """All that are needed are enough; all others are not, even with all but one of them."""
    enough = _needs(form, kind)
    with sentry.place_for(form) as place, sentry.unchanged():
        rest = "".join(letter for letter in alphabet if letter not in "".join(enough))
        both = enough[0] if len(enough) == 1 else ""
        for letters in (rest, *(rest + both.replace(each, "") for each in both)):
            answer = sentry.client.ask(_token(place, kind, letters).put_on(form.request(place)))
            assert not refusal(outcome(answer), LACKING, OUT_OF_REACH), letters
    for letters in enough:
        with sentry.place_for(form) as place:
            answer = sentry.client.ask(_token(place, kind, letters).put_on(form.request(place)))
            assert outcome(answer).status < 300, (letters, answer)


@each_form
def test_tokens_that_are_for_something_else(sentry: Sentry, form: Form) -> None:
    with sentry.place_for(form) as place, sentry.unchanged():
        request, table = form.request(place), place.table
        full = account_token(ACCOUNT, KEY, services="t")
        tokens = {
            "another table": table_token(ACCOUNT, KEY, f"{table}x"),
            "another account": table_token(SECOND_ACCOUNT, SECOND_KEYS[0], table),
            "another key": _token(place, "account", ACCOUNT_LETTERS, WRONG_KEY),
            "a container": service_token(ACCOUNT, KEY, table),
            "another service": account_token(ACCOUNT, KEY, services="bqf"),
            "no type of resource": account_token(ACCOUNT, KEY, services="t", types=""),
            "a policy that is not there": table_token(ACCOUNT, KEY, table, si="missing"),
            "another time": account_token(ACCOUNT, KEY, services="t", se="2020-01-01"),
            "another address": account_token(ACCOUNT, KEY, services="t", sip="192.0.2.1"),
            "https": account_token(ACCOUNT, KEY, services="t", spr="https"),
            "more than was signed": full.setting("sip", "127.0.0.1"),
            "less than was signed": table_token(ACCOUNT, KEY, table, epk="a").lacking("epk"),
            "nobody": full.setting("sig", ""),
            "another partition": table_token(ACCOUNT, KEY, table, spk="q", epk="q"),
            "another row": table_token(ACCOUNT, KEY, table, spk="p", srk="x", epk="p", erk="z"),
        }
        told = {
            what: outcome(sentry.client.ask(token.put_on(request)))
            for what, token in tokens.items()
        }
        shown = {what: told.pop(what) for what in ("another partition", "another row")}
        assert {what: refusal(answer) for what, answer in told.items()} == dict.fromkeys(told, "")
        assert {answer.status for answer in told.values()} == {403}
        for answer in shown.values():
            # To those who may look, what they do not reach looks as if it were not there.
            assert answer.status in {403, 404} or (
                form.row == "query_entities" and answer.status == 200 and b"Age" not in answer.body
            )

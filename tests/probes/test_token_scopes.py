"""A service SAS is valid for its own resource only, and its stored policy can revoke it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    AUTHORIZATION_FAILURE,
    BLOB_OVERWRITE,
    PERMISSION_MISMATCH,
    SERVICE_MISMATCH,
    refusal_fault,
)
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import OPERATIONS, SERVICES, each_service
from tests.probes.token_kinds import ACCOUNT_KIND, TokenKind
from tests.probes.tokens import (
    Token,
    moment,
    queue_token,
    service_token,
    share_token,
    table_token,
)
from tests.server import ACCOUNT, KEY

OUT_OF_SCOPE: Final = (AUTHENTICATION_FAILED, AUTHORIZATION_FAILURE)

_CASES: Final = [
    (operation, kind)
    for operation in OPERATIONS
    for kind in SERVICES[operation.service].token_kinds
    if kind is not ACCOUNT_KIND
]


def _parametrize(cases: list[tuple[Operation[Any], TokenKind]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("operation", "kind"),
        [pytest.param(*case, id=f"{case[0]}-{case[1]}", marks=case[0].marks) for case in cases],
    )


def _policy(name: str, start: str, expiry: str, permissions: str) -> str:
    return (
        f"<SignedIdentifier><Id>{name}</Id><AccessPolicy><Start>{start}</Start>"
        f"<Expiry>{expiry}</Expiry><Permission>{permissions}</Permission></AccessPolicy>"
        "</SignedIdentifier>"
    )


def _policies(*policies: tuple[str, str, str, str]) -> bytes:
    """The document with these policies, each with its id, start, expiry and permissions."""
    identifiers = "".join(_policy(*policy) for policy in policies)
    return f"<SignedIdentifiers>{identifiers}</SignedIdentifiers>".encode()


# Other resources


@_parametrize([case for case in _CASES if case[1].grants(case[0], case[1].letters)])
def test_another_resource(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    other = fixture.create()
    with fixture.target_for(operation) as target, fixture.unchanged():
        for token in (
            kind.make(operation, other),
            *_tokens_of_other_services(operation.service, target[0]),
            kind.make(operation, target, si="missing"),
        ):
            answer = fixture.ask(token.put_on(operation.request(target)))
            assert not refusal_fault(answer, *OUT_OF_SCOPE, SERVICE_MISMATCH), (token, answer)
    fixture.remove(other)


def _tokens_of_other_services(service: str, name: str) -> list[Token]:
    """Tokens for resources of the same name in the other services."""
    tokens = {
        "blob": service_token(ACCOUNT, KEY, name),
        "queue": queue_token(ACCOUNT, KEY, name),
        "table": table_token(ACCOUNT, KEY, name),
        "file": share_token(ACCOUNT, KEY, name),
    }
    return [token for other, token in tokens.items() if other != service]


@_parametrize([case for case in _CASES if not case[1].grants(case[0], case[1].letters)])
def test_operations_out_of_scope(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    """A blob token is not valid for the container, nor a container token for the account."""
    with fixture.target_for(operation) as target, fixture.unchanged():
        answer = fixture.ask(kind.make(operation, target).put_on(operation.request(target)))
        assert not refusal_fault(answer, *OUT_OF_SCOPE, PERMISSION_MISMATCH), answer


# Stored policies


@_parametrize(
    [case for case in _CASES if case[1].has_policies and case[1].grants(case[0], case[1].letters)]
)
def test_stored_policy_revokes(
    fixture: ServiceFixture[Any], operation: Operation[Any], kind: TokenKind
) -> None:
    past, future, every = moment(hours=-1), moment(hours=1), kind.letters
    useless = "".join(letter for letter in every if not kind.grants(operation, letter))
    while kind.grants(operation, useless):
        # Several letters are needed at once.
        useless = useless[1:]
    too_little = (PERMISSION_MISMATCH, BLOB_OVERWRITE) if useless else (AUTHENTICATION_FAILED,)
    refused: tuple[tuple[tuple[tuple[str, str, str, str], ...], tuple[tuple[int, str], ...]], ...]
    refused = (
        ((), (AUTHENTICATION_FAILED,)),
        ((("Readers", past, future, every),), (AUTHENTICATION_FAILED,)),
        (
            (("readers2", past, future, every), ("reader", past, future, every)),
            (AUTHENTICATION_FAILED,),
        ),
        ((("readers", past, past, every),), (AUTHENTICATION_FAILED,)),
        ((("readers", future, moment(hours=2), every),), (AUTHENTICATION_FAILED,)),
        ((("readers", past, future, ""),), (AUTHENTICATION_FAILED,)),
        ((("readers", past, "", every),), (AUTHENTICATION_FAILED,)),
        ((("readers", past, future, useless),), too_little),
    )
    with fixture.target_for(operation) as target:
        signed = kind.make(operation, target, si="readers").put_on(operation.request(target))
        for policies, expected in refused:
            fixture.set_policies(target, _policies(*policies))
            with fixture.unchanged():
                answer = fixture.ask(signed)
                assert not refusal_fault(answer, *expected), (policies, answer)
        fixture.set_policies(target, _policies(("readers", past, future, every)))
        with fixture.unchanged():
            # A field is in the token or in the policy, not in both.
            for name, value in (("sp", every), ("se", future), ("st", past)):
                token = kind.make(operation, target, si="readers", **{name: value})
                answer = fixture.ask(token.put_on(operation.request(target)))
                assert not refusal_fault(answer, AUTHENTICATION_FAILED), (name, answer)
        answer = fixture.ask(signed)
        assert 200 <= answer.status < 300, answer


@each_service
def test_policy_of_another_resource(fixture: ServiceFixture[Any], service: str) -> None:
    probed = SERVICES[service]
    kind = next(kind for kind in probed.token_kinds if kind.has_policies)
    read = next(each for each in probed.operations if kind.grants(each, "r"))
    target, other = fixture.create(), fixture.create()
    fixture.set_policies(other, _policies(("readers", moment(hours=-1), moment(hours=1), "r")))
    token = kind.make(read, target, si="readers")
    answer = fixture.ask(token.put_on(read.request(target)))
    assert not refusal_fault(answer, AUTHENTICATION_FAILED)
    fixture.remove(target)
    fixture.remove(other)

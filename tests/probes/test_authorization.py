"""Every operation of every service is open to the callers that the REST reference names, and to
nobody else: shared access signatures of each kind, with each letter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.authorization import RULES
from tests.probes.answers import (
    PERMISSION_MISMATCH,
    RESOURCE_TYPE_MISMATCH,
    SERVICE_MISMATCH,
    Code,
)
from tests.probes.callers import (
    OUT_OF_SCOPE,
    Case,
    Letters,
    deciding_letters,
    every_letter,
    find_faults,
    letters_refused,
    request_for,
    service_kinds,
)
from tests.probes.client import Request
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import SERVICES, each_operation, each_service
from tests.probes.token_kinds import ACCOUNT_KIND, SERVICE_LETTERS, TokenKind
from tests.probes.tokens import moment

POLICIES_MAX: Final = 5
# The callers of an operation


def _case(
    operation: Operation[Any], kind: TokenKind, refusals: tuple[Code, ...], **options: str
) -> Case:
    def request(target: Any) -> Request:
        token = kind.make(operation, target, **options)
        return token.put_on(request_for(kind, operation, target))

    return Case(f"{kind} {options}", request, refusals)


def _cases(operation: Operation[Any], letters: Letters) -> Iterator[Case]:
    yield from _account_cases(operation, letters)
    for kind in service_kinds(operation):
        need = kind.need(operation)
        if need is None:
            refused = (*OUT_OF_SCOPE, PERMISSION_MISMATCH)
            yield _case(operation, kind, refused, permissions=kind.letters)
            continue
        for held in letters(need, kind):
            refusals = () if need.suffices(held) else letters_refused(operation, held)
            yield _case(operation, kind, refusals, permissions=held)


def _account_cases(operation: Operation[Any], letters: Letters) -> Iterator[Case]:
    own = SERVICE_LETTERS[operation.service]
    others = "".join(letter for letter in "bqtf" if letter != own)
    for services in (*others, others):
        yield _case(operation, ACCOUNT_KIND, (SERVICE_MISMATCH,), services=services)
    need = operation.rule.account_sas
    if need is None:
        yield _case(operation, ACCOUNT_KIND, (PERMISSION_MISMATCH,))
        return
    for resource_type in "sco":
        fits = resource_type in need.places
        for held in letters(need, ACCOUNT_KIND) if fits else (ACCOUNT_KIND.letters,):
            refusals: tuple[Code, ...] = (RESOURCE_TYPE_MISMATCH,)
            if fits:
                refusals = () if need.suffices(held) else letters_refused(operation, held)
            yield _case(operation, ACCOUNT_KIND, refusals, permissions=held, types=resource_type)
    if missing := "".join(sorted(set("sco") - need.places)):
        yield _case(operation, ACCOUNT_KIND, (RESOURCE_TYPE_MISMATCH,), types=missing)


def _policy_cases(operation: Operation[Any], letters: Letters) -> Iterator[tuple[Case, str]]:
    """Yields callers whose letters are in a stored policy, and those letters."""
    for kind in service_kinds(operation):
        need = kind.need(operation)
        if need is None or not kind.has_policies:
            continue
        for number, held in enumerate(letters(need, kind)):
            refusals = () if need.suffices(held) else letters_refused(operation, held)
            name = f"policy{number % POLICIES_MAX}"
            yield _case(operation, kind, refusals, si=name), held


# The tests


@each_service
def test_every_request_has_a_rule(service: str) -> None:
    named = {operation.name for operation in SERVICES[service].operations}
    rules = RULES[service].keys()
    assert rules <= named
    assert {name.removeprefix("head_of_").removeprefix("group_of_") for name in named} == rules


@each_operation
def test_shared_access_signatures(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    with fixture.target_for(operation) as target:
        cases = _cases(operation, deciding_letters)
        assert not list(find_faults(fixture, operation, target, cases))


@pytest.mark.long
@each_operation
def test_every_letter(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    with fixture.target_for(operation) as target:
        assert not list(find_faults(fixture, operation, target, _cases(operation, every_letter)))


@each_operation
def test_stored_policies(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    _check_policies(fixture, operation, deciding_letters)


@pytest.mark.long
@each_operation
def test_every_letter_in_stored_policies(
    fixture: ServiceFixture[Any], operation: Operation[Any]
) -> None:
    _check_policies(fixture, operation, every_letter)


def _check_policies(
    fixture: ServiceFixture[Any], operation: Operation[Any], letters: Letters
) -> None:
    cases = list(_policy_cases(operation, letters))
    for start in range(0, len(cases), POLICIES_MAX):
        some = cases[start : start + POLICIES_MAX]
        with fixture.target_for(operation) as target:
            fixture.set_policies(target, _policies([held for _, held in some]))
            faults = find_faults(fixture, operation, target, [case for case, _ in some])
            assert not list(faults)


def _policies(letters: list[str]) -> bytes:
    identifiers = "".join(
        f"<SignedIdentifier><Id>policy{number}</Id><AccessPolicy><Start>{moment(hours=-1)}</Start>"
        f"<Expiry>{moment(hours=1)}</Expiry><Permission>{held}</Permission></AccessPolicy>"
        "</SignedIdentifier>"
        for number, held in enumerate(letters)
    )
    return f"<SignedIdentifiers>{identifiers}</SignedIdentifiers>".encode()

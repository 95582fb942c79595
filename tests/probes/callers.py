"""Callers of an operation, and whether a server lets them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tests.probes.answers import refusal_fault
from tests.probes.blob.operations import BlobTarget
from tests.probes.client import Answer, Request
from tests.probes.service import Operation, ServiceFixture

Code = tuple[int, str]
"""A status and an error code."""


class Case(NamedTuple):
    """A caller of an operation, and the refusals of which it gets one; none if it is allowed."""

    label: str
    request: Callable[[Any], Request]
    """Returns the request with its credentials, for a target."""
    refusals: tuple[Code, ...] = ()


def find_faults(
    fixture: ServiceFixture[Any], operation: Operation[Any], target: Any, cases: Iterable[Case]
) -> Iterator[str]:
    """Sends the requests that must be refused, and then those that are allowed; yields what the
    answers do not agree with. Any other error counts as allowed: the request before may have
    removed the target."""
    allowed = []
    with fixture.unchanged():
        for case in cases:
            if not case.refusals:
                allowed.append(case)
                continue
            answer = fixture.ask(case.request(target))
            if fault := refusal_fault(answer, *case.refusals):
                yield f"{case.label} {fault} instead of {case.refusals}"
    for number, case in enumerate(allowed):
        answer = fixture.ask(case.request(_fresh(operation, target, number)))
        if _is_refused(answer):
            yield f"{case.label} refused: {answer.status} {answer.code}"


def _fresh(operation: Operation[Any], target: Any, number: int) -> Any:
    """Returns the target with another name that is free, for an operation that creates an object:
    after the first one succeeded, the next would have to replace it."""
    if not getattr(operation, "creates_object", False):
        return target
    if isinstance(target, BlobTarget):
        return target._replace(blob=f"{target.blob}{number}")
    return target._replace(file=f"{target.file}{number}", directory=f"{target.directory}{number}")


def _is_refused(answer: Answer) -> bool:
    return answer.status in {401, 403}

"""Sends the recorded requests to a server and weighs how far the responses agree."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.probes.blob.endless_source import endless_source
from tests.probes.client import Answer, NotHttp
from tests.recorded import blob_cases, directory_cases, file_cases  # noqa: F401 — add their cases
from tests.recorded.blob_refusals import NOT_COMPARED as NOT_COMPARED_OF_BLOB
from tests.recorded.blob_requests import BLOB
from tests.recorded.cases import VERSIONS, Case, CaseContext, Target, signer
from tests.recorded.compare import Difference, Expected, differences
from tests.recorded.digest import SERVICES, Recorded, digest
from tests.recorded.file_requests import FILE
from tests.recorded.queue_cases import NOT_COMPARED as NOT_COMPARED_OF_QUEUE
from tests.recorded.queue_cases import QUEUE, properties
from tests.recorded.share_cases import NOT_COMPARED as NOT_COMPARED_OF_FILE
from tests.recorded.table_cases import NOT_COMPARED as NOT_COMPARED_OF_TABLE
from tests.recorded.table_cases import TABLE
from tests.sdk.file.front_end import file_front_end
from tests.server import SECOND_ACCOUNT, SECOND_KEYS
from tests.server import served as serving

CASES: Final = {
    "blob": BLOB.cases,
    "queue": QUEUE.cases,
    "table": TABLE.cases,
    "file": FILE.cases,
}
NOT_COMPARED: Final = {
    "blob": NOT_COMPARED_OF_BLOB,
    "queue": NOT_COMPARED_OF_QUEUE,
    "table": NOT_COMPARED_OF_TABLE,
    "file": NOT_COMPARED_OF_FILE,
}
THREADS: Final = 6
_WHOLE_SERVICE: Final = {"Service_SetProperties", "Service_GetProperties"}
ORIGIN: Final = "https://www.example.com"
_METHODS: Final = {ORIGIN: "GET,PUT", "*": "DELETE,GET,HEAD,MERGE,POST,OPTIONS,PUT,PATCH"}
_EXPOSED: Final = {"file": "x-ms-meta*"}
"""The headers that the rules of a service expose, if not all."""
# Headers of unsupported features: responses with one of them are left out.
_NOT_SERVED: Final = (
    "x-ms-encryption-key-sha256",
    "x-ms-encryption-scope",
    "x-ms-version-id",
    "x-ms-resource-type",
    "x-ms-legal-hold",
)
_BOUNDARY: Final = re.compile(r'boundary="?([^";]+)')


@dataclass(frozen=True)
class Result:
    """The result of a case, and how many recorded responses it stands for."""

    case: Case
    version: str
    cors: str
    weight: float
    differences: tuple[Difference, ...]

    @property
    def title(self) -> str:
        rule = {"": "", ORIGIN: " with a CORS rule", "*": " with a CORS rule for all origins"}
        return f"{self.case.service} {self.case.title} [{self.version}]{rule[self.cors]}"


def recorded_of(case: Case) -> Recorded:
    return digest(case.service).find(case.operation, case.status, case.code, case.body)


def served(recorded: Recorded) -> int:
    """Returns how many of the responses the server's features can give."""
    if recorded.is_error:
        return recorded.n
    left_out = sum(recorded.sometimes[name].n for name in _NOT_SERVED if name in recorded.sometimes)
    return max(recorded.n - left_out, 1)


def uncovered(service: str) -> Iterator[tuple[Recorded, str]]:
    """Returns the recorded responses without a case, with the reason."""
    covered = [recorded_of(case) for case in CASES[service]]
    for recorded in digest(service).answers:
        if any(recorded is one for one in covered):
            continue
        reasons = NOT_COMPARED[service]
        key = (recorded.operation, recorded.status, recorded.code)
        yield recorded, reasons.get(key, reasons.get((recorded.operation, 0, ""), ""))


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """Starts a server as a user would."""
    account = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    with contextlib.ExitStack() as stack:
        endless = stack.enter_context(endless_source())
        flags = ("--account", account, "--copy-source", endless)
        server = stack.enter_context(serving(directory, *flags))
        front_end = stack.enter_context(file_front_end(server))
        target = Target(server, f"http://{endless}/", front_end)
        stack.callback(target.close)
        yield target


def run(target: Target, services: tuple[str, ...] = SERVICES) -> list[Result]:
    """Runs several cases concurrently, except those that change service properties."""
    results: list[Result] = []
    with ThreadPoolExecutor(THREADS) as threads:
        for service in services:
            alone = [case for case in CASES[service] if case.operation in _WHOLE_SERVICE]
            others = [case for case in CASES[service] if case not in alone]
            for cors in ("", ORIGIN, "*"):
                _set_rules(target, service, cors)
                for compared in threads.map(
                    lambda case, cors=cors: _run(target, case, cors), others
                ):
                    results += compared
                for case in alone:
                    results += _run(target, case, cors)
            _set_rules(target, service, "")
    return results


def _set_rules(target: Target, service: str, cors: str) -> None:
    context = CaseContext(target, service, VERSIONS[service][-1])
    query = {"restype": "service", "comp": "properties"}
    headers = {"Content-Type": "application/xml"}
    context.do("PUT", "", query, headers, _rules(cors, _EXPOSED.get(service, "*")))


def _rules(origin: str, exposed: str) -> str:
    """Returns service properties with a CORS rule, or without one if no origin is given."""
    if not origin:
        return properties("<Cors />")
    return properties(
        f"<Cors><CorsRule><AllowedOrigins>{origin}</AllowedOrigins>"
        f"<AllowedMethods>{_METHODS[origin]}</AllowedMethods><AllowedHeaders>*</AllowedHeaders>"
        f"<ExposedHeaders>{exposed}</ExposedHeaders><MaxAgeInSeconds>60</MaxAgeInSeconds>"
        "</CorsRule></Cors>"
    )


def _run(target: Target, case: Case, cors: str) -> list[Result]:
    recorded = recorded_of(case)
    header = {ORIGIN: "Vary", "*": "access-control-allow-origin"}.get(cors)
    if header is not None and (not case.cors or header not in recorded.sometimes):
        return []
    versions = case.versions or VERSIONS[case.service]
    # The newer recordings had CORS rules.
    versions = versions[-1:] if cors else versions
    results = []
    for version in versions:
        context = CaseContext(target, case.service, version)
        differences = tuple(dict.fromkeys(_compared(context, case, recorded, cors)))
        for request in context.afterwards:
            context.ask(signer(case.service)(request))
        context.close_opens()
        weight = _weight(case, recorded, cors) / len(versions)
        results.append(Result(case, version, cors, weight, differences))
    return results


def _compared(
    context: CaseContext, case: Case, recorded: Recorded, cors: str
) -> Iterator[Difference]:
    expected = Expected(
        case.service,
        recorded,
        case.having,
        case.lacking,
        case.values,
        case.elements,
        cors,
        is_part=" > " in case.operation,
    )
    try:
        request = case.make(context)
        answer = context.ask(signer(case.service)(request) if case.signs else request.framed())
        if expected.is_part:
            answer = part(answer)
    except (AssertionError, NotHttp, ValueError, IndexError) as error:
        yield Difference("status", f"not to be had: {error}"[:300])
        return
    yield from differences(expected, request, context.version, answer)


def part(answer: Answer) -> Answer:
    """Returns the first response inside a batch response."""
    assert answer.status == 202, answer
    text = answer.body
    for _ in range(2):
        # Tables nest the responses of a change set in a part.
        head, _, rest = text.partition(b"\r\n\r\n")
        content_type = answer.headers["content-type"] if text is answer.body else head.decode()
        boundary = _BOUNDARY.search(content_type)
        if boundary is None:
            break
        text = (text if text is answer.body else rest).split(b"--" + boundary[1].encode())[1]
    _, _, inner = text.lstrip(b"\r\n").partition(b"\r\n\r\n")
    head, _, body = inner.partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    _, number, reason = status.split(" ", 2)
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in fields)}
    return Answer(int(number), headers, body.removesuffix(b"\r\n"), reason)


# Weights


def _weight(case: Case, recorded: Recorded, cors: str) -> float:
    """Variants stand for their share of the recorded responses, or for equal parts of the rest."""
    siblings = [other for other in CASES[case.service] if _kind(other) == _kind(case)]
    total = served(recorded)
    shares = [_share(other, recorded) for other in siblings]
    rest = max(total - sum(share or 0 for share in shares), 0)
    of_case = _share(case, recorded)
    alone = rest / max(shares.count(None), 1) if of_case is None else float(of_case)
    return alone * _cors_share(case, recorded, cors)


def _kind(case: Case) -> tuple[str, int, str, str]:
    return case.operation, case.status, case.code, case.body


def _share(case: Case, recorded: Recorded) -> float | None:
    if isinstance(case.share, str):
        return recorded.sometimes[case.share].n if case.share else None
    return case.share


def _cors_share(case: Case, recorded: Recorded, cors: str) -> float:
    with_rules = {
        origin: recorded.sometimes[header].n / recorded.n
        for origin, header in ((ORIGIN, "Vary"), ("*", "access-control-allow-origin"))
        if header in recorded.sometimes and case.cors
    }
    return with_rules[cors] if cors else 1.0 - sum(with_rules.values())


# Sums


@dataclass
class Agreement:
    """Weights of a service: in total, and of those that agree in each respect."""

    total: float = 0.0
    headers: float = 0.0
    verdict: float = 0.0
    """Status, code and message."""
    body: float = 0.0
    reason: float = 0.0
    everything: float = 0.0


def agreement(results: list[Result]) -> Agreement:
    sums = Agreement()
    for result in results:
        kinds = {difference.kind for difference in result.differences}
        no_answer = "status" in kinds
        sums.total += result.weight
        sums.verdict += result.weight * (not kinds & {"status", "code", "message"})
        sums.headers += result.weight * (not no_answer and "headers" not in kinds)
        sums.body += result.weight * (not no_answer and "body" not in kinds)
        sums.reason += result.weight * (not kinds & {"status", "reason"})
        sums.everything += result.weight * (not kinds)
    return sums


def merged(results: list[Result]) -> list[Result]:
    """Merges the versions of a case that differ in the same things."""
    merged_results: dict[tuple[str, str, tuple[Difference, ...]], Result] = {}
    for result in results:
        key = (f"{result.case.service} {result.case.title}", result.cors, result.differences)
        if key not in merged_results:
            merged_results[key] = result
            continue
        first = merged_results[key]
        version = f"{first.version}, {result.version}"
        merged_results[key] = replace(first, version=version, weight=first.weight + result.weight)
    return list(merged_results.values())

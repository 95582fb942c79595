"""Checks a history share by share: linearizability, and ETags that name versions of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.history.events import describe
from tests.history.file.events import Done, History, Operation, Verb, operations_by_share
from tests.history.file.model import ShareModel, crash_entries, prepare
from tests.history.linearizability import Verdict, search

ORDER: Final = "order"
VERSIONS: Final = "versions"
CONTENT: Final = "content"
METADATA: Final = "metadata"


class Finding(NamedTuple):
    """A violation, or a search that gave up."""

    verdict: Verdict
    check: str
    share: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict.value} ({self.check}) of share {self.share}: {self.text}"


def check_history(history: History) -> list[Finding]:
    """Returns what is wrong with the history."""
    findings: list[Finding] = []
    for share, operations in operations_by_share(history).items():
        confused = _confused_versions(operations)
        if confused:
            findings.append(Finding(Verdict.VIOLATION, VERSIONS, share, confused))
        entries = prepare(operations, history)
        entries += crash_entries(operations, history)
        result = search(entries, ShareModel(entries))
        if result.verdict is not Verdict.OK:
            findings.append(Finding(result.verdict, ORDER, share, result.explanation))
    return findings


def _confused_versions(operations: Sequence[Operation]) -> str | None:
    """Returns two answers in which the same ETag stands for two contents or metadata."""
    first: dict[tuple[str, str], tuple[str, Operation]] = {}
    for operation in operations:
        for kind, token in _tokens(operation):
            etag = operation.outcome.etag if isinstance(operation.outcome, Done) else ""
            known, source = first.setdefault((kind, etag), (token, operation))
            if known != token:
                shown = (describe(each, source.began) for each in (source, operation))
                return "\n".join((f"the ETag {etag} names two versions:", *shown))
    return None


def _tokens(operation: Operation) -> list[tuple[str, str]]:
    """Returns the content and metadata that the ETag in an answer stands for, as far as known."""
    request, outcome = operation.request, operation.outcome
    if not isinstance(outcome, Done) or not outcome.etag:
        return []
    if outcome.file is not None:
        return [(CONTENT, outcome.file.content), (METADATA, outcome.file.metadata)]
    if request.verb is Verb.CREATE:
        return [(CONTENT, ""), (METADATA, request.token)]
    return [(METADATA if request.verb is Verb.SET_METADATA else CONTENT, request.token)]

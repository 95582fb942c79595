"""Checks a history partition by partition: linearizability, and ETags that name versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.history.events import describe
from tests.history.linearizability import Verdict, search
from tests.history.table.events import Done, History, Operation, operations_by_partition
from tests.history.table.model import PartitionModel, prepare

ORDER: Final = "order"
VERSIONS: Final = "versions"


class Finding(NamedTuple):
    """A violation, or a search that gave up."""

    verdict: Verdict
    check: str
    partition: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict.value} ({self.check}) of partition {self.partition}: {self.text}"


def check_history(history: History) -> list[Finding]:
    """Returns what is wrong with the history."""
    findings: list[Finding] = []
    for partition, operations in operations_by_partition(history).items():
        confused = _confused_versions(operations)
        if confused:
            findings.append(Finding(Verdict.VIOLATION, VERSIONS, partition, confused))
        result = search(prepare(operations, history.kills), PartitionModel())
        if result.verdict is not Verdict.OK:
            findings.append(Finding(result.verdict, ORDER, partition, result.explanation))
    return findings


def _confused_versions(operations: Sequence[Operation]) -> str | None:
    """Returns two answers in which an ETag has two versions, or a version two ETags."""
    first: dict[tuple[str, str, str], tuple[str, Operation]] = {}
    for operation in operations:
        for row, etag, version in _versions(operation):
            for kind, name, value in (("ETag", etag, version), ("version", version, etag)):
                known, source = first.setdefault((kind, row, name), (value, operation))
                if known != value:
                    shown = (describe(each, source.began) for each in (source, operation))
                    return "\n".join((f"the {kind} {name} of {row} names two:", *shown))
    return None


def _versions(operation: Operation) -> list[tuple[str, str, str]]:
    """Returns the rows, ETags and versions in an answer."""
    request, outcome = operation.request, operation.outcome
    if not isinstance(outcome, Done):
        return []
    if outcome.entity is not None:
        return [(request.row, outcome.etags[0], outcome.entity.version)]
    pairs = zip(request.changes, outcome.etags, strict=False)
    return [(change.row, etag, change.token) for change, etag in pairs if etag]

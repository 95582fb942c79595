"""Checks a history blob by blob: linearizability, ETags and dates, and holders of leases."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.history.blob.events import History, operations_by_blob
from tests.history.blob.leases import two_holders
from tests.history.blob.preparation import prepare
from tests.history.blob.search import search
from tests.history.blob.versions import confused_versions
from tests.history.linearizability import Verdict

VERSIONS: Final = "versions"
HOLDERS: Final = "holders"
ORDER: Final = "order"


class Finding(NamedTuple):
    """A violation, or a search that gave up."""

    verdict: Verdict
    check: str
    """Which of the three checks found it."""
    blob: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict.value} ({self.check}) of blob {self.blob}: {self.text}"


def check_history(history: History) -> list[Finding]:
    """Returns what is wrong with the history."""
    findings: list[Finding] = []
    for blob, operations in operations_by_blob(history).items():
        confused = confused_versions(operations)
        if confused:
            findings.append(Finding(Verdict.VIOLATION, VERSIONS, blob, confused))
        holders = two_holders(operations, history.kills)
        if holders:
            findings.append(Finding(Verdict.VIOLATION, HOLDERS, blob, holders))
        result = search(prepare(operations, history.kills))
        if result.verdict is not Verdict.OK:
            findings.append(Finding(result.verdict, ORDER, blob, result.explanation))
    return findings

"""All that is asked of a history, blob by blob: what is so for each blob is so for the store."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.history.events import History
from tests.history.leases import two_holders
from tests.history.linearizability import Verdict, search
from tests.history.preparation import prepare
from tests.history.versions import confused_versions

VERSIONS: Final = "versions"
HOLDERS: Final = "holders"
ORDER: Final = "order"


class Finding(NamedTuple):
    verdict: Verdict
    question: str
    """Which of the three says so."""
    blob: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict.value} ({self.question}) of blob {self.blob}: {self.text}"


def judge(history: History) -> list[Finding]:
    """What speaks against the store; nothing if the history is as it should be."""
    findings: list[Finding] = []
    for blob, operations in history.blobs().items():
        confused = confused_versions(operations)
        if confused:
            findings.append(Finding(Verdict.VIOLATION, VERSIONS, blob, confused))
        holders = two_holders(operations, history.deaths)
        if holders:
            findings.append(Finding(Verdict.VIOLATION, HOLDERS, blob, holders))
        result = search(prepare(operations, history.deaths))
        if result.verdict is not Verdict.OK:
            findings.append(Finding(result.verdict, ORDER, blob, result.explanation))
    return findings

"""The result of a run, and its report."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from conformance.lists import Lists, Name
from conformance.run import Outcome

_COLUMNS = ("passed", "applicable", "missing", "never")


@dataclass
class Verdict:
    """The outcomes of a run compared with the lists."""

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By file, the count of each column of the table."""
    missing: Counter[str] = field(default_factory=Counter)
    """The number of failing listed tests by reason."""
    surprises: list[str] = field(default_factory=list)
    """Differences between the outcomes and the lists; any of them fails the run."""


def judge(outcomes: Iterable[Outcome], lists: Lists, *, whole: bool) -> Verdict:
    """Compares outcomes with the lists. If the whole suite was run, patterns without a test are
    differences too."""
    verdict = Verdict()
    nodes = []
    for node, outcome, error in sorted(outcomes):
        nodes.append(node)
        counts = verdict.counts[node.split("::", 1)[0]]
        if lists.why_never(node) is not None:
            counts["never"] += 1
            continue
        missing = lists.why_missing(node)
        counts["applicable"] += 1
        counts["passed"] += outcome == "passed"
        if missing is not None:
            counts["missing"] += 1
            verdict.missing[missing] += 1
        if (missing is None) != (outcome == "passed"):
            verdict.surprises.append(_surprise(node, outcome, error, missing))
    if whole:
        verdict.surprises += [f"no test matches {text}" for text in lists.idle(nodes)]
    return verdict


def _surprise(node: str, outcome: str, error: str, missing: str | None) -> str:
    if missing is not None:
        return f"{node} passed, but is listed as missing: {missing}"
    if outcome == "skipped":
        return f"{node} was skipped, but is not listed in never.toml"
    return f"{node} failed, but is not listed: {error}"


def table(verdict: Verdict) -> str:
    """Formats the counts of each file and in total."""
    total: Counter[str] = sum(verdict.counts.values(), Counter())
    rows = [*sorted(verdict.counts.items()), ("all", total)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{'':{width}}" + "".join(f"{column:>12}" for column in _COLUMNS)]
    for name, counts in rows:
        lines.append(f"{name:{width}}" + "".join(f"{counts[column]:>12}" for column in _COLUMNS))
    return "\n".join(lines)


def reasons(verdict: Verdict) -> str:
    """Formats the missing features, those with the most tests first."""
    return "\n".join(f"{count:6}  {reason}" for reason, count in verdict.missing.most_common())


def as_list(outcomes: Iterable[Outcome]) -> str:
    """Formats the failures as a list, by error, those with the most tests first."""
    by_error: dict[str, list[Name]] = defaultdict(list)
    for one in outcomes:
        if one.outcome == "failed":
            by_error[one.error].append(Name.of(one.node))
    groups = sorted(by_error.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join(line for reason, names in groups for line in _group(reason, names))


def _group(reason: str, names: Iterable[Name]) -> Iterator[str]:
    forms: dict[str, set[bool]] = defaultdict(set)
    for one in names:
        forms[one.name].add(one.asynchronous)
    yield "[[group]]"
    yield f"reason = {json.dumps(reason, ensure_ascii=False)}"
    keys = {"tests": {False, True}, "sync_tests": {False}, "async_tests": {True}}
    for key, form in keys.items():
        if chosen := sorted(name for name, found in forms.items() if found == form):
            yield f"{key} = ["
            yield from (f"    {json.dumps(name, ensure_ascii=False)}," for name in chosen)
            yield "]"
    yield ""

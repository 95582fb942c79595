"""A check that no two clients ever held the lease of a blob at once.

The search for an order checks leases too, as a part of the blob. This looks at them by themselves
and from outside: a write that succeeded under a lease id proves that its lease was held. If a
write under another id succeeded after it, then between the beginning of the first and the end of
the second, the first lease must have ended and the second must have been granted, each by
something that was request for or, for the first, by its time running out. It needs no search, so it
always comes to a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tests.history.blob.events import WRITES, Done, Operation, Verb
from tests.history.events import NANOSECONDS, Refused, ServerKill, describe, drift, latest_moment

FORGETS: Final = frozenset({Verb.RELEASE, Verb.CHANGE})
LEASE_SECONDS_MAX: Final = 60
"""The maximum of leases that expire, and of the break period."""


def two_holders(operations: Sequence[Operation], kills: Iterable[ServerKill]) -> str | None:
    """Returns the proof that two clients held the lease of a blob at once, or None.

    The operations are those of one blob, by the time at which they began.
    """
    history = _Holders(operations, tuple(kills))
    proofs = [each for each in operations if _proves_holder(each)]
    for number, later in enumerate(proofs):
        earlier = next((each for each in proofs[number::-1] if _another(each, later)), None)
        if earlier is None:
            continue
        missing = history.what_is_missing(earlier, later)
        if missing:
            lines = (describe(each, earlier.began) for each in (earlier, later))
            return "\n".join(("two held the lease at once:", *lines, missing))
    return None


def _proves_holder(operation: Operation) -> bool:
    request = operation.request
    return (
        request.verb in WRITES
        and request.lease_id is not None
        and isinstance(operation.outcome, Done)
    )


def _another(earlier: Operation, later: Operation) -> bool:
    return earlier.request.lease_id != later.request.lease_id and earlier.ended < later.began


class _Holders:
    def __init__(self, operations: Sequence[Operation], kills: tuple[ServerKill, ...]) -> None:
        self._possible = [
            (each, latest_moment(each, kills))
            for each in operations
            if not isinstance(each.outcome, Refused)
        ]

    def what_is_missing(self, earlier: Operation, later: Operation) -> str:
        old, new = earlier.request.lease_id, later.request.lease_id
        request = [
            each.request
            for each, latest in self._possible
            if each.began < later.ended and latest > earlier.began
        ]
        if not any(request.proposed_id == new for request in request):
            return "nothing granted the second lease between them"
        ended = any(
            request.verb is Verb.DELETE or (request.verb in FORGETS and request.lease_id == old)
            for request in request
        )
        broken = self._may_have_broken(earlier, later)
        if not ended and not broken and not self._may_have_expired(str(old), later):
            return "nothing ended the first lease between them, nor was its time over"
        return ""

    def _may_have_broken(self, earlier: Operation, later: Operation) -> bool:
        """Its holder may write until it has ended, so it may have been broken before that."""
        for each, latest in self._possible:
            if each.request.verb is Verb.BREAK and each.began < later.ended:
                request = each.request.seconds
                seconds = LEASE_SECONDS_MAX if request is None else request
                if latest + seconds * NANOSECONDS + drift(seconds) > earlier.began:
                    return True
        return False

    def _may_have_expired(self, lease_id: str, later: Operation) -> bool:
        """By the last that surely prolonged it. A lease that came by its id through a change may
        have any duration that the old one had."""
        grants = [
            each
            for each, _ in self._possible
            if each.request.proposed_id == lease_id and each.request.verb is Verb.ACQUIRE
        ]
        if not grants:
            return True
        durations = [each.request.seconds for each in grants if each.request.seconds is not None]
        prolonged = [
            each.began
            for each, _ in self._possible
            if each.ended <= later.began
            and isinstance(each.outcome, Done)
            and (
                each in grants
                or (each.request.verb is Verb.RENEW and each.request.lease_id == lease_id)
            )
        ]
        if not durations or not prolonged:
            return bool(durations)
        shortest = min(durations)
        return max(prolonged) + shortest * NANOSECONDS - drift(shortest) <= later.ended

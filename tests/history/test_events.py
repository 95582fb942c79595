"""The event log of a client, which may be killed while it writes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.history.events import NEVER, Answered, Asked, Killed, Unknown
from tests.history.queue.events import LOG, Done, Operation, Request, Seen, Verb


def test_request_of_a_killed_client(tmp_path: Path) -> None:
    events: list[Asked[Request] | Answered[Done] | Killed] = [
        Asked(3, Request(Verb.GET), 1),
        Answered(2, Done()),
        Asked(3, Request(Verb.GET), 3),
        Answered(4, None),
        Asked(3, Request(Verb.GET, count=2), 5),
        Killed(6),
    ]
    log = tmp_path / "client-3.jsonl"
    log.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    assert LOG.read_client(log) == [
        Operation(3, Request(Verb.GET), 1, 2, Done()),
        Operation(3, Request(Verb.GET, count=2), 5, 6, Unknown("killed")),
    ]


@pytest.mark.parametrize("kill", ["missing", "on the same line", "on the next line"])
def test_half_a_line_at_the_end(tmp_path: Path, kill: str) -> None:
    log = tmp_path / "client-3.jsonl"
    asked, answered = Asked(3, Request(Verb.GET), 1), Answered(2, Done((Seen("m", "r"),)))
    lines = [msgspec.json.encode(event) for event in (asked, answered, asked, answered)]
    end = {"missing": b"", "on the same line": b"", "on the next line": b"\n"}[kill]
    if kill != "missing":
        end += msgspec.json.encode(Killed(6)) + b"\n"
    done = Operation(3, Request(Verb.GET), 1, 2, answered.outcome or Done())
    died = NEVER if kill == "missing" else 6
    killed = Operation(3, Request(Verb.GET), 1, died, Unknown("killed"))
    for length in range(len(lines[2])):
        # The request was not sent yet.
        log.write_bytes(b"\n".join([*lines[:2], lines[2][:length]]) + end)
        assert LOG.read_client(log) == [done]
    for length in range(len(lines[3])):
        log.write_bytes(b"\n".join([*lines[:3], lines[3][:length]]) + end)
        assert LOG.read_client(log) == [done, killed]


def test_half_a_line_elsewhere_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "client-3.jsonl"
    asked = msgspec.json.encode(Asked(3, Request(Verb.GET), 1))
    log.write_bytes(asked[:-5] + b"\n" + asked + b"\n")
    with pytest.raises(ValueError, match="torn line"):
        LOG.read_client(log)

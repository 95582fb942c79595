"""System calls of a server, and whether everything it acknowledged was durable by then.

`strace` records the system calls of a process tree in the order in which the kernel saw them
begin and end; `parse` reads that, and `judge` checks it against the rules:

    answers     when the writer answers, its log is synced to the last byte, and so are the
                names of the log and of the database
    adoption    when a front end sends a command that refers to bytes in segments, those bytes
                and the names of their files are synced
    checkpoint  the database is only written when the log is synced, and the log is only begun
                anew, cut or removed when the database is synced
    removal     a segment's file is only removed when its retirement has been answered

A sync makes durable what had been written (or named) when it began, and counts from its end.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from etagere.bodies.segments import Relocation, retire_segment
from etagere.engine import wire
from etagere.engine.interface import OPERATIONS, registered
from etagere.engine.ledger import DATABASE_NAME
from etagere.engine.writer import SOCKET_NAME
from etagere.model.bodies import Piece

MARKER_FILE = "/dev/null"
MARKER = "phase "
_FRAME_BYTES_MAX = 1 << 30
_STRING_BYTES_MAX = 4 << 20

_WRITES = {"pwrite64", "pwritev", "pwritev2", "write", "writev"}
_SYNCS = {"fsync", "fdatasync"}
_SENDS = {"sendto", "sendmsg"}
_MKDIRS = {"mkdir", "mkdirat"}
_UNLINKS = {"unlink", "unlinkat"}
_OPENS = {"open", "openat", "creat"}
_CONNECTIONS = {"connect", "accept", "accept4"}
# Not used on files that matter; a trace that has one cannot be judged.
_UNKNOWN = {"rename", "renameat", "renameat2", "link", "linkat", "fallocate", "copy_file_range"}
_TRUNCATES = {"ftruncate", "truncate"}
TRACED = sorted(
    _WRITES | _SYNCS | _SENDS | _MKDIRS | _UNLINKS | _OPENS | _CONNECTIONS | _UNKNOWN | _TRUNCATES
)


def why_not() -> str:
    """Returns why system calls cannot be traced here; empty if they can."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    tried = subprocess.run(
        [strace, "-f", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False
    )
    return f"strace may not trace: {tried.stderr.strip()}" if tried.returncode else ""


def watch(command: Sequence[str], trace: Path, environment: Mapping[str, str]) -> None:
    """Runs a command with all its children and records their system calls."""
    strace = ["strace", "-f", "-y", "-ttt", "-s", str(_STRING_BYTES_MAX), "-o", str(trace)]
    only = ["-e", "trace=" + ",".join(TRACED), "-e", "signal=none"]
    done = subprocess.run(
        [*strace, *only, *command], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command} failed under strace: {done.stderr}")


# Reading a trace


@dataclass
class Call:
    """One system call."""

    thread: str
    name: str
    arguments: str
    began: float
    result: int = -1
    result_path: str = ""

    @property
    def path(self) -> str:
        """Returns the path of the first descriptor."""
        match = _DESCRIPTOR.match(self.arguments)
        return match[1] if match else ""

    @property
    def offset(self) -> int | None:
        """Returns the offset of a positioned write."""
        pattern = _OFFSETS.get(self.name)
        match = pattern.search(self.arguments) if pattern else None
        return int(match[1]) if match else None

    @property
    def text(self) -> bytes:
        """Returns the first string among the arguments."""
        match = _STRING.search(self.arguments)
        if match is None or match[2]:
            raise ValueError(f"a call without a whole string: {self.name}({self.arguments[:80]}")
        return bytes(ast.literal_eval(f'b"{match[1]}"'))


Step = tuple[Call, bool, bool]
"""A call, whether it begins here, and whether it ends here; often both."""

_LINE = re.compile(r"(\d+) +([\d.]+) (.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>")
_DESCRIPTOR = re.compile(r"\d+<([^>]*)>")
_LAST = re.compile(r", (\d+)$")
_LAST_BUT_ONE = re.compile(r", (\d+), [^,]+$")
_OFFSETS = {"pwrite64": _LAST, "pwritev": _LAST, "pwritev2": _LAST_BUT_ONE}
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(\.\.\.)?', re.DOTALL)
_RESULT = re.compile(r"(-?\d+)(?:<([^>]*)>)?")
_UNFINISHED = " <unfinished ...>"


def parse(lines: Iterable[str]) -> Iterator[Step]:
    """Returns the calls of a trace as they begin and end."""
    unfinished: dict[str, Call] = {}
    for line in lines:
        matched = _LINE.match(line.rstrip("\n"))
        if matched is None:
            raise ValueError(f"not a line of strace: {line[:80]!r}")
        process, moment, rest = matched.groups()
        if rest.startswith(("---", "+++")):
            continue
        resumed = _RESUMED.match(rest)
        if resumed:
            call = unfinished.pop(process)
            call.arguments, _, result = (call.arguments + rest[resumed.end() :]).rpartition(") = ")
            _conclude(call, result)
            yield call, False, True
            continue
        name, _, rest = rest.partition("(")
        if rest.endswith(_UNFINISHED):
            arguments = rest.removesuffix(_UNFINISHED)
            call = unfinished[process] = Call(process, name, arguments, float(moment))
            yield call, True, False
            continue
        arguments, _, result = rest.rpartition(") = ")
        # strace aligns short lines with spaces before the result.
        call = Call(process, name, arguments or rest.rpartition(")")[0], float(moment))
        _conclude(call, result or rest.rpartition("= ")[2])
        yield call, True, True


def _conclude(call: Call, result: str) -> None:
    match = _RESULT.match(result)
    if match:
        call.result, call.result_path = int(match[1]), match[2] or ""


# Judging


@dataclass
class _Write:
    thread: str
    start: int
    stop: int
    finished: bool = False


@dataclass
class Judgement:
    """The complaints, and how often there was something to judge, by phase."""

    violations: list[str] = field(default_factory=list)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, what: str, phase: str | None = None) -> int:
        return sum(n for (p, w), n in self.seen.items() if w == what and phase in (None, p))


def judge(steps: Iterable[Step], directory: Path) -> Judgement:
    """Checks the calls of a server whose data directory was created during the trace."""
    judge_ = _Judge(str(directory))
    for call, begins, ends in steps:
        if begins:
            judge_.begin(call)
        if ends:
            judge_.end(call)
    return judge_.judgement


class _Judge:
    """Tracks what is durable and what is not, along the trace."""

    def __init__(self, directory: str) -> None:
        self.judgement = Judgement()
        self._directory = directory
        self._database = f"{directory}/{DATABASE_NAME}"
        self._log = f"{self._database}-wal"
        self._logs = (self._log, f"{self._database}-journal")
        self._phase = ""
        self._existing: set[str] = set()
        self._unsynced_names: set[str] = set()
        self._unsynced: dict[str, list[_Write]] = {}
        self._written: dict[str, list[_Write]] = {}
        self._writes: dict[int, _Write] = {}
        self._covered: dict[int, tuple[list[_Write], list[str]]] = {}
        self._log_synced_by: set[str] = set()
        self._streams: dict[str, wire.FrameReader] = {}
        self._asked: set[str] = set()
        self._retiring: dict[int, int] = {}
        self._retired: set[int] = set()

    def begin(self, call: Call) -> None:
        if call.name in _WRITES and call.path == MARKER_FILE:
            self._mark(call.text.decode())
        elif call.name in _WRITES:
            self._begin_write(call)
        elif call.name in _TRUNCATES and call.path in self._logs:
            self._reset(call.path, "cut")
        elif call.name in _SYNCS:
            names = [n for n in self._unsynced_names if n.rpartition("/")[0] == call.path]
            done = [write for write in self._unsynced.get(call.path, ()) if write.finished]
            self._covered[id(call)] = done, names
        elif call.name in _SENDS and call.path in self._streams:
            for frame in self._streams[call.path].feed(call.text):
                self._sent(call.path, frame)
        elif call.name in _UNLINKS:
            self._begin_unlink(call.text.decode())
        elif call.name in _UNKNOWN and self._matters(call):
            self._complain(f"nothing is known of {call.name}({call.arguments})")

    def end(self, call: Call) -> None:
        if call.name in _SYNCS:
            done, names = self._covered.pop(id(call))
            if call.result == 0:
                unsynced = self._unsynced.get(call.path, [])
                self._unsynced[call.path] = [w for w in unsynced if w not in done]
                self._unsynced_names.difference_update(names)
                if call.path == self._log:
                    self._log_synced_by.add(call.thread)
                elif call.path == self._database:
                    self._log_synced_by.discard(call.thread)
        elif id(call) in self._writes:
            write = self._writes.pop(id(call))
            write.finished = True
            write.stop = (
                write.start + max(call.result, 0) if call.offset is not None else write.stop
            )
        elif call.result < 0:
            # Connections in progress do not happen here.
            return
        elif call.name in _OPENS:
            if "O_CREAT" in call.arguments or call.name == "creat":
                self._named(call.result_path)
        elif call.name in _MKDIRS:
            self._named(call.text.decode())
        elif call.name in _UNLINKS:
            self._gone(call.text.decode())
        elif call.name in _CONNECTIONS:
            self._connected(call)

    # Files

    def _named(self, path: str) -> None:
        """A new name is durable once its directory is synced."""
        if path not in self._existing:
            self._existing.add(path)
            self._unsynced_names.add(path)
            if path.endswith(".seg"):
                self._saw("segment")

    def _gone(self, path: str) -> None:
        self._existing.discard(path)
        self._unsynced_names.discard(path)
        self._unsynced.pop(path, None)
        self._written.pop(path, None)

    def _begin_write(self, call: Call) -> None:
        path, offset = call.path, call.offset
        if path == self._database:
            self._saw("page")
            self._begin_page(call.thread)
        elif path == self._log and offset == 0:
            self._reset(path, "begun anew")
        start, stop = (0, 1 << 62) if offset is None else (offset, offset)
        write = _Write(call.thread, start, stop)
        self._writes[id(call)] = write
        self._unsynced.setdefault(path, []).append(write)
        self._written.setdefault(path, []).append(write)

    def _begin_page(self, thread: str) -> None:
        """Pages moved into the database must be synced in the log. A checkpoint may run beside the
        next group: it syncs the log itself, and does not read beyond that."""
        beside = thread in self._log_synced_by
        for log in self._logs:
            waiting = self._unsynced.get(log, ())
            if beside:
                waiting = [write for write in waiting if write.thread == thread]
            if waiting:
                count = f"{len(waiting)} unsynced writes"
                self._complain(f"{self._short(log)} has {count} when {DATABASE_NAME} is written")

    def _begin_unlink(self, path: str) -> None:
        if path in self._logs:
            self._reset(path, "removed")
        elif path.endswith(".seg") and path.startswith(self._directory):
            self._saw("removal")
            if int(Path(path).stem, 16) not in self._retired:
                self._complain(f"{self._short(path)} is removed before its retirement is durable")

    def _reset(self, path: str, how: str) -> None:
        self._saw("reset")
        self._require_synced(self._database, f"{self._short(path)} is {how}")

    # Messages

    def _connected(self, call: Call) -> None:
        if call.name == "connect" and call.text.endswith(f"/{SOCKET_NAME}".encode()):
            # Another connection has its own IDs; requests on the previous one get no response.
            self._retiring.clear()
            self._asked.add(call.path)
            self._streams[call.path] = wire.FrameReader(_FRAME_BYTES_MAX)
        elif call.name != "connect":
            self._streams[call.result_path] = wire.FrameReader(_FRAME_BYTES_MAX)

    def _sent(self, stream: str, frame: memoryview) -> None:
        if stream in self._asked:
            self._command(wire.decode_request(frame))
            return
        self._saw("answer")
        self._require_synced(self._log, "an answer is sent")
        self._require_names(self._log, "an answer is sent")
        self._require_names(self._database, "an answer is sent")
        request_id, outcome, _ = wire.decode_answer(frame)
        retired = self._retiring.pop(request_id, None)
        if retired is not None and outcome == wire.Outcome.RESULT:
            self._retired.add(retired)

    def _command(self, request: wire.Request) -> None:
        name = request.operation.decode()
        command = OPERATIONS[name].decode_command(request.command)
        self._saw("command")
        if name == registered(retire_segment).name:
            self._retiring[request.id] = command.number
        for kind, segment, offset, length in _references(command):
            self._saw(kind)
            path = f"{self._directory}/segments/{segment:08x}.seg"
            when = f"{name.rpartition(':')[2]} is sent for its bytes at {offset}"
            self._require_names(path, when)
            self._require_written(path, offset, length, when)
            self._require_synced(path, when, offset, length)

    # Rules

    def _require_synced(self, path: str, when: str, start: int = 0, length: int = 1 << 62) -> None:
        waiting = [
            write
            for write in self._unsynced.get(path, ())
            if write.start < start + length and (write.stop > start or not write.finished)
        ]
        if waiting:
            self._complain(f"{self._short(path)} has {len(waiting)} unsynced writes when {when}")

    def _require_names(self, path: str, when: str) -> None:
        """Checks the name of a file, and those of the directories above that are as new."""
        while path:
            if path in self._unsynced_names:
                self._complain(f"the name of {self._short(path)} is not synced when {when}")
            path = path.rpartition("/")[0]

    def _require_written(self, path: str, start: int, length: int, when: str) -> None:
        at = start
        for write in sorted(self._written.get(path, ()), key=lambda write: write.start):
            if write.start <= at and write.finished:
                at = max(at, write.stop)
        if at < start + length:
            self._complain(f"{self._short(path)} is not written from {at} on when {when}")

    # Recording

    def _mark(self, text: str) -> None:
        if text.startswith(MARKER):
            self._phase = text.removeprefix(MARKER).strip()

    def _saw(self, what: str) -> None:
        self.judgement.seen[self._phase, what] += 1

    def _complain(self, text: str) -> None:
        self.judgement.violations.append(f"[{self._phase}] {text}")

    def _short(self, path: str) -> str:
        return path.removeprefix(f"{self._directory}/")

    def _matters(self, call: Call) -> bool:
        harmless = call.path.endswith(("-shm", "/reserve")) or "/processes/" in call.path
        return self._directory in call.arguments and not harmless


def _references(command: object) -> Iterator[tuple[str, int, int, int]]:
    """Returns the places in segments that a command refers to: kind, segment, offset, length."""
    if isinstance(command, Piece):
        yield "piece", command.segment, command.offset + command.skip, command.length
    elif isinstance(command, Relocation):
        # Only the ledger knows the length of the copy; it was written in one call, so its first
        # byte stands for all.
        yield "relocation", command.to_segment, command.to_offset, 1
    elif isinstance(command, msgspec.Struct):
        yield from _references(msgspec.structs.astuple(command))
    elif isinstance(command, tuple | list):
        parts: Iterable[Any] = command
        for part in parts:
            yield from _references(part)

"""`etagere status`: the health of a running server."""

from __future__ import annotations

import argparse
import fcntl
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from etagere import data_directory, directories
from etagere.cli import CLEAN, FINDINGS, CommandError, settings_of
from etagere.cli.output import print_json
from etagere.clock import TICKS_PER_SECOND, SystemClock
from etagere.config import Config
from etagere.engine import ledger, timeline
from etagere.jobs.health import ChildHealth, server_status
from etagere.jobs.status import (
    Disk,
    children_of,
    disk_of,
    disk_problems,
    job_problems,
    process_problems,
    size_text,
)
from etagere.jobs.supervision import JobHealth
from etagere.processes import ChildStatus, SupervisorStatus
from etagere.settings.loading import add_arguments as add_settings

NAME = "status"
SUMMARY = "show the health of a running server"
DESCRIPTION = """\
Queries the processes of a running server, and shows:

  - each process and how often it was restarted;
  - for each background job the last success, the consecutive failures and the last error;
  - free disk space, the reserve, and the sizes of the ledger and its write-ahead log;
  - the difference between the store's date and the clock of this machine;
  - with TLS, how long the certificate is still valid.

Problems are listed at the end. The following are problems: the server is not running; a
process is not running, keeps failing or does not respond; a job has failed three times in a
row; the disk is full; the store's date differs from the clock by more than five minutes; the
certificate has expired.

Exit status: 0 if the server is healthy, 1 if there are problems, 2 if the command failed."""
EXAMPLES = """\
etagere status                            # ./etagere-data, or $ETAGERE_DATA
etagere status --data /srv/etagere --json # for programs"""

ANSWER_SECONDS_MAX = 5.0
CLOCK_SECONDS_MAX = 300.0
"""A larger difference between the store's date and the clock is a problem. (A date that is behind
catches up within a minute.)"""
_ONE_DAY_SECONDS = 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, "data")
    parser.add_argument("--json", action="store_true", help="print the status as JSON")


def run(arguments: argparse.Namespace) -> int:
    directory = settings_of(arguments).data
    try:
        disk = disk_of(directory)
        is_used = _is_used(directory)
        supervisor = server_status(directory, ANSWER_SECONDS_MAX) if is_used else None
        children = children_of(directory, supervisor, ANSWER_SECONDS_MAX)
        clock_seconds = _clock_seconds(directory)
    except OSError as error:
        path = error.filename or directory
        raise CommandError(f"{path} cannot be used: {error.strerror}") from error
    problems = _problems(is_used, supervisor, children)
    problems += disk_problems(disk)
    problems += _clock_problems(clock_seconds)
    expires = _certificate_expires(children)
    problems += _certificate_problems(expires)
    if arguments.json:
        report = _as_json(directory, supervisor, children, disk, problems)
        more = {"clock_seconds_ahead": clock_seconds, "certificate_expires": expires}
        print_json({**report, **more})
    else:
        _print(supervisor, children, disk, clock_seconds, expires, problems)
    return FINDINGS if problems else CLEAN


# Collecting the status


def _is_used(directory: Path) -> bool:
    """Whether a process has locked the directory."""
    try:
        descriptor = os.open(directory / directories.LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _clock_seconds(directory: Path) -> float | None:
    """Returns by how much the store's date, or its last stamp, is ahead of the clock; None if the
    ledger cannot be read."""
    try:
        stored = data_directory.read_timeline(directory, Config())
    except (ledger.DatabaseError, ledger.NotALedger, msgspec.DecodeError):
        return None
    clock = SystemClock()
    ahead = timeline.instant_from(stored, clock).now - clock.wall()
    stamp_ahead = stored.last_stamp - clock.wall()
    return round(max(ahead, stamp_ahead if stamp_ahead > 0 else ahead) / TICKS_PER_SECOND, 3)


def _certificate_expires(children: dict[str, ChildHealth | None]) -> float | None:
    """Returns when the certificate of a front end expires, the earliest if they differ; None
    without TLS. In seconds since 1970."""
    times = [health.certificate_expires for health in children.values() if health is not None]
    return min((expires for expires in times if expires is not None), default=None)


# Problems


def _problems(
    is_used: bool,
    supervisor: SupervisorStatus | None,
    children: dict[str, ChildHealth | None],
) -> list[str]:
    if not is_used:
        return ["no server is running"]
    if supervisor is None:
        return ["a process uses the directory, but no server responds"]
    return process_problems(supervisor, children) + job_problems(children)


def _clock_problems(seconds: float | None) -> list[str]:
    if seconds is None or abs(seconds) <= CLOCK_SECONDS_MAX:
        return []
    side = "ahead of" if seconds > 0 else "behind"
    return [f"the store's date is {_span(abs(seconds))} {side} the clock; see `etagere clock`"]


def _certificate_problems(expires: float | None) -> list[str]:
    """An expired certificate is a problem, but not one that expires soon: a health check must not
    end a server that works."""
    if expires is None or expires > time.time():
        return []
    return ["the certificate has expired; replace it and send SIGHUP to the server"]


# Output


def _print(
    supervisor: SupervisorStatus | None,
    children: dict[str, ChildHealth | None],
    disk: Disk,
    clock_seconds: float | None,
    certificate_expires: float | None,
    problems: list[str],
) -> None:
    if supervisor is not None:
        print(f"server (pid {supervisor.pid})")
        for child in supervisor.children:
            print(f"  {_child_line(child, supervisor.now)}")
            health = children.get(child.name)
            for job in health.jobs if health is not None else ():
                print(f"    {_job_line(job, health.now if health is not None else 0.0)}")
    _print_disk(disk)
    if clock_seconds is not None:
        print(f"clock      the store's date is {clock_seconds:+.3f} s from the clock")
    if certificate_expires is not None:
        left = certificate_expires - time.time()
        print(f"TLS        the certificate is valid for another {_span(left)}")
    for problem in problems:
        print(f"PROBLEM    {problem}")
    if not problems:
        print("healthy")


def _print_disk(disk: Disk) -> None:
    free = f"disk       {size_text(disk.free_bytes)} free"
    if not disk.ledger_bytes:
        # The ledger of a node is in PostgreSQL, and needs no reserve here.
        print(free)
        return
    whole = "complete" if disk.reserve_is_whole else "released"
    print(f"{free}; reserve {size_text(disk.reserve_bytes)}, {whole}")
    print(f"ledger     {size_text(disk.ledger_bytes)}; write-ahead log {size_text(disk.log_bytes)}")


def _child_line(child: ChildStatus, now: float) -> str:
    state = f"pid {child.pid}, for {_span(now - child.started)}" if child.pid else "not running"
    if not child.restarts and child.last_ended is None:
        return f"{child.name}: {state}"
    times = "once" if child.restarts == 1 else f"{child.restarts} times"
    ended = "" if child.last_ended is None else f" {_span(now - child.last_ended)} ago"
    return f"{child.name}: {state}; restarted {times}, last exit{ended}: {child.last_end}"


def _job_line(job: JobHealth, now: float) -> str:
    if job.last_success is None:
        line = f"{job.name}: not run yet"
    else:
        line = f"{job.name}: last success {_span(now - job.last_success)} ago"
    if job.consecutive_failures:
        line += f"; {job.consecutive_failures} consecutive failures: {job.last_error}"
    elif job.last_failure is not None:
        line += f"; last failure {_span(now - job.last_failure)} ago: {job.last_error}"
    return line


def _span(seconds: float) -> str:
    if seconds >= _ONE_DAY_SECONDS:
        return f"{seconds / _ONE_DAY_SECONDS:.1f} d"
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{max(0.0, seconds):.0f} s"


def _as_json(
    directory: Path,
    supervisor: SupervisorStatus | None,
    children: dict[str, ChildHealth | None],
    disk: Disk,
    problems: list[str],
) -> dict[str, Any]:
    processes = []
    for child in supervisor.children if supervisor is not None else ():
        health = children.get(child.name)
        jobs = None if health is None else msgspec.to_builtins(health.jobs)
        processes.append({**msgspec.to_builtins(child), "jobs": jobs})
    return {
        "directory": str(directory),
        "time": time.time(),
        "healthy": not problems,
        "problems": problems,
        "pid": None if supervisor is None else supervisor.pid,
        "processes": processes,
        "disk": disk._asdict(),
    }

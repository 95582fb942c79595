"""The runner of smbtorture: lists of tests, outcomes, and the comparison with Samba."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from smbtorture import report
from smbtorture.report import Record, compare, shortfalls, table
from smbtorture.run import Outcome, Result, parse, run_test
from smbtorture.suites import SUITES, TortureTest, select_tests

LISTED = """\
smb2.connect.connect
smb2.lock.rw-none.rw-none
smb2.lock.async.async
smb2.charset.Testing.Testing partial surrogate
smb2.lock_other.a.a
raw.lock.lock.lock
smb2.rw.case.rw1
smb2.rw.case.rw2
"""
LOCK = TortureTest("lock", "lock.async", "smb2.lock.async.async")
READ = TortureTest("read", "read.eof", "smb2.read.eof.eof")
WRITE = TortureTest("read", "read.dir", "smb2.read.dir.dir")


def test_names_of_tests() -> None:
    listed = select_tests(["rw", "lock", "connect"], LISTED.splitlines())
    assert [(test.suite, test.name) for test in listed] == [
        ("rw", "rw.case.rw1"),
        ("rw", "rw.case.rw2"),
        ("lock", "lock.rw-none"),
        ("lock", "lock.async"),
        ("connect", "connect"),
    ]
    assert listed[2].full_name == "smb2.lock.rw-none.rw-none"


@pytest.mark.parametrize(
    ("output", "result", "reason"),
    [
        ("smbtorture 4\ntest: eof\ntime: 1\nsuccess: eof\n", Result.PASSED, ""),
        ("test: a\n0success: b", Result.FAILED, "no result: 0success: b"),
        ("", Result.FAILED, "no result:"),
        (
            "failure: a [\n../../source4/torture/smb2/lock.c:3: wrong\n status\n]\n",
            Result.FAILED,
            "lock.c:3: wrong status",
        ),
        ("error: a [\nout of memory\n]\n", Result.FAILED, "out of memory"),
        ("skip: a [\nonly on Windows\n]\n", Result.SKIPPED, "only on Windows"),
        ("failure: a [\nfirst\n]\nsuccess: a\n", Result.FAILED, "first"),
    ],
)
def test_outputs(output: str, result: Result, reason: str) -> None:
    assert parse(output) == (result, reason)


def test_a_test_that_takes_too_long(tmp_path: Path) -> None:
    program = "import time; print('success: a', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program]
    outcome = run_test(READ, command, tmp_path / "output", 0.5)
    assert (outcome.result, outcome.reason) == (Result.FAILED, "took longer than 0.5 s")


def test_comparison() -> None:
    record = Record(
        "4.17",
        {LOCK.name: Result.PASSED, READ.name: Result.PASSED, WRITE.name: Result.FAILED},
    )
    outcomes = [
        Outcome(LOCK, Result.FAILED, "no locks", 2.0),
        Outcome(READ, Result.PASSED, "", 1.0),
        Outcome(WRITE, Result.PASSED, "", 1.0),
    ]
    lock, read, total = compare(outcomes, record)
    assert (lock.name, lock.tests, lock.samba, lock.both, lock.more) == ("lock", 1, 1, 0, 0)
    assert (read.name, read.tests, read.samba, read.both, read.more) == ("read", 2, 1, 1, 1)
    assert (total.percent, total.seconds) == (50.0, 4.0)
    assert shortfalls(outcomes, record) == "lock.async: failed: no locks"
    assert "50%" in table([lock, read, total], "4.17").splitlines()[3]


def test_record(tmp_path: Path) -> None:
    old = Record("4.17", {"lock.a": Result.PASSED, "read.eof": Result.FAILED, "rw": Result.SKIPPED})
    old.store(tmp_path / "samba.json")
    assert Record.load(tmp_path / "samba.json") == old
    new = old.updated("4.18", [Outcome(READ, Result.PASSED)])
    assert new == Record("4.18", {**old.results, "read.eof": Result.PASSED})
    # A test that is no longer there is forgotten.
    assert old.updated("4.18", [Outcome(LOCK, Result.PASSED)]).results.get("lock.a") is None


def test_stored_record() -> None:
    record = Record.load(report.RECORD)
    of_suites = {
        name: result for name, result in record.results.items() if name.partition(".")[0] in SUITES
    }
    assert {name.partition(".")[0] for name in of_suites} == set(SUITES)
    assert sum(result is Result.PASSED for result in of_suites.values()) == 185

"""Connections: which outcome an error stands for, session settings, secrets in messages."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import cast

import pytest
from psycopg.errors import Diagnostic

from etagere.engine.interface import Conflict, Fault, FaultReason, Unknown
from etagere.engine.postgres.connecting import (
    Database,
    outcome_of,
    reader_parameters,
    writer_parameters,
)
from etagere.postgresql import connection_parameters, is_replication_warning

UNAVAILABLE, FAILED, DISK_FULL = (
    FaultReason.UNAVAILABLE,
    FaultReason.FAILED,
    FaultReason.DISK_FULL,
)

BEFORE_COMMIT = [
    ("40001", Conflict),
    ("40P01", Conflict),
    ("55P03", Conflict),
    ("23505", Conflict),
    ("53100", DISK_FULL),
    ("53200", UNAVAILABLE),
    ("53300", UNAVAILABLE),
    ("57014", UNAVAILABLE),
    ("57P01", UNAVAILABLE),
    ("57P02", UNAVAILABLE),
    ("57P03", UNAVAILABLE),
    ("25006", UNAVAILABLE),
    ("25P03", UNAVAILABLE),
    ("08006", UNAVAILABLE),
    ("28P01", UNAVAILABLE),
    ("22012", UNAVAILABLE),
    ("42P01", FAILED),
    ("22001", FAILED),
    ("58030", FAILED),
    ("XX000", FAILED),
    ("XX001", FAILED),
    (None, UNAVAILABLE),
]


@pytest.mark.parametrize(("sqlstate", "expected"), BEFORE_COMMIT)
def test_errors_before_a_commit(
    sqlstate: str | None, expected: type[Conflict] | FaultReason
) -> None:
    outcome = outcome_of(sqlstate, "detail", severity="FATAL" if sqlstate == "57P01" else "ERROR")
    if isinstance(expected, FaultReason):
        assert isinstance(outcome, Fault)
        assert outcome.reason is expected
    else:
        assert isinstance(outcome, expected)


@pytest.mark.parametrize(
    ("sqlstate", "severity"),
    [(None, ""), ("57P01", "FATAL"), ("57P02", "FATAL"), ("53100", "PANIC"), ("25P03", "FATAL")],
)
def test_a_connection_that_ends_at_the_commit_leaves_the_outcome_unknown(
    sqlstate: str | None, severity: str
) -> None:
    assert isinstance(outcome_of(sqlstate, "", severity=severity, commit_sent=True), Unknown)


@pytest.mark.parametrize("sqlstate", ["40001", "55P03", "53100", "22012", "XX000"])
def test_an_error_that_the_server_reports_at_the_commit_is_certain(sqlstate: str) -> None:
    with_commit = outcome_of(sqlstate, "detail", severity="ERROR", commit_sent=True)
    before = outcome_of(sqlstate, "detail", severity="ERROR")
    assert (type(with_commit), str(with_commit)) == (type(before), str(before))


def test_writers_never_cancel_a_commit() -> None:
    database = Database(
        "postgresql://user:secret@one,two:5433/name?options=-c%20work_mem%3D8MB", "cell"
    )
    writing, reading = writer_parameters(database), reader_parameters(database)
    assert "statement_timeout=0" in writing["options"]
    assert "lock_timeout=100ms" in writing["options"]
    assert "statement_timeout=30s" in reading["options"]
    for parameters in (writing, reading):
        assert "search_path=cell" in parameters["options"]
        assert "work_mem=8MB" in parameters["options"]
        assert "synchronous_commit" not in parameters["options"]
        assert sorted(parameters["host"].split(",")) == ["one", "two"]
        assert parameters["target_session_attrs"] == "read-write"


def test_a_commit_that_was_not_replicated_is_recognized_in_any_language() -> None:
    warning = SimpleNamespace(
        message_primary="storniere Warten auf synchrone Replikation wegen Benutzeraufforderung",
        source_function="SyncRepWaitForLSN",
    )
    assert is_replication_warning(cast("Diagnostic", warning))
    other = SimpleNamespace(message_primary="", source_function="EndTransactionBlock")
    assert not is_replication_warning(cast("Diagnostic", other))


@pytest.mark.parametrize(
    ("name", "given", "used"),
    [
        ("client_min_messages", "error", "warning"),
        ("lock_timeout", "0", "100ms"),
        ("statement_timeout", "1s", "0"),
        ("idle_in_transaction_session_timeout", "0", "5s"),
        ("default_transaction_isolation", "serializable", r"read\ committed"),
    ],
)
def test_a_connection_string_cannot_override_the_settings_of_writers(
    name: str, given: str, used: str
) -> None:
    """The last of several values counts."""
    dsn = f"postgresql:///?options=-c%20{name}%3D{given}"
    options = writer_parameters(Database(dsn))["options"]
    assert re.findall(rf"-c {name}=((?:\\ |\S)+)", options) == [given, used]


def test_all_connections_get_warnings() -> None:
    """PostgreSQL warns that a commit was not replicated."""
    options = connection_parameters("postgresql:///?options=-c%20work_mem%3D8MB", "test")["options"]
    assert "-c client_min_messages=warning" in options


def test_a_database_does_not_show_its_password() -> None:
    assert "secret" not in repr(Database("postgresql://user:secret@host/name"))

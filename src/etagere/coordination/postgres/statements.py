"""The tables and statements of the coordinator.

Every statement is a transaction of its own, so that no process holds a lock while it is paused.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import errors, sql

from etagere.postgresql import fetch_value

_ATTEMPTS_MAX: Final = 20

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS cluster_nodes (
        name text PRIMARY KEY,
        id bytea NOT NULL,
        addresses text NOT NULL,
        draining boolean NOT NULL DEFAULT false,
        version text NOT NULL,
        is_in_cell boolean NOT NULL,
        started timestamptz NOT NULL,
        seen timestamptz NOT NULL
    )""",
    # Rows are updated once a second: with free space in the pages, no index has to change.
    """CREATE TABLE IF NOT EXISTS cluster_processes (
        id bytea PRIMARY KEY,
        node text NOT NULL,
        name text NOT NULL,
        lifetime interval NOT NULL,
        expires timestamptz NOT NULL,
        last_pin_round bigint NOT NULL DEFAULT 0,
        oldest_pin bigint,
        segments bytea NOT NULL DEFAULT ''
    ) WITH (fillfactor = 30)""",
    """CREATE TABLE IF NOT EXISTS cluster_tasks (
        name text PRIMARY KEY,
        holder bytea REFERENCES cluster_processes ON DELETE SET NULL,
        epoch bigint NOT NULL
    )""",
    # Tables of one row. They have a key, so that two processes cannot add it at the same time.
    """CREATE TABLE IF NOT EXISTS cluster_pin_rounds (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        last bigint NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS cluster_sweeps (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        at timestamptz NOT NULL
    )""",
    "INSERT INTO cluster_pin_rounds (last) VALUES (1) ON CONFLICT DO NOTHING",
    "INSERT INTO cluster_sweeps (at) VALUES ('epoch') ON CONFLICT DO NOTHING",
)

IS_CLUSTER: Final = """
    SELECT coalesce(to_regclass('cluster_sweeps'), to_regclass('schema_version')) IS NOT NULL
"""
"""Whether the database has a ledger, or tables of the coordinator."""

JOIN: Final = """
    INSERT INTO cluster_processes (id, node, name, lifetime, expires)
    SELECT %(id)s, %(node)s, %(name)s, lifetime, clock_timestamp() + lifetime
    FROM make_interval(secs => %(lifetime)s) AS lifetime
"""

REPLACE: Final = """
    DELETE FROM cluster_processes WHERE node = %(node)s AND name = %(name)s
"""
"""Declares the predecessors of a process dead, which frees their tasks."""

HEARTBEAT: Final = """
    WITH beat AS (
        UPDATE cluster_processes
        SET expires = clock_timestamp() + lifetime, last_pin_round = %(pin_round)s,
            oldest_pin = %(oldest)s, segments = coalesce(%(segments)s, segments)
        WHERE id = %(id)s
        RETURNING node
    )
    SELECT (SELECT last FROM cluster_pin_rounds),
        (SELECT extract(epoch FROM statement_timestamp() - at)::float8 FROM cluster_sweeps),
        coalesce((SELECT draining FROM cluster_nodes WHERE name = beat.node), false),
        (SELECT coalesce(array_agg(name), '{}') FROM cluster_tasks WHERE holder = %(id)s)
    FROM beat
"""
"""Returns no row if the process was declared dead."""

SWEEP: Final = """
    WITH sweep AS (
        SELECT one, statement_timestamp() - at AS gap FROM cluster_sweeps
        WHERE statement_timestamp() - at >= make_interval(secs => %(pause)s)
           OR statement_timestamp() - at <= make_interval(secs => -%(pause)s)
        FOR UPDATE SKIP LOCKED
    ), verdict AS (
        SELECT gap BETWEEN interval '0' AND make_interval(secs => %(gap_max)s) AS is_steady
        FROM sweep
    ), swept AS (
        UPDATE cluster_sweeps AS sweeps SET at = statement_timestamp() FROM sweep
        WHERE sweeps.one = sweep.one
    ), extended AS (
        UPDATE cluster_processes SET expires = statement_timestamp() + lifetime FROM verdict
        WHERE NOT is_steady
    ), dead AS (
        DELETE FROM cluster_processes AS process USING verdict
        WHERE is_steady AND process.expires < statement_timestamp()
        RETURNING process.id, process.node, process.name, process.expires - process.lifetime AS seen
    ), nodes_updated AS (
        UPDATE cluster_nodes AS nodes SET seen = greatest(nodes.seen, dead.seen) FROM dead
        WHERE nodes.name = dead.node
    )
    SELECT id, node, name FROM dead
"""
"""Declares expired processes dead, and returns them. If the last sweep was not recent, the database
was unavailable or its clock was set: no process could renew its membership in time, and each gets a
full lifetime. Both comparisons use the time at which the statement arrived, so that no process
expires because the server is paused while it runs the statement."""

LEAVE: Final = """
    WITH gone AS (DELETE FROM cluster_processes WHERE id = %(id)s RETURNING node)
    UPDATE cluster_nodes AS nodes SET seen = clock_timestamp() FROM gone
    WHERE nodes.name = gone.node
"""

IS_ALIVE: Final = "SELECT EXISTS (SELECT FROM cluster_processes WHERE id = %(id)s)"

START_PIN_ROUND: Final = """
    UPDATE cluster_pin_rounds
    SET last = greatest(last + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    RETURNING last
"""
"""Numbers also follow the clock. So a database that was restored, or lost changes because it
replicates asynchronously, does not give the same numbers again."""

PUBLISHED: Final = """
    SELECT last_pin_round, oldest_pin, segments FROM cluster_processes WHERE id <> %(id)s
"""

TAKE_TASK: Final = """
    INSERT INTO cluster_tasks AS task (name, holder, epoch)
    SELECT %(task)s, process.id, 1
    FROM cluster_processes AS process LEFT JOIN cluster_nodes AS nodes ON nodes.name = process.node
    WHERE process.id = %(id)s AND nodes.draining IS NOT true
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = task.epoch + 1
    WHERE task.holder IS NULL OR task.holder = excluded.holder
    RETURNING epoch
"""
"""The foreign key frees the tasks of a process that is declared dead at the same time."""

HOLDS_TASK: Final = """
    SELECT EXISTS (
        SELECT FROM cluster_tasks
        WHERE name = %(task)s AND holder = %(id)s AND epoch = %(epoch)s
    )
"""

RELEASE_TASK: Final = """
    UPDATE cluster_tasks SET holder = NULL
    WHERE name = %(task)s AND holder = %(id)s AND epoch = %(epoch)s
"""

RELEASE_UNUSED: Final = """
    UPDATE cluster_tasks SET holder = NULL WHERE name = ANY(%(tasks)s) AND holder = %(id)s
"""
"""Releases tasks that a process does not work on, whatever their epochs are."""


def create_tables(connection: psycopg.Connection[Any], schema: str) -> None:
    """Creates the schema and the tables of the coordinator unless they exist. Several processes may
    do this at the same time."""
    create_schema = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))
    for attempt in range(_ATTEMPTS_MAX):
        if fetch_value(connection, "SELECT to_regclass('cluster_sweeps') IS NOT NULL"):
            return
        try:
            with connection.transaction():
                connection.execute(create_schema)
                for statement in _TABLES:
                    connection.execute(statement)
        except (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
            # Another session has created them at the same time.
            if attempt == _ATTEMPTS_MAX - 1:
                raise

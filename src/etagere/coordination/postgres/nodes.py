"""The nodes of a cluster: which there are, where they listen, and which of them are being drained.

Commands and the processes of a node use this. A node is alive while one of its processes is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import msgspec
import psycopg
from psycopg.rows import kwargs_row

from etagere import postgresql
from etagere.coordination.interface import CoordinatorUnavailable, NodeStatus
from etagere.coordination.postgres import statements
from etagere.coordination.postgres.session import ANSWER_SECONDS_MAX
from etagere.model.cluster import FILE_TASK
from etagere.postgresql import BoundedConnection, fetch_value

_REGISTER: Final = """
    INSERT INTO cluster_nodes AS node (name, id, addresses, version, is_in_cell, started, seen)
    VALUES (%(name)s, %(id)s, %(addresses)s, %(version)s, %(is_in_cell)s, clock_timestamp(),
        clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET id = excluded.id, addresses = excluded.addresses,
        version = excluded.version, is_in_cell = excluded.is_in_cell, started = excluded.started,
        seen = excluded.seen
    WHERE node.id = excluded.id
       OR NOT EXISTS (
           SELECT FROM cluster_processes AS process
           WHERE process.node = node.name AND process.expires + process.lifetime > clock_timestamp()
       )
    RETURNING name
"""
"""Expired processes may still be there: if the last node was killed, no other one declares them
dead. They get another lifetime to renew their memberships after the database was unavailable."""
_LIST: Final = """
    SELECT nodes.name, nodes.addresses, nodes.version, nodes.is_in_cell,
        CASE WHEN coalesce(processes.expires, '-infinity') < clock_timestamp() THEN 'gone'
            WHEN nodes.draining THEN 'draining' ELSE 'serving' END AS state,
        coalesce(processes.count, 0) AS processes,
        coalesce(processes.has_files, false) AS serves_files,
        extract(epoch FROM nodes.started)::float8 AS started,
        extract(epoch FROM greatest(nodes.seen, processes.seen))::float8 AS seen
    FROM cluster_nodes AS nodes
    LEFT JOIN (
        SELECT node, count(*)::int AS count, max(expires) AS expires,
            max(expires - lifetime) AS seen,
            bool_or(id = (SELECT holder FROM cluster_tasks WHERE name = %(file)s)) AS has_files
        FROM cluster_processes GROUP BY node
    ) AS processes ON processes.node = nodes.name
    ORDER BY nodes.name
"""
_RUNNING: Final = """
    SELECT DISTINCT node FROM cluster_processes
    WHERE node <> '' AND expires + lifetime > clock_timestamp()
    ORDER BY node
"""
_HAS_PROCESSES: Final = "SELECT EXISTS (SELECT FROM cluster_processes WHERE node <> '')"
_STATUS: Final = """
    SELECT nodes.name, nodes.draining, EXISTS (
        SELECT FROM cluster_tasks AS task
        JOIN cluster_processes AS holder ON holder.id = task.holder
        WHERE task.name = %(file)s AND holder.node = nodes.name
    )
    FROM cluster_nodes AS nodes WHERE nodes.name = %(name)s
"""
_SET_DRAINING: Final = """
    UPDATE cluster_nodes SET draining = %(draining)s WHERE name = %(name)s RETURNING name
"""
_FORGET: Final = """
    DELETE FROM cluster_nodes AS node WHERE name = %(name)s
    AND NOT EXISTS (
        SELECT FROM cluster_processes AS process
        WHERE process.node = node.name AND process.expires + process.lifetime > clock_timestamp()
    )
    RETURNING name
"""


class NoCluster(Exception):
    """The database has no ledger, so there can be no nodes."""


class NoSuchNode(Exception):
    """No node has this name."""


class NodeInUse(Exception):
    """A node with this name is running."""


class NodeState(StrEnum):
    SERVING = "serving"
    DRAINING = "draining"
    GONE = "gone"


class Node(msgspec.Struct, frozen=True):
    """A node, as all others see it. Times are in seconds since 1970, by the database's clock."""

    name: str
    state: NodeState
    addresses: dict[str, str]
    """By service, for example `{"blob": "10.0.0.1:10000"}`."""
    version: str
    processes: int
    serves_files: bool
    """Whether it is the node that serves File and SMB."""
    is_in_cell: bool
    """Whether it was started as a node of one of several cells."""
    started: float
    seen: float
    """When one of its processes last renewed its membership."""


def _node(**columns: Any) -> Node:
    addresses = msgspec.json.decode(columns.pop("addresses"), type=dict[str, str])
    return Node(state=NodeState(columns.pop("state")), addresses=addresses, **columns)


class NodeStatusReader:
    """Reads the state of one node again and again, on one connection."""

    def __init__(self, dsn: str, name: str, *, schema: str = postgresql.SCHEMA) -> None:
        self._dsn, self._schema = dsn, schema
        self._parameters = {"name": name, "file": FILE_TASK}
        self._connection: BoundedConnection | None = None

    def read(self) -> NodeStatus:
        """Raises `CoordinatorUnavailable`, or `NoSuchNode`."""
        try:
            if self._connection is None:
                self._connection = postgresql.connect(
                    self._dsn, "etagere admin", self._schema, answer_seconds_max=ANSWER_SECONDS_MAX
                )
            row = self._connection.execute(_STATUS, self._parameters).fetchone()
        except psycopg.Error as error:
            self.close()  # the next call connects again
            raise CoordinatorUnavailable(postgresql.describe(error)) from None
        if row is None:
            raise NoSuchNode(f"there is no node named {self._parameters['name']}")
        return NodeStatus(*row)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class NodeRegistry:
    """The nodes of a cluster in its database. Methods wait for the database, and may raise
    `CoordinatorUnavailable`; all but `register` raise `NoCluster` if the database is not that of a
    cluster."""

    def __init__(self, dsn: str, *, schema: str = postgresql.SCHEMA) -> None:
        self._dsn, self._schema = dsn, schema

    def register(
        self,
        name: str,
        node_id: bytes,
        addresses: Mapping[str, str],
        version: str,
        *,
        is_in_cell: bool = False,
    ) -> None:
        """Adds a node, or changes it after a restart. `node_id` stays the same over restarts. A
        node that was being drained continues to be. Raises `NodeInUse` if another node has the
        name."""
        columns = {
            "name": name,
            "id": node_id,
            "addresses": msgspec.json.encode(addresses).decode(),
            "version": version,
            "is_in_cell": is_in_cell,
        }
        with self._connect(may_create=True) as connection:
            if connection.execute(_REGISTER, columns).fetchone() is None:
                raise NodeInUse(f"another node named {name} is running; choose another name")

    def list(self) -> list[Node]:
        """Returns all nodes by name, including those that are gone."""
        with self._connect() as connection:
            cursor = connection.cursor(row_factory=kwargs_row(_node))
            return cursor.execute(_LIST, {"file": FILE_TASK}).fetchall()

    def running(self) -> tuple[str, ...]:
        """Returns the names of the nodes of which a process is a member of the cluster, or may
        renew its membership because it expired only recently."""
        with self._connect() as connection:
            return tuple(name for (name,) in connection.execute(_RUNNING))

    def has_processes(self) -> bool:
        """Returns whether a process of a node is a member of the cluster. An expired one is until
        a process, for instance the caller, declares it dead."""
        with self._connect() as connection:
            return bool(fetch_value(connection, _HAS_PROCESSES))

    def drain(self, name: str) -> None:
        """Makes a node finish what is under way, and take no more. Raises `NoSuchNode`."""
        self._change(_SET_DRAINING, {"name": name, "draining": True})

    def resume(self, name: str) -> None:
        """Makes a node serve again. Raises `NoSuchNode`."""
        self._change(_SET_DRAINING, {"name": name, "draining": False})

    def forget(self, name: str) -> None:
        """Removes a node that is gone. Raises `NoSuchNode` or `NodeInUse`."""
        try:
            self._change(_FORGET, {"name": name})
        except NoSuchNode:
            if any(node.name == name for node in self.list()):
                raise NodeInUse(f"node {name} is running") from None
            raise

    def _change(self, statement: str, parameters: Mapping[str, object]) -> None:
        with self._connect() as connection:
            if connection.execute(statement.encode(), parameters).fetchone() is None:
                raise NoSuchNode(f"there is no node named {parameters['name']}")

    @contextmanager
    def _connect(self, *, may_create: bool = False) -> Iterator[BoundedConnection]:
        """Connects. `may_create`: whether the database may be changed although it has no ledger."""
        try:
            with postgresql.connect(
                self._dsn, "etagere nodes", self._schema, answer_seconds_max=ANSWER_SECONDS_MAX
            ) as connection:
                if not may_create and not fetch_value(connection, statements.IS_CLUSTER):
                    raise NoCluster
                statements.create_tables(connection, self._schema)
                yield connection
        except psycopg.Error as error:
            raise CoordinatorUnavailable(postgresql.describe(error)) from error

"""Fixtures of engines, which `tests/conftest.py` offers to all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.clusters.sharing import run_name
from tests.server import unique

# The clients of engines are imported by the tests that use them: others need not wait for that.
if TYPE_CHECKING:
    from tests.clusters.ceph import CephCluster
    from tests.clusters.postgresql import PostgresServer
    from tests.clusters.s3 import S3Server


@pytest.fixture(scope="session")
def postgresql_server() -> PostgresServer:
    """The PostgreSQL server that all tests of a run share. A test that stops a server starts its
    own with `tests.clusters.postgresql.postgresql`."""
    from tests.clusters.postgresql import shared_postgresql  # noqa: PLC0415

    return shared_postgresql(run_name())


@pytest.fixture(scope="session")
def postgresql_dsn(postgresql_server: PostgresServer) -> str:
    """The database of the shared server. Each test creates its tables in its own schema."""
    return postgresql_server.dsn


@pytest.fixture
def postgresql_schema(postgresql_dsn: str) -> Iterator[str]:
    """The name of a schema that does not exist and that no other test uses, removed afterwards."""
    name = unique("schema").replace("-", "_")
    yield name
    import psycopg  # noqa: PLC0415

    with psycopg.connect(postgresql_dsn, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '10s'")
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
def postgresql_database(postgresql_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that no other test uses, removed afterwards."""
    from tests.clusters.postgresql import temporary_database  # noqa: PLC0415

    with temporary_database(postgresql_server) as url:
        yield url


@pytest.fixture(scope="session")
def s3_store() -> S3Server:
    """The S3 server that all tests of a run share. Each test uses its own prefix."""
    from tests.clusters.s3 import shared_s3_server  # noqa: PLC0415

    return shared_s3_server(run_name())


@pytest.fixture(scope="session")
def ceph() -> Iterator[CephCluster]:
    """A Ceph cluster for long tests. Each test uses its own prefix, and leaves all OSDs running."""
    from tests.clusters.ceph import ceph_cluster  # noqa: PLC0415

    with ceph_cluster() as cluster:
        yield cluster

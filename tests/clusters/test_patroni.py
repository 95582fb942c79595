"""The PostgreSQL cluster of the tests: what happens to its primary."""

from __future__ import annotations

import psycopg
import pytest

from tests.clusters.patroni import PatroniCluster, patroni_cluster

pytestmark = pytest.mark.long


def insert(cluster: PatroniCluster, number: int) -> None:
    with psycopg.connect(cluster.dsn, connect_timeout=5) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number integer)")
        connection.execute("INSERT INTO numbers VALUES (%s)", (number,))


def test_committed_rows_survive_each_change_of_the_primary() -> None:
    with patroni_cluster(ttl_seconds=8) as cluster:
        insert(cluster, 0)
        cluster.switch_over()
        cluster.await_healthy()
        insert(cluster, 1)
        changes = [cluster.kill_node, cluster.kill_postgresql, cluster.pause_node]
        for number, change in enumerate(changes, 2):
            before = cluster.await_primary()
            change(before)
            cluster.await_primary(other_than=before)
            if change == cluster.kill_node:
                cluster.start_node(before)
            cluster.resume_node(before)
            cluster.await_healthy()
            insert(cluster, number)
        with psycopg.connect(cluster.dsn) as connection:
            rows = connection.execute("SELECT number FROM numbers ORDER BY number").fetchall()
    assert rows == [(number,) for number in range(5)]

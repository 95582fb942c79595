"""Killed servers: everything acknowledged is there, and every group is atomic."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

import pytest
from azure.core.exceptions import AzureError
from azure.data.tables import TableAccessPolicy, TableClient

from tests.sdk.harness import refused
from tests.sdk.table.clients import row_keys, table_service
from tests.server import Server, check, eventually, served

WRITERS: Final = 3
GROUP: Final = 5


def test_state_survives_a_kill(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        with table_service(server) as service:
            kept, gone = service.create_table("Kept"), service.create_table("Gone")
            kept.create_entity({"PartitionKey": "p", "RowKey": "r", "Raw": b"\x00" * 65_536})
            etag = kept.update_entity({"PartitionKey": "p", "RowKey": "r", "Age": 36})["etag"]
            kept.create_entity({"PartitionKey": "p", "RowKey": "deleted"})
            kept.delete_entity("p", "deleted")
            kept.set_table_access_policy({"it": TableAccessPolicy(permission="r")})
            for partition in range(3):
                gone.submit_transaction(
                    [
                        ("create", {"PartitionKey": str(partition), "RowKey": f"{row:02}"})
                        for row in range(100)
                    ]
                )
            gone.delete_table()
        server.kill()
        server.start()
        with table_service(server) as service:
            kept, gone = service.get_table_client("kept"), service.get_table_client("gone")
            (entity,) = kept.list_entities()
            assert (entity["Raw"], entity["Age"]) == (b"\x00" * 65_536, 36)
            assert entity.metadata["etag"] == etag
            assert list(kept.get_table_access_policy()) == ["it"]
            assert [table.name for table in service.list_tables()] == ["Kept"]
            with refused(404, "TableNotFound"):
                row_keys(gone)
            gone.create_table()
            assert row_keys(gone) == []
        assert server.stop() == 0
    found = check(tmp_path / "data")
    assert found.returncode == 0, found.stdout + found.stderr


class Load:
    """A client that puts groups and single entities, and records what was acknowledged."""

    def __init__(self, number: int) -> None:
        self.partition = f"writer {number}"
        self.there: dict[str, int] = {}
        self.groups: dict[int, bool] = {}
        """Whether a group was acknowledged, by its number."""
        self.gone: set[str] = set()

    def run(self, server: Server) -> None:
        """Runs until the server is gone."""
        with table_service(server, connection_timeout=5, read_timeout=20) as service:
            table = service.get_table_client("Load")
            try:
                for number in range(1_000_000):
                    self._put(table, number)
            except AzureError:
                return

    def has_results(self) -> bool:
        return bool(self.gone and self.there)

    def _put(self, table: TableClient, number: int) -> None:
        self.groups[number] = False
        table.submit_transaction([("upsert", self._member(each, number)) for each in range(GROUP)])
        self.groups[number] = True
        row = f"single {number}"
        table.create_entity({"PartitionKey": self.partition, "RowKey": row, "Number": number})
        self.there[row] = number
        if number % 3 == 0:
            del self.there[row]
            table.delete_entity(self.partition, row)
            self.gone.add(row)

    def _member(self, each: int, number: int) -> dict[str, Any]:
        """Each group replaces everything written by the previous one."""
        return {"PartitionKey": self.partition, "RowKey": f"member {each}", "Group": number}

    def require_kept(self, table: TableClient) -> None:
        found = {
            entity["RowKey"]: entity
            for entity in table.query_entities(f"PartitionKey eq '{self.partition}'")
        }
        members = [entity for row, entity in found.items() if row.startswith("member")]
        (group,) = {entity["Group"] for entity in members}
        assert len(members) == GROUP
        assert group >= max(number for number, result in self.groups.items() if result)
        singles = {row: e["Number"] for row, e in found.items() if row.startswith("single")}
        assert self.there.items() <= singles.items()
        assert not self.gone & singles.keys()
        # Requests in flight may or may not have been executed.
        assert len(singles) <= len(self.there) + 1


def _kill_under_load(directory: Path, seconds: float) -> None:
    with served(directory, "--workers", "2") as server:
        with table_service(server) as service:
            service.create_table_if_not_exists("Load")
        loads = [Load(number) for number in range(WRITERS)]
        threads = [threading.Thread(target=load.run, args=(server,)) for load in loads]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: all(map(Load.has_results, loads)), "acknowledged requests")
            threads[0].join(seconds)
        finally:
            server.kill()
            for thread in threads:
                thread.join()
        server.start()
        with table_service(server) as service:
            table = service.get_table_client("Load")
            for load in loads:
                load.require_kept(table)
            table.delete_table()
        assert server.stop() == 0
    assert check(directory).returncode == 0


def test_killed_under_load(tmp_path: Path) -> None:
    _kill_under_load(tmp_path / "data", 1.5)


@pytest.mark.long
def test_killed_under_load_repeatedly(tmp_path: Path) -> None:
    for turn in range(20):
        _kill_under_load(tmp_path / "data", 0.5 + turn % 5)

"""The index: an entity per photo, in the partition of its album."""

from __future__ import annotations

from collections.abc import Iterable

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import TableClient, TableServiceClient, TableTransactionError, UpdateMode

TABLE = "index"
ATTEMPTS_MAX = 20


class Index:
    """What is known of each photo without reading it."""

    def __init__(self, service: TableServiceClient) -> None:
        self._service = service
        self._table: TableClient = service.get_table_client(TABLE)

    def create(self) -> None:
        """Creates the table. Does nothing if it exists."""
        self._service.create_table_if_not_exists(TABLE).close()

    def add(self, album: str, photo: str, *, size: int) -> bool:
        """Adds a photo; returns whether it is new."""
        try:
            self._table.create_entity(
                {"PartitionKey": album, "RowKey": photo, "size": size, "likes": 0}
            )
        except ResourceExistsError:
            return False
        return True

    def add_all(self, album: str, sizes: dict[str, int]) -> bool:
        """Adds several photos, or none if one of them is there already."""
        entities = (
            {"PartitionKey": album, "RowKey": photo, "size": size, "likes": 0}
            for photo, size in sizes.items()
        )
        try:
            self._table.submit_transaction(("create", entity) for entity in entities)
        except TableTransactionError:
            return False
        return True

    def likes(self, album: str, photo: str) -> int:
        """Returns how many people like a photo; -1 if there is none of this name."""
        try:
            return int(self._table.get_entity(album, photo)["likes"])
        except ResourceNotFoundError:
            return -1

    def like(self, album: str, photo: str) -> int:
        """Counts another person who likes a photo; returns how many there are. No count is lost,
        however many do this at the same time."""
        for _ in range(ATTEMPTS_MAX):
            entity = self._table.get_entity(album, photo)
            likes = entity["likes"] = entity["likes"] + 1
            try:
                self._table.update_entity(
                    entity,
                    UpdateMode.REPLACE,
                    etag=entity.metadata["etag"],
                    match_condition=MatchConditions.IfNotModified,
                )
            except ResourceModifiedError:
                continue
            return int(likes)
        raise TimeoutError("too many people like this photo")

    def rename_title(self, album: str, photo: str, title: str) -> None:
        """Sets the title, and leaves everything else as it is."""
        changed = {"PartitionKey": album, "RowKey": photo, "title": title}
        self._table.update_entity(changed, UpdateMode.MERGE)

    def title(self, album: str, photo: str) -> str:
        return str(self._table.get_entity(album, photo).get("title", ""))

    def remove(self, album: str, photo: str) -> None:
        """Removes a photo. Does nothing if there is none of this name."""
        self._table.delete_entity(album, photo)

    def larger_than(self, album: str, size: int) -> list[str]:
        """Returns the photos of an album that are larger than this, in order."""
        found = self._table.query_entities(
            "PartitionKey eq @album and size gt @size",
            parameters={"album": album, "size": size},
            select=["RowKey"],
        )
        return _names(found)

    def album(self, album: str) -> list[str]:
        """Returns the photos of an album, in order."""
        return _names(
            self._table.query_entities("PartitionKey eq @album", parameters={"album": album})
        )

    def close(self) -> None:
        self._table.close()


def _names(entities: Iterable[dict[str, object]]) -> list[str]:
    return [str(entity["RowKey"]) for entity in entities]

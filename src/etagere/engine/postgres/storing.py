"""Statements that store the changes of a group: one or two per collection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from etagere.engine.postgres import schema
from etagere.engine.postgres.binary import bigint, bytea_array
from etagere.engine.postgres.pipeline import Pipeline
from etagere.engine.postgres.schema import split
from etagere.engine.records import Collection, RecordKey
from etagere.model.base import Record

Row = tuple[Record, bytes]
"""A record and its encoding."""
Overlay = dict[Collection[Any, Any], dict[bytes, Row | None]]
"""The changes of a group; None is a delete."""


def send_changes(
    pipeline: Pipeline, overlay: Overlay, placeholders: Iterable[RecordKey], version: int
) -> None:
    """Sends the statements for all changes, in the order of all locks. Placeholders that are not
    replaced are removed."""
    deletes: dict[Collection[Any, Any], set[bytes]] = {}
    for collection, key in placeholders:
        deletes.setdefault(collection, set()).add(key)
    for collection in sorted({*overlay, *deletes}, key=lambda each: each.name):
        changed = overlay.get(collection, {})
        gone = deletes.get(collection, set()).difference(changed)
        gone.update([key for key, row in changed.items() if row is None])
        puts = sorted([(key, row[1]) for key, row in changed.items() if row is not None])
        if puts:
            _send_puts(pipeline, schema.statements(collection).put, puts, version)
        if gone:
            _send_deletes(pipeline, schema.statements(collection).delete, sorted(gone))


def _send_puts(pipeline: Pipeline, sql: str, puts: list[tuple[bytes, bytes]], version: int) -> None:
    columns = [split(key) for key, _ in puts]
    parameters = (
        bytea_array([column.key for column in columns]),
        bytea_array([column.rest for column in columns]),
        bytea_array([column.digest for column in columns]),
        bytea_array([value for _, value in puts]),
        bigint(version),
    )
    pipeline.send(sql, parameters)


def _send_deletes(pipeline: Pipeline, sql: str, keys: list[bytes]) -> None:
    columns = [split(key) for key in keys]
    heads = bytea_array([column.key for column in columns])
    pipeline.send(sql, (heads, bytea_array([column.digest for column in columns])))

"""Encodes a page of entities in one step."""

from __future__ import annotations

from collections.abc import Sequence

from etagere.model.tables import Entity, Keys
from etagere.protocol.codecs.entity_answers import EntityEncoder, Level, Origin


def encode_entities(
    entities: Sequence[tuple[Keys, Entity]],
    table: str,
    origin: Origin,
    level: Level,
    select: Sequence[str] | None = None,
) -> bytes:
    encoder = EntityEncoder(table, origin, level, select)
    assert encoder.add(entities) == len(entities)
    return encoder.page()

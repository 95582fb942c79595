"""Entities of a known shape are decoded as if each value were decoded by itself."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.model.tables import Properties
from etagere.protocol.codecs import entities

TEXTS: list[Any] = ["text", "12", "true", "NaN", "2001-02-03T04:05:06Z", "YQ=="]
EDM = ("String", "Int32", "Int64", "Double", "Boolean", "DateTime", "Guid", "Binary", "Nothing")
VALUES = st.sampled_from([*TEXTS, 1, 2**40, 1.5, True, None, [], {}])
TYPE_NAMES: list[Any] = [None, *(f"Edm.{name}" for name in EDM)]
TYPES = st.sampled_from([*TYPE_NAMES, 1, True, [], {}])


def _one_by_one(members: dict[str, Any]) -> Properties | Refusal:
    layout = entities._layout_of(tuple(members))
    try:
        return entities._properties_one_by_one(members, layout)
    except entities._Unreadable as unreadable:
        return unreadable.refusal


@given(st.lists(st.tuples(VALUES, TYPES, st.booleans()), max_size=4), st.booleans())
def test_both_decoders_agree(columns: list[tuple[Any, Any, bool]], lacks_a_value: bool) -> None:
    members: dict[str, Any] = {"PartitionKey": "p", "RowKey": "r"}
    for number, (value, type_name, type_first) in enumerate(columns):
        plain = {f"P{number}": value}
        typed = {} if type_name is None else {f"P{number}@odata.type": type_name}
        members |= typed | plain if type_first else plain | typed
    if lacks_a_value:
        members["Lacking@odata.type"] = "Edm.String"
    decoded = entities.decode_entity(json.dumps(members).encode())
    found = decoded if isinstance(decoded, Refusal) else decoded.properties
    assert repr(found) == repr(_one_by_one(members))  # NaN is not equal to itself

"""The dependencies of the handlers of all REST services."""

from __future__ import annotations

from dataclasses import dataclass

from etagere.engine.interface import Engine
from etagere.protocol.rest.properties import PropertiesStore


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependencies of handlers. A service that needs more extends this."""

    engine: Engine
    properties: PropertiesStore
    """The service properties of the accounts."""

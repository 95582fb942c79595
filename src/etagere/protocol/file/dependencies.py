"""The dependencies of the handlers of the file service."""

from __future__ import annotations

from dataclasses import dataclass

from etagere.bodies.store import BodyStore
from etagere.jobs.copying import Copying
from etagere.model.file_copies import FileCopyRef
from etagere.opens.table import OpenTable
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.dependencies import Dependencies
from etagere.protocol.sources.opening import Sources
from etagere.settings import Settings


@dataclass(frozen=True, slots=True)
class FileDependencies(Dependencies):
    """The dependencies of the handlers of the file service."""

    store: BodyStore
    settings: Settings
    authenticator: Authenticator
    opens: OpenTable
    sources: Sources
    copying: Copying[FileCopyRef]

"""The probed services, and parametrizations over their operations."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest

from tests.probes.blob import operations as blob
from tests.probes.blob.fixture import BlobFixture
from tests.probes.file import operations as file
from tests.probes.file.fixture import FileFixture
from tests.probes.queue import operations as queue
from tests.probes.queue.fixture import QueueFixture
from tests.probes.service import Operation, ServiceFixture
from tests.probes.table import operations as table
from tests.probes.table.fixture import TableFixture
from tests.probes.token_kinds import TokenKind


class ProbedService(NamedTuple):
    """The description of a service."""

    fixture: type[ServiceFixture[Any]]
    operations: tuple[Operation[Any], ...]
    token_kinds: tuple[TokenKind, ...]


SERVICES: Final = {
    "blob": ProbedService(BlobFixture, blob.OPERATIONS, blob.TOKEN_KINDS),
    "queue": ProbedService(QueueFixture, queue.OPERATIONS, queue.TOKEN_KINDS),
    "table": ProbedService(TableFixture, table.OPERATIONS, table.TOKEN_KINDS),
    "file": ProbedService(FileFixture, file.OPERATIONS, file.TOKEN_KINDS),
}
OPERATIONS: Final = [each for service in SERVICES.values() for each in service.operations]

each_service: Final = pytest.mark.parametrize("service", SERVICES)
each_operation: Final = pytest.mark.parametrize(
    "operation", [pytest.param(each, id=str(each), marks=each.marks) for each in OPERATIONS]
)
each_scheme: Final = pytest.mark.parametrize("scheme", [0, 1], ids=["SharedKey", "SharedKeyLite"])
"""An index into the schemes of the service."""
_KINDS: Final = [
    (operation, kind)
    for operation in OPERATIONS
    for kind in SERVICES[operation.service].token_kinds
]
each_granted_kind: Final = pytest.mark.parametrize(
    ("operation", "kind"),
    [
        pytest.param(*case, id=f"{case[0]}-{case[1]}", marks=case[0].marks)
        for case in _KINDS
        if case[1].grants(case[0], case[1].letters)
    ],
)

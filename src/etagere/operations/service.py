"""Operations on service properties. The last writer wins."""

from __future__ import annotations

from etagere.engine.interface import EXCLUSIVE, ReadTxn, WriteTxn, operation
from etagere.engine.records import TEXT, Collection
from etagere.model.base import Command
from etagere.model.service import ServiceProperties, ServicePropertiesChange
from etagere.rules.service_properties import merge

SERVICE_PROPERTIES: Collection[tuple[str, str], ServiceProperties] = Collection(
    "service_properties", ServiceProperties, (TEXT, TEXT)
)


class SetServiceProperties(Command, frozen=True):
    account: str
    service: str
    change: ServicePropertiesChange


def get_service_properties(txn: ReadTxn, key: tuple[str, str]) -> ServiceProperties:
    """Returns the properties of (account, service), or the defaults."""
    return txn.get(SERVICE_PROPERTIES, key) or ServiceProperties()


@operation
def set_service_properties(txn: WriteTxn, command: SetServiceProperties) -> None:
    key = (command.account, command.service)
    current = txn.get(SERVICE_PROPERTIES, key, EXCLUSIVE) or ServiceProperties()
    txn.put(SERVICE_PROPERTIES, key, merge(current, command.change))

"""The collection of accounts. It is separate from the operations to avoid an import cycle:
operations on containers, queues and tables guard their account, and removing an account looks at
those."""

from __future__ import annotations

from etagere.engine.records import TEXT, Collection
from etagere.model.accounts import Account

ACCOUNTS: Collection[tuple[str], Account] = Collection("accounts", Account, (TEXT,))

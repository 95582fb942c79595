"""The collection of accounts, apart from their operations: what is made in an account guards it,
and removing one looks at what was made in it."""

from __future__ import annotations

from etagere.engine.records import TEXT, Collection
from etagere.model.accounts import Account

ACCOUNTS: Collection[tuple[str], Account] = Collection("accounts", Account, (TEXT,))

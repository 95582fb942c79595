"""Operations on accounts, stored and built-in."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from etagere.engine.account_moves import ACCOUNT_MOVES, forget_move, require_writable
from etagere.engine.interface import (
    EXCLUSIVE,
    ReadTxn,
    Refused,
    WriteTxn,
    abort_if,
    operation,
)
from etagere.engine.records import Collection
from etagere.errors import Refusal
from etagere.model.accounts import (
    BUILT_IN,
    Account,
    AddAccount,
    ListAccounts,
    NamedAccount,
    RemoveAccount,
    RotateKey,
)
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.blob.collections import CONTAINERS
from etagere.operations.delegation import DELEGATION_SECRETS
from etagere.operations.file.collections import DELETED_SHARES, SHARES
from etagere.operations.queue.collections import QUEUES
from etagere.operations.table.collections import TABLES
from etagere.rules.accounts import (
    check_absent,
    check_account_name,
    check_changeable,
    check_key,
    check_key_number,
)

_ACCOUNT_CONTENTS: Final[tuple[Collection[Any, Any], ...]] = (
    CONTAINERS,
    QUEUES,
    TABLES,
    SHARES,
    DELETED_SHARES,
)
"""The collections of the resources in accounts, whose keys begin with the account."""


@operation
def add_account(txn: WriteTxn, command: AddAccount) -> Account:
    abort_if(check_account_name(command.name))
    abort_if(check_key(command.key1) or check_key(command.key2))
    key = (command.name,)
    abort_if(check_absent(command.name, txn.get(ACCOUNTS, key, EXCLUSIVE)))
    move = txn.get(ACCOUNT_MOVES, key, EXCLUSIVE)
    if move is not None:
        # Another account had this name, and has moved to another cell.
        if not move.is_purged:
            raise Refused(Refusal("ServerBusy", {"Account": command.name}))
        forget_move(txn, command.name)
    stamp = txn.stamp
    account = Account(
        command.key1, command.key2, created=stamp, key1_created=stamp, key2_created=stamp
    )
    return txn.put(ACCOUNTS, key, account)


@operation
def rotate_key(txn: WriteTxn, command: RotateKey) -> Account:
    """Replaces a key; returns the account."""
    abort_if(check_key_number(command.number) or check_key(command.key))
    account = _load(txn, command.name)
    if command.number == 1:
        changed = msgspec.structs.replace(account, key1=command.key, key1_created=txn.stamp)
    else:
        changed = msgspec.structs.replace(account, key2=command.key, key2_created=txn.stamp)
    return txn.put(ACCOUNTS, (command.name,), changed)


@operation(reclaims=True)
def remove_account(txn: WriteTxn, command: RemoveAccount) -> None:
    """Removes an account without resources: a new account of that name must not find those of the
    old one."""
    _load(txn, command.name)
    if txn.get(ACCOUNT_MOVES, (command.name,), EXCLUSIVE) is not None:
        raise Refused(Refusal("ServerBusy", {"Account": command.name}))
    if any(txn.scan(names, names.under((command.name,)), 1) for names in _ACCOUNT_CONTENTS):
        raise Refused(Refusal("AccountProtectedFromDeletion", {"Account": command.name}))
    txn.delete(ACCOUNTS, (command.name,))
    # User delegation keys of the old account are not valid for a new one.
    txn.delete(DELEGATION_SECRETS, (command.name,))


def get_account(txn: ReadTxn, name: str) -> Account | None:
    """Returns the account of a name, which may be any text."""
    if check_account_name(name) is not None:
        return None
    return BUILT_IN.get(name) or txn.get(ACCOUNTS, (name,))


def list_accounts(txn: ReadTxn, command: ListAccounts) -> list[NamedAccount]:
    """Returns a page of accounts. Entries that do not fit because of a built-in account are on the
    next page."""
    behind = ACCOUNTS.after(ACCOUNTS.all(), (command.after,))
    stored = txn.scan(ACCOUNTS, behind, command.limit)
    found = [NamedAccount(name, account) for (name,), account in stored]
    found += [NamedAccount(*item) for item in BUILT_IN.items() if item[0] > command.after]
    return sorted(found, key=lambda entry: entry.name)[: command.limit]


def _load(txn: WriteTxn, name: str) -> Account:
    """Returns an account that is about to be changed."""
    abort_if(check_account_name(name) or check_changeable(name))
    account = txn.get(ACCOUNTS, (name,), EXCLUSIVE)
    if account is None:
        raise Refused(Refusal("ResourceNotFound", {"Account": name}))
    # Of an account that is moving, the other cell may have a copy already.
    require_writable(txn, name)
    return account

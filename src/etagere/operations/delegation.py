"""Operations on user delegation keys.

The keys themselves are not stored: they are derived from the secret of their account. An account
needs no record of its own here, so built-in and configured accounts have keys, too.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.account_moves import require_writable
from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, abort_if, operation
from etagere.engine.records import TEXT, UINT, Collection, Span
from etagere.errors import Refusal
from etagere.model.accounts import BUILT_IN
from etagere.model.base import Command
from etagere.model.delegation import (
    DelegatingUser,
    Delegation,
    DelegationSecret,
    ExpiringDelegatingUser,
    IssueDelegationKey,
    IssuedKey,
    RevokeDelegationKeys,
    SetUserRights,
    UserName,
)
from etagere.operations.account_records import ACCOUNTS
from etagere.rules.accounts import check_account_name
from etagere.rules.delegation import check_key_times, check_user_ids

DELEGATION_SECRETS: Final[Collection[tuple[str], DelegationSecret]] = Collection(
    "delegation_secrets", DelegationSecret, (TEXT,)
)
DELEGATING_USERS: Final[Collection[tuple[str, str, str], DelegatingUser]] = Collection(
    "delegating_users", DelegatingUser, (TEXT, TEXT, TEXT)
)
EXPIRING_DELEGATING_USERS: Final[Collection[tuple[int, str, str, str], ExpiringDelegatingUser]] = (
    Collection("expiring_delegating_users", ExpiringDelegatingUser, (UINT, TEXT, TEXT, TEXT))
)


@operation
def issue_delegation_key(txn: WriteTxn, command: IssueDelegationKey) -> IssuedKey:
    """Records the rights of the user and the expiry of the key."""
    user, now = command.user, txn.now
    abort_if(check_account_name(user.account))
    abort_if(check_user_ids(user.tenant_id, user.object_id))
    abort_if(check_key_times(command.start, command.expiry, now))
    account = (command.user.account,)
    secret = txn.get(DELEGATION_SECRETS, account, EXCLUSIVE)
    if secret is None:
        secret = txn.put(DELEGATION_SECRETS, account, DelegationSecret(command.secret))
    key = user.key
    known = txn.get(DELEGATING_USERS, key, EXCLUSIVE)
    expires = command.expiry if known is None else max(known.expires, command.expiry)
    if known is None or known.expires != expires:
        if known is not None:
            txn.delete(EXPIRING_DELEGATING_USERS, (known.expires, *key))
        txn.put(EXPIRING_DELEGATING_USERS, (expires, *key), ExpiringDelegatingUser())
    changed = DelegatingUser(command.rights, expires, _not_after_now(txn, command.token_issued))
    if known is not None and known.token_issued > command.token_issued:
        # A newer token may have fewer rights.
        changed = replace(known, expires=expires)
    if changed != known:
        txn.put(DELEGATING_USERS, key, changed)
    start = now if command.start is None else command.start
    return IssuedKey(secret.secret, start, command.expiry)


@operation
def set_user_rights(txn: WriteTxn, command: SetUserRights) -> None:
    """Replaces the rights of a user who has keys, unless they are those of a newer token; other
    users have no record."""
    known = txn.get(DELEGATING_USERS, command.user.key, EXCLUSIVE)
    if known is not None and known.token_issued <= command.token_issued:
        token_issued = _not_after_now(txn, command.token_issued)
        changed = replace(known, rights=command.rights, token_issued=token_issued)
        txn.put(DELEGATING_USERS, command.user.key, changed)


def _not_after_now(txn: WriteTxn, token_issued: int) -> int:
    """Returns when a token was issued. If a time in the future were recorded, the rights of the
    token would stay until then, whatever tokens the user got meanwhile."""
    return min(token_issued, txn.now // TICKS_PER_SECOND)


@operation(reclaims=True)
def revoke_delegation_keys(txn: WriteTxn, command: RevokeDelegationKeys) -> None:
    """Deletes the secret of an account; the next key gets another one.

    The accounts of settings have no record, so an account is unknown only if it has no secret
    either.
    """
    abort_if(check_account_name(command.account))
    key = (command.account,)
    secret = txn.get(DELEGATION_SECRETS, key, EXCLUSIVE)
    is_known = command.account in BUILT_IN or txn.get(ACCOUNTS, key) is not None
    if secret is None and not is_known:
        raise Refused(Refusal("ResourceNotFound", {"Account": command.account}))
    require_writable(txn, command.account)
    txn.delete(DELEGATION_SECRETS, key)


def get_delegation(txn: ReadTxn, user: UserName) -> Delegation | None:
    """Returns what the tokens of a user are verified with; None if the user has no valid keys."""
    if not _can_exist(user):
        return None
    secret = txn.get(DELEGATION_SECRETS, (user.account,))
    known = None if secret is None else txn.get(DELEGATING_USERS, user.key)
    return None if secret is None or known is None else Delegation(secret.secret, known.rights)


def get_delegating_user(txn: ReadTxn, user: UserName) -> DelegatingUser | None:
    """Returns a user who has, or had, keys of an account."""
    return txn.get(DELEGATING_USERS, user.key) if _can_exist(user) else None


def _can_exist(user: UserName) -> bool:
    """Returns whether there can be a record of this user. Requests contain any text."""
    refusal = check_account_name(user.account) or check_user_ids(user.tenant_id, user.object_id)
    return refusal is None


# Purging


class PurgeDelegatingUsers(Command, frozen=True):
    rows_max: int = 200


def may_purge(txn: ReadTxn, _: None) -> bool:
    """Returns whether the keys of some user have expired."""
    return bool(txn.scan(EXPIRING_DELEGATING_USERS, _expired(txn), 1))


@operation(reclaims=True)
def purge_delegating_users(txn: WriteTxn, command: PurgeDelegatingUsers) -> int:
    """Removes users whose keys have expired; returns how many (0: none is left)."""
    rows = txn.scan(EXPIRING_DELEGATING_USERS, _expired(txn), command.rows_max)
    for row, _ in rows:
        expires, *name = row
        key = (name[0], name[1], name[2])
        user = txn.get(DELEGATING_USERS, key, EXCLUSIVE)
        # The user may have got another key since the scan.
        if user is not None and user.expires == expires:
            txn.delete(DELEGATING_USERS, key)
        txn.delete(EXPIRING_DELEGATING_USERS, row)
    return len(rows)


def _expired(txn: ReadTxn | WriteTxn) -> Span:
    everything = EXPIRING_DELEGATING_USERS.all()
    return Span(everything.start, EXPIRING_DELEGATING_USERS.pack((txn.now, "", "", "")))

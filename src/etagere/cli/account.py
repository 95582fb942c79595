"""`etagere account`: manages the accounts in a ledger, with or without a running server."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from etagere.cli import CLEAN, CommandError, account_move, settings_of
from etagere.cli.stores import Store, open_store
from etagere.cli.verbs import Verbs
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.accounts import (
    BUILT_IN,
    AddAccount,
    ListAccounts,
    NamedAccount,
    RemoveAccount,
    RotateKey,
    new_key,
)
from etagere.model.delegation import RevokeDelegationKeys
from etagere.operations.accounts import add_account, list_accounts, remove_account, rotate_key
from etagere.operations.delegation import revoke_delegation_keys
from etagere.rules.accounts import KEY_NUMBERS, check_account_name
from etagere.rules.dates import format_instant
from etagere.settings import Settings
from etagere.settings.values import ACCOUNT_NAME_LENGTH_MAX, ACCOUNT_NAME_LENGTH_MIN, decode_key

if TYPE_CHECKING:
    from etagere.cli.account_map import CommandAccountMap
    from etagere.model.cells import AccountMove

NAME = "account"
SUMMARY = "add, list, move and remove accounts, and manage their keys"
DESCRIPTION = """\
Manages the accounts in a data directory or, with --engine, of a cluster. If a server is
running, it makes the change. A change applies to every later request, on all nodes.

Each account has two keys. To replace both without downtime, let the clients use one key,
rotate the other, let the clients use the new key, and rotate the first. Keys are random
unless you specify them. Only `etagere account list --show-keys` and
`etagere connection-string` show keys.

With --account-map and --cell, the account is in one cell of several, and the command must
have the settings of that cell. An account name is unique among all cells. If `add`,
`remove` or `move` is interrupted, run it again.

The development account, devstoreaccount1, is built in. It is listed, but not stored. Each
cell has one."""
EXAMPLES = """\
etagere account add mine                  # with two random keys
etagere account list --data /srv/etagere
etagere account rotate mine 2             # leaves key 1 unchanged
etagere account revoke-delegation-keys mine
etagere account claim mine                # corrects the account map
etagere account remove mine
etagere account move mine --config east.toml --to west.toml"""

_PAGE = 1_000
_MESSAGES = {
    "AccountAlreadyExists": "account {name} already exists",
    "ResourceNotFound": "account {name} does not exist",
    "InsufficientAccountPermissions": "{name} is built in and cannot be changed",
    "ServerBusy": "account {name} is being moved to another cell; try again later",
    "InvalidResourceName": "an account name consists of lowercase letters and digits",
    "OutOfRangeInput": (
        f"an account name has {ACCOUNT_NAME_LENGTH_MIN} to {ACCOUNT_NAME_LENGTH_MAX} characters"
    ),
}


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs: Verbs[Callable[[argparse.Namespace, Settings], str]] = Verbs(
        parser, NAME, EXAMPLES, "data", "engine", "account_map", "cell"
    )
    add = verbs.add(
        "add",
        _add,
        "add an account",
        "The data directory, or the ledger of a cluster, is created if it does not exist.",
    )
    add.add_argument("name", metavar="NAME", help="3 to 24 lowercase letters and digits")
    visible = "other users of this machine may see it while the command runs"
    add.add_argument("--key", metavar="KEY", help=f"key 1, in base64 (default: random); {visible}")
    add.add_argument("--key2", metavar="KEY", help="key 2, likewise")
    shown = verbs.add(
        "list", _list, "list the accounts", "Accounts that are defined by settings are not listed."
    )
    shown.add_argument("--show-keys", action="store_true", help="show the keys, which are secret")
    rotate = verbs.add(
        "rotate",
        _rotate,
        "replace a key with a random one",
        "The server refuses the old key from then on.",
    )
    rotate.add_argument("name", metavar="NAME", help="the account")
    # Validated later: the parser would show the argument, which may be a key.
    rotate.add_argument(
        "number", metavar="1|2", nargs="?", default="1", help="which key (default: 1)"
    )
    revoke = verbs.add(
        "revoke-delegation-keys",
        _revoke,
        "revoke the user delegation keys of an account",
        "The server refuses every shared access signature that was signed with one of them.",
    )
    revoke.add_argument("name", metavar="NAME", help="the account, which may be in the settings")
    claim = verbs.add(
        "claim",
        _claim,
        "record in the account map that an account is in this cell",
        "Use it if the map names another cell for an account of this cell: because the map was "
        "restored from a backup, or two cells have an account of the same name.",
    )
    claim.add_argument("name", metavar="NAME", help="the account")
    remove = verbs.add(
        "remove", _remove, "remove an account", "The server refuses its keys from then on."
    )
    remove.add_argument("name", metavar="NAME", help="the account")
    move = verbs.add(
        "move", account_move.act, account_move.SUMMARY, account_move.MORE, *account_move.SETTINGS
    )
    account_move.add_arguments(move)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if "name" in arguments:
        require_name(arguments.name)
    try:
        print(arguments.act(arguments, settings))
    except Refused as refused:
        if refused.refusal.code == "ResourceNotFound":
            require_not_elsewhere(arguments.name, settings)
        raise _command_error(refused.refusal, arguments.name) from None
    return CLEAN


def require_not_elsewhere(name: str, settings: Settings) -> None:
    """Raises `CommandError` if an account is in another cell."""
    if settings.account_map is not None:
        from etagere.cli.account_map import require_not_elsewhere  # noqa: PLC0415

        require_not_elsewhere(name, settings)


def require_name(name: str) -> None:
    """Raises `CommandError` if this is not an account name. Called before the argument is sent or
    printed, because it may not be valid text, or may be a key in the wrong place."""
    refusal = check_account_name(name)
    if refusal is not None:
        raise _command_error(refusal, name)


def _command_error(refusal: Refusal, name: str) -> CommandError:
    return CommandError(_MESSAGES.get(refusal.code, refusal.message).format(name=name))


def _add(arguments: argparse.Namespace, settings: Settings) -> str:
    keys = (_key("--key", arguments.key), _key("--key2", arguments.key2))
    with _open_with_map(settings, create=True) as (store, account_map):
        if account_map is not None:
            account_map.claim(arguments.name, store)
        store.write(add_account, AddAccount(arguments.name, *keys))
    return f"account {arguments.name} added"


def _key(flag: str, text: str | None) -> bytes:
    if text is None:
        return new_key()
    try:
        return decode_key(text)
    except ValueError as error:
        raise CommandError(f"{flag}: the key {error}") from None


@contextmanager
def _open_with_map(
    settings: Settings, *, create: bool = False
) -> Iterator[tuple[Store, CommandAccountMap | None]]:
    """Opens the store, and the account map if there is one."""
    with open_store(settings, create=create) as store:
        if settings.engine is None:
            yield store, None
            return
        from etagere.cli.account_map import open_map  # noqa: PLC0415

        with open_map(settings, store) as account_map:
            yield store, account_map


def _list(arguments: argparse.Namespace, settings: Settings) -> str:
    entries: list[NamedAccount] = []
    with open_store(settings) as store:
        while page := store.read(list_accounts, ListAccounts(_PAGE, _last_name(entries))):
            entries += page
        moves = _moves(store) if settings.account_map is not None else {}
    lines = [_line(entry, show_keys=arguments.show_keys) for entry in entries]
    return "\n".join(
        line + _move_text(moves.get(entry.name)) for entry, line in zip(entries, lines, strict=True)
    )


def _moves(store: Store) -> Mapping[str, AccountMove]:
    """Returns the moves of accounts to and from this cell."""
    from etagere.operations.account_moves import list_account_moves  # noqa: PLC0415

    moves: dict[str, AccountMove] = {}
    while page := store.read(list_account_moves, ListAccounts(_PAGE, max(moves, default=""))):
        moves.update(page)
    return moves


def _move_text(move: AccountMove | None) -> str:
    if move is None:
        return ""
    direction = "from" if move.state == "incoming" else "to"
    return f"  moving {direction} {move.cell}"


def _last_name(entries: list[NamedAccount]) -> str:
    return entries[-1].name if entries else ""


def _line(entry: NamedAccount, *, show_keys: bool) -> str:
    created = "built-in" if entry.name in BUILT_IN else format_instant(entry.account.created)
    line = f"{entry.name:<{ACCOUNT_NAME_LENGTH_MAX}}  {created}"
    if not show_keys:
        return line
    keys = (base64.b64encode(key).decode() for key in entry.account.keys)
    return f"{line:<{ACCOUNT_NAME_LENGTH_MAX + 30}}  {'  '.join(keys)}"


def _rotate(arguments: argparse.Namespace, settings: Settings) -> str:
    if arguments.number not in map(str, KEY_NUMBERS):
        raise CommandError("the key to rotate must be 1 or 2")
    number = int(arguments.number)
    with open_store(settings) as store:
        store.write(rotate_key, RotateKey(arguments.name, number, new_key()))
    return f"key {number} of {arguments.name} replaced"


def _revoke(arguments: argparse.Namespace, settings: Settings) -> str:
    with open_store(settings) as store:
        try:
            store.write(revoke_delegation_keys, RevokeDelegationKeys(arguments.name))
        except Refused as refused:
            if refused.refusal.code != "ResourceNotFound":
                raise
            require_not_elsewhere(arguments.name, settings)
            # It may be an account of the settings of a server, which this command does not see.
            text = f"there is no account {arguments.name} with user delegation keys"
            raise CommandError(text) from None
    return f"user delegation keys of {arguments.name} revoked"


def _remove(arguments: argparse.Namespace, settings: Settings) -> str:
    name: str = arguments.name
    with _open_with_map(settings) as (store, account_map):
        if account_map is None:
            store.write(remove_account, RemoveAccount(name))
        else:
            _remove_from_cell(name, store, account_map)
    return f"account {arguments.name} removed"


def _claim(arguments: argparse.Namespace, settings: Settings) -> str:
    name: str = arguments.name
    with _open_with_map(settings) as (store, account_map):
        if account_map is None:
            raise CommandError("set --account-map and --cell: without them, there is only one cell")
        account_map.claim_from_others(name, store)
    return f"account {name} is in cell {settings.cell}"


def _remove_from_cell(name: str, store: Store, account_map: CommandAccountMap) -> None:
    """Removes an account of this cell. If the map names another cell, two cells had an account of
    this name, and the entry in the map is that of the other one."""
    is_mapped_here = account_map.cell_of(name) == account_map.cell
    try:
        store.write(remove_account, RemoveAccount(name))
    except Refused as refused:
        # An earlier command may have been interrupted before it changed the map.
        if refused.refusal.code != "ResourceNotFound" or not is_mapped_here:
            raise
    if is_mapped_here:
        account_map.release(name)

"""`etagere account`: manages the accounts in a data directory, with or without a running server."""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from etagere import data_directory
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CLEAN, CommandError, settings_of
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import ledger, reserve, wire
from etagere.engine.groups import Answer, Writer
from etagere.engine.interface import (
    C,
    Conflict,
    Fault,
    Operation,
    ReadTxn,
    Refused,
    T,
    Unknown,
    WriteTxn,
    registered,
)
from etagere.engine.records import ENCODE
from etagere.engine.sqlite import SqliteEngine
from etagere.engine.writer import is_served
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
from etagere.settings.loading import add_arguments as add_settings
from etagere.settings.values import ACCOUNT_NAME_LENGTH_MAX, ACCOUNT_NAME_LENGTH_MIN, decode_key

NAME = "account"
SUMMARY = "add, list and remove accounts, rotate their keys, and revoke user delegation keys"
DESCRIPTION = """\
Manages the accounts in a data directory. If a server is running, it makes the change,
which applies to every later request.

Each account has two keys. To replace both without downtime, let the clients use one key,
rotate the other, let the clients use the new key, and rotate the first. Keys are random
unless you specify them. Only `etagere account list --show-keys` and
`etagere connection-string` show keys.

The development account, devstoreaccount1, is built in. It is listed, but not stored."""
EXAMPLES = """\
etagere account add mine                  # with two random keys
etagere account list --data /srv/etagere
etagere account rotate mine 2             # leaves key 1 unchanged
etagere account revoke-delegation-keys mine
etagere account remove mine"""

_DESCRIPTION_COLUMNS = 92
_PAGE = 1_000
_MESSAGES = {
    "AccountAlreadyExists": "account {name} already exists",
    "ResourceNotFound": "account {name} does not exist",
    "InsufficientAccountPermissions": "{name} is built in and cannot be changed",
    "InvalidResourceName": "an account name consists of lowercase letters and digits",
    "OutOfRangeInput": (
        f"an account name has {ACCOUNT_NAME_LENGTH_MIN} to {ACCOUNT_NAME_LENGTH_MAX} characters"
    ),
}

_decode_refusal = msgspec.msgpack.Decoder(Refusal).decode
_decode_fault = msgspec.msgpack.Decoder(wire.FaultNote).decode


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(
        name: str, act: Callable[[argparse.Namespace, Path], str], summary: str, more: str
    ) -> argparse.ArgumentParser:
        (example,) = (line for line in EXAMPLES.splitlines() if f"account {name}" in line)
        description = textwrap.fill(f"{summary.capitalize()}. {more}", _DESCRIPTION_COLUMNS)
        added = verbs.add_parser(
            name, help=summary, description=description, epilog=f"example:\n  {example}"
        )
        add_settings(added, "data")
        added.set_defaults(act=act)
        return added

    add = verb("add", _add, "add an account", "The data directory is created if it does not exist.")
    add.add_argument("name", metavar="NAME", help="3 to 24 lowercase letters and digits")
    visible = "other users of this machine may see it while the command runs"
    add.add_argument("--key", metavar="KEY", help=f"key 1, in base64 (default: random); {visible}")
    add.add_argument("--key2", metavar="KEY", help="key 2, likewise")
    shown = verb(
        "list", _list, "list the accounts", "Accounts that are defined by settings are not listed."
    )
    shown.add_argument("--show-keys", action="store_true", help="show the keys, which are secret")
    rotate = verb(
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
    revoke = verb(
        "revoke-delegation-keys",
        _revoke,
        "revoke the user delegation keys of an account",
        "The server refuses every shared access signature that was signed with one of them.",
    )
    revoke.add_argument("name", metavar="NAME", help="the account, which may be in the settings")
    remove = verb(
        "remove", _remove, "remove an account", "The server refuses its keys from then on."
    )
    remove.add_argument("name", metavar="NAME", help="the account")


def run(arguments: argparse.Namespace) -> int:
    directory = settings_of(arguments).data
    if "name" in arguments:
        require_name(arguments.name)
    try:
        print(arguments.act(arguments, directory))
    except Refused as refused:
        raise _command_error(refused.refusal, arguments.name) from None
    return CLEAN


def require_name(name: str) -> None:
    """Raises `CommandError` if this is not an account name. Called before the argument is sent or
    printed, because it may not be valid text, or may be a key in the wrong place."""
    refusal = check_account_name(name)
    if refusal is not None:
        raise _command_error(refusal, name)


def _command_error(refusal: Refusal, name: str) -> CommandError:
    return CommandError(_MESSAGES.get(refusal.code, refusal.message).format(name=name))


def _add(arguments: argparse.Namespace, directory: Path) -> str:
    keys = (_key("--key", arguments.key), _key("--key2", arguments.key2))
    with open_store(directory, make=True) as store:
        store.write(add_account, AddAccount(arguments.name, *keys))
    return f"account {arguments.name} added"


def _key(flag: str, text: str | None) -> bytes:
    if text is None:
        return new_key()
    try:
        return decode_key(text)
    except ValueError as error:
        raise CommandError(f"{flag}: the key {error}") from None


def _list(arguments: argparse.Namespace, directory: Path) -> str:
    entries: list[NamedAccount] = []
    with open_store(directory) as store:
        while page := store.read(list_accounts, ListAccounts(_PAGE, _last_name(entries))):
            entries += page
    return "\n".join(_line(entry, show_keys=arguments.show_keys) for entry in entries)


def _last_name(entries: list[NamedAccount]) -> str:
    return entries[-1].name if entries else ""


def _line(entry: NamedAccount, *, show_keys: bool) -> str:
    created = "built-in" if entry.name in BUILT_IN else format_instant(entry.account.created)
    line = f"{entry.name:<{ACCOUNT_NAME_LENGTH_MAX}}  {created}"
    if not show_keys:
        return line
    keys = (base64.b64encode(key).decode() for key in entry.account.keys)
    return f"{line:<{ACCOUNT_NAME_LENGTH_MAX + 30}}  {'  '.join(keys)}"


def _rotate(arguments: argparse.Namespace, directory: Path) -> str:
    if arguments.number not in map(str, KEY_NUMBERS):
        raise CommandError("the key to rotate must be 1 or 2")
    number = int(arguments.number)
    with open_store(directory) as store:
        store.write(rotate_key, RotateKey(arguments.name, number, new_key()))
    return f"key {number} of {arguments.name} replaced"


def _revoke(arguments: argparse.Namespace, directory: Path) -> str:
    with open_store(directory) as store:
        try:
            store.write(revoke_delegation_keys, RevokeDelegationKeys(arguments.name))
        except Refused:
            # It may be an account of the settings of a server, which this command does not see.
            words = f"there is no account {arguments.name} with user delegation keys"
            raise CommandError(words) from None
    return f"user delegation keys of {arguments.name} revoked"


def _remove(arguments: argparse.Namespace, directory: Path) -> str:
    with open_store(directory) as store:
        store.write(remove_account, RemoveAccount(arguments.name))
    return f"account {arguments.name} removed"


# The store


class Store:
    """A data directory that a server is using; the server does the writes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        return asyncio.run(self._with_engine(lambda engine: engine.read(operation, command)))

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        return asyncio.run(self._with_engine(lambda engine: engine.write(operation, command)))

    async def _with_engine(self, call: Callable[[SqliteEngine], Awaitable[T]]) -> T:
        engine = SqliteEngine(self.directory)
        try:
            return await call(engine)
        finally:
            await engine.close()


class _StoppedStore(Store):
    """A data directory that this process has locked; the writer runs in this process."""

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        known = registered(operation)
        request = wire.Request(0, known.wire_name, memoryview(ENCODE(command)))
        writer = Writer(self.directory, Config(), SystemClock())
        try:
            (answer,) = writer.run_group([request])
        finally:
            writer.close()
        return _result(known, answer)


@contextmanager
def open_store(directory: Path, *, make: bool = False) -> Iterator[Store]:
    """Opens the store in a directory, and locks the directory if no server uses it. Creates a
    missing store only if `make` is set."""
    with _errors_in_one_line(directory):
        if not make:
            require_ledger(directory)
        claimed = _claim(directory)
        if claimed is None:
            yield Store(directory)
            return
        try:
            # A ledger of an older version may lack the table of accounts.
            reserve.release_if_full(directory)
            ledger.create(directory, Config(), SystemClock())
            yield _StoppedStore(directory)
        finally:
            os.close(claimed)


def _claim(directory: Path) -> int | None:
    """Locks a directory; returns None if a server uses it. That is checked first, because locking
    waits for a server that is stopping."""
    if is_served(directory):
        return None
    try:
        return data_directory.claim(directory)
    except data_directory.DirectoryInUse as error:
        if is_served(directory):  # a server has started meanwhile
            return None
        raise CommandError(str(error)) from None


@contextmanager
def _errors_in_one_line(directory: Path) -> Iterator[None]:
    try:
        yield
    except (CannotCheck, data_directory.CannotUse, ledger.NotALedger, ledger.SchemaTooNew) as error:
        raise CommandError(str(error)) from error
    except Unknown as error:
        words = f"the outcome is unknown; check with `etagere account list`: {error}"
        raise CommandError(words) from error
    except (Conflict, Fault, ledger.DatabaseError, msgspec.DecodeError) as error:
        raise CommandError(f"the ledger in {directory} cannot be used: {error}") from error
    except OSError as error:
        raise CommandError(
            f"{error.filename or directory} cannot be used: {error.strerror}"
        ) from error


def _result(operation: Operation[C, T], answer: Answer) -> T:
    if answer.outcome is wire.Outcome.RESULT:
        return operation.decode_result(answer.payload)
    if answer.outcome is wire.Outcome.REFUSED:
        raise Refused(_decode_refusal(answer.payload))
    if answer.outcome is wire.Outcome.FAULT:
        note = _decode_fault(answer.payload)
        raise Fault(note.reason, note.detail)
    raise Unknown(f"the outcome of the commit is {answer.outcome.name.lower()}")

"""`etagere account`: the accounts in a data directory, whether or not a server runs over it."""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from etagere import app
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CLEAN, Unusable, settings_of
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
from etagere.operations.accounts import add_account, list_accounts, remove_account, rotate_key
from etagere.rules.accounts import KEY_NUMBERS, check_account_name
from etagere.rules.dates import format_instant
from etagere.settings import ACCOUNT_NAME_LENGTH_MAX, ACCOUNT_NAME_LENGTH_MIN, decode_key
from etagere.settings import add_arguments as add_settings

NAME = "account"
SUMMARY = "add, list, rotate and remove accounts"
DESCRIPTION = """\
Keeps the accounts of a data directory. A server may be running over it: it then makes the
change itself, and every request after that sees it.

Each account has two keys. To replace them without a pause, move the clients to one key,
rotate the other, and the same the other way round. Keys are random unless given, and are
shown only where they are asked for: by `etagere account list --show-keys` and by
`etagere connection-string`.

The development account, devstoreaccount1, is built in. It is listed, but not stored."""
EXAMPLES = """\
etagere account add mine                  # with two random keys
etagere account list --data /srv/etagere
etagere account rotate mine 2             # key 1 stays as it is
etagere account remove mine"""

_PAGE = 1_000
_WORDS = {
    "AccountAlreadyExists": "there is already an account {name}",
    "ResourceNotFound": "there is no account {name}",
    "InsufficientAccountPermissions": "{name} is built in and cannot be changed",
    "InvalidResourceName": "an account name has only lowercase letters and digits",
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
        description = f"{summary.capitalize()}. {more}"
        added = verbs.add_parser(
            name, help=summary, description=description, epilog=f"example:\n  {example}"
        )
        add_settings(added, "data")
        added.set_defaults(act=act)
        return added

    add = verb("add", _add, "add an account", "A data directory is made where there is none.")
    add.add_argument("name", metavar="NAME", help="3 to 24 lowercase letters and digits")
    visible = "others on this machine may see it while the command runs"
    add.add_argument(
        "--key", metavar="KEY", help=f"its key 1, in base64 (default: random); {visible}"
    )
    add.add_argument("--key2", metavar="KEY", help="its key 2, likewise")
    shown = verb("list", _list, "list the accounts", "Those of the settings are not among them.")
    shown.add_argument("--show-keys", action="store_true", help="with their keys, which are secret")
    rotate = verb(
        "rotate", _rotate, "replace a key by a random one", "The old one is refused from then on."
    )
    rotate.add_argument("name", metavar="NAME", help="the account")
    # Judged later: the parser would show what it was given, and that may be a key.
    rotate.add_argument(
        "number", metavar="1|2", nargs="?", default="1", help="which key (default: 1)"
    )
    remove = verb(
        "remove", _remove, "remove an account", "Whoever uses it is refused from then on."
    )
    remove.add_argument("name", metavar="NAME", help="the account")


def run(arguments: argparse.Namespace) -> int:
    directory = settings_of(arguments).data
    if "name" in arguments:
        require_name(arguments.name)
    try:
        print(arguments.act(arguments, directory))
    except Refused as refused:
        raise _unusable(refused.refusal, arguments.name) from None
    return CLEAN


def require_name(name: str) -> None:
    """Refuses what cannot be the name of an account before it is sent or shown: not every argument
    is text that could be sent, and it may be a key in the wrong place."""
    refusal = check_account_name(name)
    if refusal is not None:
        raise _unusable(refusal, name)


def _unusable(refusal: Refusal, name: str) -> Unusable:
    return Unusable(_WORDS.get(refusal.code, refusal.message).format(name=name))


def _add(arguments: argparse.Namespace, directory: Path) -> str:
    keys = (_key("--key", arguments.key), _key("--key2", arguments.key2))
    with reach(directory, make=True) as store:
        store.write(add_account, AddAccount(arguments.name, *keys))
    return f"account {arguments.name} added"


def _key(flag: str, text: str | None) -> bytes:
    if text is None:
        return new_key()
    try:
        return decode_key(text)
    except ValueError as error:
        raise Unusable(f"{flag}: the key {error}") from None


def _list(arguments: argparse.Namespace, directory: Path) -> str:
    entries: list[NamedAccount] = []
    with reach(directory) as store:
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
        raise Unusable("an account has a key 1 and a key 2: say which to rotate")
    number = int(arguments.number)
    with reach(directory) as store:
        store.write(rotate_key, RotateKey(arguments.name, number, new_key()))
    return f"key {number} of {arguments.name} replaced"


def _remove(arguments: argparse.Namespace, directory: Path) -> str:
    with reach(directory) as store:
        store.write(remove_account, RemoveAccount(arguments.name))
    return f"account {arguments.name} removed"


# The store


class Store:
    """A data directory over which a server runs: it does what is to be written."""

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
    """A data directory that is ours: the writer is in this process."""

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        known = registered(operation)
        request = wire.Request(0, known.wire_name, memoryview(ENCODE(command)))
        writer = Writer(self.directory, Config(), SystemClock())
        try:
            (answer,) = writer.settle([request])
        finally:
            writer.close()
        return _result(known, answer)


@contextmanager
def reach(directory: Path, *, make: bool = False) -> Iterator[Store]:
    """The store in a directory, for as long as nobody else can take it over. Only with `make` is
    there a new one where there was none."""
    with _told_in_one_line(directory):
        if not make:
            require_ledger(directory)
        claimed = _claim(directory)
        if claimed is None:
            yield Store(directory)
            return
        try:
            # An older ledger may have no table of accounts yet.
            reserve.release_if_full(directory)
            ledger.create(directory, Config(), SystemClock())
            yield _StoppedStore(directory)
        finally:
            os.close(claimed)


def _claim(directory: Path) -> int | None:
    """Claims a directory; None if a server has. That is asked first, since a claim waits for a
    server that is just going."""
    if is_served(directory):
        return None
    try:
        return app.claim(directory)
    except app.DirectoryInUse as error:
        if is_served(directory):  # by now
            return None
        raise Unusable(str(error)) from None


@contextmanager
def _told_in_one_line(directory: Path) -> Iterator[None]:
    try:
        yield
    except (CannotCheck, app.CannotUse, ledger.NotALedger, ledger.SchemaTooNew) as error:
        raise Unusable(str(error)) from error
    except Unknown as error:
        words = f"it may have been done or not, `etagere account list` tells: {error}"
        raise Unusable(words) from error
    except (Conflict, Fault, ledger.DatabaseError, msgspec.DecodeError) as error:
        raise Unusable(f"the ledger in {directory} cannot be used: {error}") from error
    except OSError as error:
        raise Unusable(f"{error.filename or directory} cannot be used: {error.strerror}") from error


def _result(operation: Operation[C, T], answer: Answer) -> T:
    if answer.outcome is wire.Outcome.RESULT:
        return operation.decode_result(answer.payload)
    if answer.outcome is wire.Outcome.REFUSED:
        raise Refused(_decode_refusal(answer.payload))
    if answer.outcome is wire.Outcome.FAULT:
        note = _decode_fault(answer.payload)
        raise Fault(note.reason, note.detail)
    raise Unknown(f"the commit ended as {answer.outcome.name.lower()}")

"""Storage accounts. Each has a name and two keys, so that one key can be replaced while the other
is in use."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from etagere.model.base import Command, Part, Record
from etagere.settings.values import DEVELOPMENT_ACCOUNT, KEY_BYTES_MAX


def new_key() -> bytes:
    """Returns a random key of the service's length. Like ids, keys are generated before an
    operation."""
    return os.urandom(KEY_BYTES_MAX)


def _without_keys(struct: msgspec.Struct) -> str:
    """Returns a `repr` without keys, for logs and test output."""
    fields = ((name, getattr(struct, name)) for name in struct.__struct_fields__)
    shown = (f"{name}={'…' if isinstance(value, bytes) else repr(value)}" for name, value in fields)
    return f"{type(struct).__name__}({', '.join(shown)})"


class Account(Record, frozen=True):
    """The keys of an account, and the stamps of when it and its keys were created."""

    key1: bytes
    key2: bytes
    created: int
    key1_created: int
    key2_created: int

    @property
    def keys(self) -> tuple[bytes, bytes]:
        return self.key1, self.key2

    def __repr__(self) -> str:
        return _without_keys(self)


class NamedAccount(Part, frozen=True):
    """An entry of a list of accounts."""

    name: str
    account: Account


class AddAccount(Command, frozen=True):
    name: str
    key1: bytes
    key2: bytes

    def __repr__(self) -> str:
        return _without_keys(self)


class RotateKey(Command, frozen=True):
    """Replace key 1 or 2 of an account; the other stays valid."""

    name: str
    number: int
    key: bytes

    def __repr__(self) -> str:
        return _without_keys(self)


class RemoveAccount(Command, frozen=True):
    name: str


class ListAccounts(Command, frozen=True):
    """List a page of accounts in the order of their names, after the last one seen."""

    limit: int
    after: str = ""


def _built_in() -> Account:
    (key,) = DEVELOPMENT_ACCOUNT.keys
    return Account(key, key, created=0, key1_created=0, key2_created=0)


BUILT_IN: Final = {DEVELOPMENT_ACCOUNT.name: _built_in()}
"""Accounts that exist in every store without a record."""

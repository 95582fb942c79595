"""The types of settings: the syntax of a value as a flag, a variable and a key in the file."""

from __future__ import annotations

import argparse
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from etagere.settings.addresses import (
    BodiesAddress,
    DatabaseAddress,
    NodeAddress,
    parse_bodies_address,
    parse_database_address,
    parse_node_address,
    parse_node_name,
)
from etagere.settings.oauth import (
    KeySetSource,
    RoleAssignment,
    assign_roles,
    parse_key_set_source,
    parse_role_assignments,
    parse_url,
)
from etagere.settings.values import (
    ACCOUNT_NAME_SYNTAX,
    ConfiguredAccount,
    CopySource,
    is_account_name,
    parse_account,
    parse_copy_source,
)

T = TypeVar("T")

_DIGITS_MAX = 9
_USER: Final = re.compile(r"//.*@")
_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


class Wrong(Exception):
    """A value is invalid. The caller, which knows where the value was set, adds that."""


class Kind(ABC, Generic[T]):
    """The syntax of a value as a flag, as an environment variable and as a key in the file."""

    metavar = "TEXT"

    @abstractmethod
    def from_text(self, text: str) -> T:
        """Parses the value of an environment variable."""

    def from_flag(self, given: Any) -> T:
        """Converts the value that the argument parser returns for the flag."""
        return self.from_text(given)

    def from_toml(self, value: object, _folder: Path) -> T:
        """Converts the value of a key in a file in `_folder`."""
        if not isinstance(value, str):
            raise Wrong("must be a string")
        return self.from_text(value)

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        parser.add_argument(flag, metavar=self.metavar, **options)


class Text(Kind[str]):
    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def from_text(self, text: str) -> str:
        if not text:
            raise Wrong("must not be empty")
        return text


class Choice(Kind[str]):
    def __init__(self, *choices: str) -> None:
        self._choices = choices
        self.metavar = "|".join(choices)

    def from_text(self, text: str) -> str:
        if text not in self._choices:
            raise Wrong(f"{text!r} is not one of {', '.join(self._choices)}")
        return text


class Whole(Kind[int]):
    def __init__(self, metavar: str, lowest: int, highest: int) -> None:
        self.metavar = metavar
        self._lowest = lowest
        self._highest = highest

    def from_text(self, text: str) -> int:
        # `int` also accepts blanks, underscores and the digits of any script.
        if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
            raise self._wrong(text)
        return self._within(int(text))

    def from_toml(self, value: object, _folder: Path) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(value)
        return self._within(value)

    def _within(self, value: int) -> int:
        if not self._lowest <= value <= self._highest:
            raise self._wrong(value)
        return value

    def _wrong(self, value: object) -> Wrong:
        return Wrong(f"{value!r} is not an integer from {self._lowest} to {self._highest}")


class Switch(Kind[bool]):
    def from_text(self, text: str) -> bool:
        try:
            return _WORDS[text.lower()]
        except KeyError:
            raise Wrong(f"{text!r} is not one of {', '.join(_WORDS)}") from None

    def from_flag(self, given: Any) -> bool:
        return bool(given)

    def from_toml(self, value: object, _folder: Path) -> bool:
        if not isinstance(value, bool):
            raise Wrong("must be true or false")
        return value

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        # With a negative form: a flag must be able to override what a file has set.
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, **options)


class PathName(Kind[Path]):
    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def from_text(self, text: str) -> Path:
        if not text or "\0" in text:
            raise Wrong("is not a path")
        return Path(text)

    def from_toml(self, value: object, folder: Path) -> Path:
        """Relative paths in a file are relative to the file, wherever the server is started."""
        return folder / super().from_toml(value, folder)


class ListKind(Kind[T]):
    """The syntax of a list: a flag that is repeated, a variable whose items are separated by
    semicolons, an array in the file."""

    @abstractmethod
    def from_flag(self, given: Iterable[str]) -> T:
        """Parses the items."""

    def from_text(self, text: str) -> T:
        return self.from_flag(part for part in text.split(";") if part.strip())

    def from_toml(self, value: object, _folder: Path) -> T:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise Wrong(f'must be a list of strings "{self.metavar}"')
        return self.from_flag(value)

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        parser.add_argument(flag, action="append", metavar=self.metavar, **options)


class Accounts(ListKind[tuple[ConfiguredAccount, ...]]):
    """A list of accounts. Errors refer to an account by its number, because the text in the place
    of its name may be a key."""

    metavar = "NAME:KEY[:KEY2]"

    def from_flag(self, given: Iterable[str]) -> tuple[ConfiguredAccount, ...]:
        accounts: dict[str, ConfiguredAccount] = {}
        for number, text in enumerate(given, 1):
            try:
                account = parse_account(text)
            except ValueError as error:
                raise Wrong(f"account {number}: {error}") from None
            if account.name in accounts:
                raise Wrong(f"account {number}: its name is already in use")
            accounts[account.name] = account
        return tuple(accounts.values())


class AccountNames(ListKind[frozenset[str]]):
    """A set of account names. Errors do not show the text, which may be a key."""

    metavar = "NAME"

    def from_flag(self, given: Iterable[str]) -> frozenset[str]:
        names = [text.strip() for text in given]
        for number, name in enumerate(names, 1):
            if not is_account_name(name):
                raise Wrong(f"name {number} must be {ACCOUNT_NAME_SYNTAX}")
        return frozenset(names)


def _without_secrets(url: str) -> str:
    """Returns what a message may show of a URL: not its password and not its query, which may
    contain a signature."""
    address, question_mark, _ = url.partition("?")
    return _USER.sub("//…@", address) + ("?…" if question_mark else "")


class CopySources(ListKind[tuple[CopySource, ...]]):
    metavar = "HOST[:PORT]"

    def from_flag(self, given: Iterable[str]) -> tuple[CopySource, ...]:
        sources: list[CopySource] = []
        for text in given:
            try:
                sources.append(parse_copy_source(text))
            except ValueError as error:
                raise Wrong(f"{_without_secrets(text)!r} {error}") from None
        return tuple(dict.fromkeys(sources))


class Texts(ListKind[tuple[str, ...]]):
    """A list of strings."""

    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def from_flag(self, given: Iterable[str]) -> tuple[str, ...]:
        texts = tuple(dict.fromkeys(text.strip() for text in given))
        if not all(texts):
            raise Wrong("must not be empty")
        return texts


class Url(Kind[str]):
    metavar = "URL"

    def from_text(self, text: str) -> str:
        try:
            return parse_url(text.strip())
        except ValueError:
            raise Wrong(f"{_without_secrets(text)!r} is not an http or https URL") from None


class KeySets(Kind[KeySetSource]):
    """A JSON Web Key Set, in a file or at a URL."""

    metavar = "FILE|URL"

    def from_text(self, text: str) -> KeySetSource:
        try:
            return parse_key_set_source(text.strip())
        except ValueError as error:
            raise Wrong(f"{_without_secrets(text)!r} {error}") from None

    def from_toml(self, value: object, folder: Path) -> KeySetSource:
        """Relative paths in a file are relative to the file."""
        source = super().from_toml(value, folder)
        return source if source.path is None else KeySetSource(folder / source.path)


class RoleAssignments(ListKind[tuple[RoleAssignment, ...]]):
    metavar = "[CLAIM:]VALUE=ROLE[@ACCOUNT][,ROLE...]"

    def from_flag(self, given: Iterable[str]) -> tuple[RoleAssignment, ...]:
        assignments: list[RoleAssignment] = []
        for text in given:
            try:
                assignments += parse_role_assignments(text)
            except ValueError as error:
                raise Wrong(f"{text!r} {error}") from None
        return tuple(dict.fromkeys(assignments))

    def from_toml(self, value: object, folder: Path) -> tuple[RoleAssignment, ...]:
        """In a file, a table from values to roles is accepted as well as a list."""
        if isinstance(value, list):
            return super().from_toml(value, folder)
        if not isinstance(value, dict):
            raise Wrong("must be a table from values of claims to lists of roles")
        assignments: list[RoleAssignment] = []
        for text, roles in value.items():
            listed = [roles] if isinstance(roles, str) else roles
            if not isinstance(listed, list) or not all(isinstance(role, str) for role in listed):
                raise Wrong(f"{text!r} must be a list of roles")
            try:
                assignments += assign_roles(text, listed)
            except ValueError as error:
                raise Wrong(f"{text!r} {error}") from None
        return tuple(dict.fromkeys(assignments))


class Database(Kind[DatabaseAddress]):
    """The address of a database. Errors do not show the text, which may contain a password."""

    metavar = "POSTGRESQL"

    def from_text(self, text: str) -> DatabaseAddress:
        try:
            return parse_database_address(text.strip())
        except ValueError as error:
            raise Wrong(str(error)) from None


class Bodies(Kind[BodiesAddress]):
    """The address of the bodies. Errors do not show the text, which may contain keys."""

    metavar = "DIR|URL"

    def from_text(self, text: str) -> BodiesAddress:
        try:
            return parse_bodies_address(text.strip())
        except ValueError as error:
            raise Wrong(str(error)) from None

    def from_toml(self, value: object, folder: Path) -> BodiesAddress:
        """Relative paths in a file are relative to the file."""
        address = super().from_toml(value, folder)
        return address if address.path is None else BodiesAddress(folder / address.path)


class NodeName(Kind[str]):
    metavar = "NAME"

    def from_text(self, text: str) -> str:
        try:
            return parse_node_name(text)
        except ValueError as error:
            raise Wrong(f"{text!r} {error}") from None


class NodeAddresses(Kind[NodeAddress]):
    metavar = "HOST[:PORT]"

    def from_text(self, text: str) -> NodeAddress:
        try:
            return parse_node_address(text)
        except ValueError as error:
            raise Wrong(f"{text!r} {error}") from None

"""The settings of a server, and how they are read.

A flag takes precedence over an environment variable, a variable over the TOML file, and the file
over the default. Each setting is one field of `Settings`, which describes it completely: flags,
variables, keys of the file and the help are generated from these fields, and a test compares the
documentation with them.

Account keys are settings too. No error and no `repr` shows a key, or anything that may be one.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import difflib
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
D = TypeVar("D")

ACCOUNT_NAME_LENGTH_MIN = 3
ACCOUNT_NAME_LENGTH_MAX = 24
ACCOUNT_NAME: Final = re.compile(r"[a-z0-9]+")
# The block size of HMAC-SHA256, which hashes longer keys first; the service's keys have 64 bytes.
KEY_BYTES_MAX = 64

VARIABLE_PREFIX = "ETAGERE_"
CONFIG_FLAG, CONFIG_VARIABLE = "--config", f"{VARIABLE_PREFIX}CONFIG"
_PORT_MAX = 65_535
_WORKERS_MAX = 256
DEFAULT_WORKERS_MAX: Final = 4
_SECONDS_MAX = 7 * 24 * 3600
_DIGITS_MAX = 9
_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


class BadSetting(Exception):
    """A setting is invalid. The message says where it was set and what is wrong with it."""


class _Wrong(Exception):
    """A value is invalid. The caller, which knows where the value was set, adds that."""


# Accounts


@dataclass(frozen=True)
class ConfiguredAccount:
    """An account that is configured rather than stored, with one or two keys."""

    name: str
    keys: tuple[bytes, ...] = field(repr=False)


def decode_key(text: str) -> bytes:
    """Decodes an account key from base64. Raises ValueError, without showing the text, if the text
    is not a key."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        # Without the cause, which may show the text.
        raise ValueError("is not base64") from None
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"must have 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")
    return key


DEVELOPMENT_ACCOUNT: Final = ConfiguredAccount(
    "devstoreaccount1",
    (
        decode_key(
            "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
            "K1SZFPTOtr/KBHBeksoGMGw=="
        ),
    ),
)
"""The account that every SDK uses for `UseDevelopmentStorage=true`. Its key is public."""


_ACCOUNT_NAME_SYNTAX: Final = (
    f"{ACCOUNT_NAME_LENGTH_MIN} to {ACCOUNT_NAME_LENGTH_MAX} lowercase letters and digits"
)


def _is_account_name(text: str) -> bool:
    long_enough = ACCOUNT_NAME_LENGTH_MIN <= len(text) <= ACCOUNT_NAME_LENGTH_MAX
    return long_enough and ACCOUNT_NAME.fullmatch(text) is not None


def parse_account(text: str) -> ConfiguredAccount:
    """Parses `NAME:KEY[:KEY2]`. Raises ValueError if the text has another form."""
    name, *keys = text.strip().split(":")
    if not 1 <= len(keys) <= 2:
        raise ValueError("must be NAME:KEY or NAME:KEY:KEY2")
    if not _is_account_name(name):
        raise ValueError(f"its name must be {_ACCOUNT_NAME_SYNTAX}")
    if name == DEVELOPMENT_ACCOUNT.name:
        raise ValueError(f"the keys of {name}, which is built in, cannot be changed")
    return ConfiguredAccount(name, tuple(map(_nth_key, (1, 2), keys)))


def _nth_key(number: int, text: str) -> bytes:
    try:
        return decode_key(text)
    except ValueError as error:
        raise ValueError(f"its key {number} {error}") from None


# Sources of copies


@dataclass(frozen=True)
class CopySource:
    """A server that copies may read from."""

    host: str
    """In lower case and without brackets; compared with the host in the URL of a source."""
    port: int | None
    """None: the default port of HTTP or HTTPS."""


_COPY_SOURCE: Final = re.compile(
    r"(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)


def parse_copy_source(text: str) -> CopySource:
    """Parses `HOST[:PORT]`. Raises ValueError if the text has another form, such as a URL."""
    found = _COPY_SOURCE.fullmatch(text.strip().lower())
    port = int(found["port"]) if found is not None and found["port"] else None
    if found is None or (port is not None and not 1 <= port <= _PORT_MAX):
        raise ValueError("must be HOST or HOST:PORT")
    return CopySource(found["host"].strip("[]"), port)


# Types of settings


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
            raise _Wrong("must be a string")
        return self.from_text(value)

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        parser.add_argument(flag, metavar=self.metavar, **options)


class _Text(Kind[str]):
    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def from_text(self, text: str) -> str:
        if not text:
            raise _Wrong("must not be empty")
        return text


class _Choice(Kind[str]):
    def __init__(self, *choices: str) -> None:
        self._choices = choices
        self.metavar = "|".join(choices)

    def from_text(self, text: str) -> str:
        if text not in self._choices:
            raise _Wrong(f"{text!r} is not one of {', '.join(self._choices)}")
        return text


class _Whole(Kind[int]):
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

    def _wrong(self, value: object) -> _Wrong:
        return _Wrong(f"{value!r} is not an integer from {self._lowest} to {self._highest}")


class _Switch(Kind[bool]):
    def from_text(self, text: str) -> bool:
        try:
            return _WORDS[text.lower()]
        except KeyError:
            raise _Wrong(f"{text!r} is not one of {', '.join(_WORDS)}") from None

    def from_flag(self, given: Any) -> bool:
        return bool(given)

    def from_toml(self, value: object, _folder: Path) -> bool:
        if not isinstance(value, bool):
            raise _Wrong("must be true or false")
        return value

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        # With a negative form: a flag must be able to override what a file has set.
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, **options)


class _Path(Kind[Path]):
    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def from_text(self, text: str) -> Path:
        if not text or "\0" in text:
            raise _Wrong("is not a path")
        return Path(text)

    def from_toml(self, value: object, folder: Path) -> Path:
        """Relative paths in a file are relative to the file, wherever the server is started."""
        return folder / super().from_toml(value, folder)


class _Accounts(Kind[tuple[ConfiguredAccount, ...]]):
    """A list of accounts. Errors refer to an account by its number, because the text in the place
    of its name may be a key."""

    metavar = "NAME:KEY[:KEY2]"

    def from_text(self, text: str) -> tuple[ConfiguredAccount, ...]:
        return self.from_flag(part for part in text.split(";") if part.strip())

    def from_flag(self, given: Iterable[str]) -> tuple[ConfiguredAccount, ...]:
        accounts: dict[str, ConfiguredAccount] = {}
        for number, text in enumerate(given, 1):
            try:
                account = parse_account(text)
            except ValueError as error:
                raise _Wrong(f"account {number}: {error}") from None
            if account.name in accounts:
                raise _Wrong(f"account {number}: its name is already in use")
            accounts[account.name] = account
        return tuple(accounts.values())

    def from_toml(self, value: object, _folder: Path) -> tuple[ConfiguredAccount, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _Wrong(f'must be a list of strings "{self.metavar}"')
        return self.from_flag(value)

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        parser.add_argument(flag, action="append", metavar=self.metavar, **options)


class _AccountNames(Kind[frozenset[str]]):
    """A set of account names. Errors do not show the text, which may be a key."""

    metavar = "NAME"

    def from_text(self, text: str) -> frozenset[str]:
        return self.from_flag(part for part in text.split(";") if part.strip())

    def from_flag(self, given: Iterable[str]) -> frozenset[str]:
        names = [text.strip() for text in given]
        for number, name in enumerate(names, 1):
            if not _is_account_name(name):
                raise _Wrong(f"name {number} must be {_ACCOUNT_NAME_SYNTAX}")
        return frozenset(names)

    def from_toml(self, value: object, _folder: Path) -> frozenset[str]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _Wrong("must be a list of account names")
        return self.from_flag(value)

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        parser.add_argument(flag, action="append", metavar=self.metavar, **options)


class _CopySources(Kind[tuple[CopySource, ...]]):
    metavar = "HOST[:PORT]"

    def from_text(self, text: str) -> tuple[CopySource, ...]:
        return self.from_flag(part for part in text.split(";") if part.strip())

    def from_flag(self, given: Iterable[str]) -> tuple[CopySource, ...]:
        sources: list[CopySource] = []
        for text in given:
            try:
                sources.append(parse_copy_source(text))
            except ValueError as error:
                raise _Wrong(f"{text!r} {error}") from None
        return tuple(dict.fromkeys(sources))

    def from_toml(self, value: object, _folder: Path) -> tuple[CopySource, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _Wrong(f'must be a list of strings "{self.metavar}"')
        return self.from_flag(value)

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        parser.add_argument(flag, action="append", metavar=self.metavar, **options)


_ADDRESS = _Text("ADDRESS")
_PORT = _Whole("PORT", 0, _PORT_MAX)
_SECONDS = _Whole("SECONDS", 0, _SECONDS_MAX)
_SWITCH = _Switch()
_DIRECTORY = _Path("DIR")
_FILE = _Path("FILE")
_DATA_DEFAULT = Path("etagere-data")


# The settings


def _setting(kind: Kind[T], default: D, help_text: str, *, flag: str = "") -> T | D:
    """Declares a field of `Settings` with its metadata. (The linter mistakes some for mutable
    defaults.)"""
    known = {"kind": kind, "help": help_text, "flag": flag}
    made: T | D = field(default=default, metadata=known)
    return made


@dataclass(frozen=True)
class Settings:
    """All settings. The annotations are the types of the values; `kind` is their syntax."""

    host: str = _setting(_ADDRESS, "127.0.0.1", "the address to listen on")
    blob_port: int = _setting(
        _PORT, 10_000, "the port of Blob; for any service, 0 selects a free port"
    )
    queue_port: int = _setting(_PORT, 10_001, "the port of Queue")
    table_port: int = _setting(_PORT, 10_002, "the port of Table")
    file_port: int = _setting(_PORT, 10_003, "the port of File")
    smb_port: int = _setting(_PORT, 10_445, "the port of SMB; clients prefer 445")
    smb: bool = _setting(_SWITCH, True, "serve the shares of File over SMB")
    smb_encryption: str = _setting(
        _Choice("auto", "required", "off"),
        "auto",
        "whether SMB clients must encrypt: `auto` requires it from other machines, `required` from "
        "all clients, `off` from none",
    )
    data: Path = _setting(_DIRECTORY, _DATA_DEFAULT, "the data directory")  # noqa: RUF009
    memory: bool = _setting(
        _SWITCH,
        False,
        "use a temporary directory instead of `data`, and remove it when the server stops",
    )
    workers: int = _setting(
        _Whole("COUNT", 0, _WORKERS_MAX),
        0,
        f"the number of front-end processes for Blob, Queue and Table, at most {_WORKERS_MAX}; 0 "
        f"starts one per core, at most {DEFAULT_WORKERS_MAX}. One more process serves File",
    )
    accounts: tuple[ConfiguredAccount, ...] = _setting(
        _Accounts(),
        (),
        "an account besides those in the data directory; may be repeated",
        flag="--account",
    )
    premium_file_accounts: frozenset[str] = _setting(
        _AccountNames(),
        frozenset(),
        "an account whose new file shares are premium; may be repeated",
        flag="--premium-file-account",
    )
    tls_cert: Path | None = _setting(  # noqa: RUF009
        _FILE, None, "the certificate chain in PEM; requires `tls_key`"
    )
    tls_key: Path | None = _setting(  # noqa: RUF009
        _FILE, None, "the private key of the certificate in PEM, without a password"
    )
    oauth: str = _setting(
        _Choice("off", "development"),
        "off",
        "`development` accepts unsigned bearer tokens from this machine (no effect yet)",
    )
    development_account_anywhere: bool = _setting(
        _SWITCH,
        False,
        "accept the development account, whose key is public, from other machines and under any "
        "host name",
    )
    rehydrate_standard_seconds: int = _setting(
        _SECONDS, 10, "the duration of a rehydration from the archive tier"
    )
    rehydrate_high_seconds: int = _setting(
        _SECONDS, 3, "the duration of a rehydration with high priority"
    )
    last_access_time_tracking: bool = _setting(
        _SWITCH, False, "track and return when blobs were last read or written"
    )
    copy_sources: tuple[CopySource, ...] = _setting(
        _CopySources(),
        (),
        "a server that copies may read from; may be repeated",
        flag="--copy-source",
    )


class Setting(NamedTuple):
    """One row of the table of settings."""

    name: str
    kind: Kind[Any]
    default: Any
    help: str
    flag: str

    @property
    def variable(self) -> str:
        return f"{VARIABLE_PREFIX}{self.name.upper()}"


def _row(of: dataclasses.Field[Any]) -> Setting:
    flag = of.metadata["flag"] or f"--{of.name.replace('_', '-')}"
    return Setting(of.name, of.metadata["kind"], of.default, of.metadata["help"], flag)


SETTINGS: Final = tuple(map(_row, dataclasses.fields(Settings)))


# Reading them


def add_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
    """Adds the flags of these settings (default: all) and `--config` to a parser. `load` validates
    the values, not the parser, because the parser's errors show them."""
    help_text = f"the configuration file, in TOML (default: none; variable {CONFIG_VARIABLE})"
    parser.add_argument(CONFIG_FLAG, metavar="FILE", help=help_text)
    for setting in SETTINGS:
        if not names or setting.name in names:
            places = f"variable {setting.variable}, key {setting.name}"
            help_text = f"{setting.help} (default: {shown(setting.default)}; {places})"
            setting.kind.add_flag(parser, setting.flag, dest=setting.name, help=help_text)


def shown(default: object) -> str:
    """Formats a default value for the help and the documentation."""
    if isinstance(default, bool):
        return "on" if default else "off"
    return "none" if default in (None, (), frozenset()) else str(default)


class _File(NamedTuple):
    """The configuration file; an empty table if there is none."""

    path: Path
    table: dict[str, Any]


def load(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    """Returns the settings in effect. `flags` maps the names of settings to the values that the
    parser returned; None or a missing name means that the flag was not given. An empty variable
    counts as unset."""
    file = _load_file(flags.get("config"), environment.get(CONFIG_VARIABLE))
    sources: dict[str, str] = {}
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        found = _find(setting, flags, environment, file)
        if found is not None:
            sources[setting.name], read = found
            try:
                values[setting.name] = read()
            except _Wrong as wrong:
                raise BadSetting(f"{sources[setting.name]}: {wrong}") from None
    _check_pair(sources, "tls_cert", "tls_key")
    return Settings(**values)


def _find(
    setting: Setting, flags: Mapping[str, Any], environment: Mapping[str, str], file: _File
) -> tuple[str, Callable[[], Any]] | None:
    """Returns where a setting is set and a function that reads it there; None if it is not set."""
    given = flags.get(setting.name)
    if given is not None:
        return setting.flag, lambda: setting.kind.from_flag(given)
    text = environment.get(setting.variable)
    if text:
        return setting.variable, lambda: setting.kind.from_text(text)
    if setting.name in file.table:
        value = file.table[setting.name]
        read = lambda: setting.kind.from_toml(value, file.path.parent)  # noqa: E731
        return f"{file.path}: {setting.name}", read
    return None


def _load_file(flag: str | None, variable: str | None) -> _File:
    if flag == "":
        raise BadSetting(f"{CONFIG_FLAG}: is not a path")
    name = flag or variable
    if not name:
        return _File(Path(), {})
    path = Path(name)
    try:
        with path.open("rb") as opened:
            table = tomllib.load(opened)
    except OSError as error:
        raise BadSetting(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadSetting(f"{path} is not TOML: it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        # RecursionError: nested too deeply. ValueError: also a number with too many digits.
        raise BadSetting(f"{path} is not TOML: {error}") from None
    names = [setting.name for setting in SETTINGS]
    for key in table:
        if key not in names:
            raise BadSetting(f"{path}: {key!r} is not a setting{did_you_mean(key, names)}")
    return _File(path, table)


def unknown_variables(environment: Iterable[str]) -> Iterator[str]:
    """Yields a warning for each variable that has the prefix but is not a setting. It is not an
    error: another program may use the variable."""
    known = [CONFIG_VARIABLE, *(setting.variable for setting in SETTINGS)]
    for name in environment:
        if name.startswith(VARIABLE_PREFIX) and name not in known:
            yield f"{name} is not a setting{did_you_mean(name, known, VARIABLE_PREFIX)}"


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Returns a suggestion for an unknown word, or an empty string. The common prefix is not
    compared, because it would make every word similar."""
    words = [name.removeprefix(prefix) for name in known]
    near = difflib.get_close_matches(word.removeprefix(prefix), words, 1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def _check_pair(sources: Mapping[str, str], first: str, second: str) -> None:
    for one, other in ((first, second), (second, first)):
        if one in sources and other not in sources:
            raise BadSetting(f"{sources[one]}: {other} must be set too")

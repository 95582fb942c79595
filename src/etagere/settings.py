"""What a person may set on a server, and where it is read from.

A flag counts before an environment variable, that before the TOML file, that before the default.
Each setting is one field of `Settings`, which says everything about it: flags, variables, keys
of the file, the help and the documentation are all made from or checked against these fields.

Account keys are settings too. No error and no `repr` shows one, nor anything that may be one.
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
# What HMAC-SHA256 takes in without hashing it first, and what the service makes.
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
    """A setting cannot be used; says where it was set and what is wrong with it."""


class _Wrong(Exception):
    """What is wrong with a value; whoever knows where it comes from says so."""


# Accounts


@dataclass(frozen=True)
class ConfiguredAccount:
    """An account that is known without being stored, with one or two keys."""

    name: str
    keys: tuple[bytes, ...] = field(repr=False)


def decode_key(text: str) -> bytes:
    """An account key from its base64; ValueError, which does not show it, if it is none."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        # Without the cause, which may show it.
        raise ValueError("is not base64") from None
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"must have 1 to {KEY_BYTES_MAX} bytes, and has {len(key)}")
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
"""Known to every SDK as `UseDevelopmentStorage=true`; its key is public."""


def parse_account(text: str) -> ConfiguredAccount:
    """Reads `NAME:KEY[:KEY2]`; ValueError if it is something else."""
    name, *keys = text.strip().split(":")
    if not 1 <= len(keys) <= 2:
        raise ValueError("must be NAME:KEY or NAME:KEY:KEY2")
    long_enough = ACCOUNT_NAME_LENGTH_MIN <= len(name) <= ACCOUNT_NAME_LENGTH_MAX
    if not long_enough or ACCOUNT_NAME.fullmatch(name) is None:
        raise ValueError(
            f"its name must be {ACCOUNT_NAME_LENGTH_MIN} to {ACCOUNT_NAME_LENGTH_MAX} "
            "lowercase letters and digits"
        )
    if name == DEVELOPMENT_ACCOUNT.name:
        raise ValueError(f"{name} is built in and cannot be given other keys")
    return ConfiguredAccount(name, tuple(map(_nth_key, (1, 2), keys)))


def _nth_key(number: int, text: str) -> bytes:
    try:
        return decode_key(text)
    except ValueError as error:
        raise ValueError(f"its key {number} {error}") from None


# Sources of copies


@dataclass(frozen=True)
class CopySource:
    """A host that copies may read from."""

    host: str
    """In lower case and without brackets, as it has to be written in the address of a source."""
    port: int | None
    """None: the usual one of HTTP or of HTTPS."""


_COPY_SOURCE: Final = re.compile(
    r"(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)


def parse_copy_source(text: str) -> CopySource:
    """Reads `HOST[:PORT]`; ValueError if it is something else, such as an address with a path."""
    found = _COPY_SOURCE.fullmatch(text.strip().lower())
    port = int(found["port"]) if found is not None and found["port"] else None
    if found is None or (port is not None and not 1 <= port <= _PORT_MAX):
        raise ValueError("must be HOST or HOST:PORT")
    return CopySource(found["host"].strip("[]"), port)


# Kinds of value


class Kind(ABC, Generic[T]):
    """How a value is written in each of the three places."""

    metavar = "TEXT"

    @abstractmethod
    def from_text(self, text: str) -> T:
        """The value of an environment variable."""

    def from_flag(self, given: Any) -> T:
        """The value of what the parser has made of the flag."""
        return self.from_text(given)

    def from_toml(self, value: object, _folder: Path) -> T:
        """The value of a key in a file of this folder."""
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
            raise _Wrong(f"{text!r} is none of {', '.join(self._choices)}")
        return text


class _Whole(Kind[int]):
    def __init__(self, metavar: str, lowest: int, highest: int) -> None:
        self.metavar = metavar
        self._lowest = lowest
        self._highest = highest

    def from_text(self, text: str) -> int:
        # Not all that `int` reads: it takes blanks, underscores and the digits of any script.
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
        return _Wrong(f"{value!r} is no whole number from {self._lowest} to {self._highest}")


class _Switch(Kind[bool]):
    def from_text(self, text: str) -> bool:
        try:
            return _WORDS[text.lower()]
        except KeyError:
            raise _Wrong(f"{text!r} is none of {', '.join(_WORDS)}") from None

    def from_flag(self, given: Any) -> bool:
        return bool(given)

    def from_toml(self, value: object, _folder: Path) -> bool:
        if not isinstance(value, bool):
            raise _Wrong("must be true or false")
        return value

    def add_flag(self, parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
        # With a form that says no: a flag must be able to take back what a file has set.
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, **options)


class _Path(Kind[Path]):
    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def from_text(self, text: str) -> Path:
        if not text or "\0" in text:
            raise _Wrong("is no path")
        return Path(text)

    def from_toml(self, value: object, folder: Path) -> Path:
        """A file means the same wherever the server is started."""
        return folder / super().from_toml(value, folder)


class _Accounts(Kind[tuple[ConfiguredAccount, ...]]):
    """Accounts are counted in errors: what looks like a name may be a key in the wrong place."""

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
                raise _Wrong(f"account {number}: its name was given to an earlier one")
            accounts[account.name] = account
        return tuple(accounts.values())

    def from_toml(self, value: object, _folder: Path) -> tuple[ConfiguredAccount, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _Wrong(f'must be a list of strings "{self.metavar}"')
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
    """A field of `Settings`, with all that is to be known about it. (The linter takes some for
    defaults that all instances would share.)"""
    known = {"kind": kind, "help": help_text, "flag": flag}
    made: T | D = field(default=default, metadata=known)
    return made


@dataclass(frozen=True)
class Settings:
    """All there is to set. The types are those of the values; how they are written is the kind."""

    host: str = _setting(_ADDRESS, "127.0.0.1", "the address to listen on")
    blob_port: int = _setting(_PORT, 10_000, "the port of Blob; 0 takes a free one, here and below")
    queue_port: int = _setting(_PORT, 10_001, "the port of Queue")
    table_port: int = _setting(_PORT, 10_002, "the port of Table")
    file_port: int = _setting(_PORT, 10_003, "the port of File")
    smb_port: int = _setting(_PORT, 10_445, "the port of SMB")
    data: Path = _setting(_DIRECTORY, _DATA_DEFAULT, "the data directory")  # noqa: RUF009
    memory: bool = _setting(
        _SWITCH, False, "keep nothing: a directory that is thrown away, in place of `data`"
    )
    workers: int = _setting(
        _Whole("COUNT", 0, _WORKERS_MAX),
        0,
        f"processes that serve Blob, Queue and Table, up to {_WORKERS_MAX}; 0 starts one for each "
        f"core, but not more than {DEFAULT_WORKERS_MAX}",
    )
    accounts: tuple[ConfiguredAccount, ...] = _setting(
        _Accounts(), (), "an account beside those in the store; may be repeated", flag="--account"
    )
    tls_cert: Path | None = _setting(  # noqa: RUF009
        _FILE, None, "the certificates to show, as PEM; with `tls_key`"
    )
    tls_key: Path | None = _setting(  # noqa: RUF009
        _FILE, None, "the private key of the certificate, as PEM"
    )
    oauth: str = _setting(
        _Choice("off", "development"),
        "off",
        "`development` takes unsigned bearer tokens, from this machine only",
    )
    development_account_anywhere: bool = _setting(
        _SWITCH,
        False,
        "let the development account be used from other machines and under any Host name; its key "
        "is public",
    )
    rehydrate_standard_seconds: int = _setting(
        _SECONDS, 10, "how long the way out of the archive takes"
    )
    rehydrate_high_seconds: int = _setting(_SECONDS, 3, "the same with high priority")
    copy_sources: tuple[CopySource, ...] = _setting(
        _CopySources(),
        (),
        "another server that copies may read from; may be repeated",
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
    """Adds the flags of these settings, or of all, and the one that names the file. They are
    judged in `load`, not by the parser, whose errors show what was given."""
    help_text = f"a TOML file with settings (default: none; variable {CONFIG_VARIABLE})"
    parser.add_argument(CONFIG_FLAG, metavar="FILE", help=help_text)
    for setting in SETTINGS:
        if not names or setting.name in names:
            places = f"variable {setting.variable}, key {setting.name}"
            help_text = f"{setting.help} (default: {shown(setting.default)}; {places})"
            setting.kind.add_flag(parser, setting.flag, dest=setting.name, help=help_text)


def shown(default: object) -> str:
    """A default as people write it."""
    if isinstance(default, bool):
        return "on" if default else "off"
    return "none" if default in (None, ()) else str(default)


class _File(NamedTuple):
    """The file of settings; without one, empty and nowhere."""

    path: Path
    table: dict[str, Any]


def load(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    """The settings in effect. `flags` are the parser's, by the names of the settings; what is
    None or missing was not given, and an empty variable is as good as none."""
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
    """Where a setting is set, and what reads it there."""
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
        raise BadSetting(f"{CONFIG_FLAG}: is no path")
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
        # The second for what is nested too deeply; the first also for a number that is too long.
        raise BadSetting(f"{path} is not TOML: {error}") from None
    names = [setting.name for setting in SETTINGS]
    for key in table:
        if key not in names:
            raise BadSetting(f"{path}: {key!r} is no setting{did_you_mean(key, names)}")
    return _File(path, table)


def unknown_variables(environment: Iterable[str]) -> Iterator[str]:
    """Says of each variable that looks like a setting and is none what it may have been meant
    to be. No error: somebody else may have use for it."""
    known = [CONFIG_VARIABLE, *(setting.variable for setting in SETTINGS)]
    for name in environment:
        if name.startswith(VARIABLE_PREFIX) and name not in known:
            yield f"{name} is no setting{did_you_mean(name, known, VARIABLE_PREFIX)}"


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of a sentence about a word that is not known. What all have in common is not
    compared: it would make every word a near one."""
    words = [name.removeprefix(prefix) for name in known]
    near = difflib.get_close_matches(word.removeprefix(prefix), words, 1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def _check_pair(sources: Mapping[str, str], first: str, second: str) -> None:
    for one, other in ((first, second), (second, first)):
        if one in sources and other not in sources:
            raise BadSetting(f"{sources[one]}: {other} must be set too")

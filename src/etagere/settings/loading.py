"""Reading the settings: from flags, environment variables and a TOML file."""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from etagere.settings import SETTINGS, VARIABLE_PREFIX, Setting, Settings
from etagere.settings.kinds import Wrong

CONFIG_FLAG, CONFIG_VARIABLE = "--config", f"{VARIABLE_PREFIX}CONFIG"
_FILE_BYTES_MAX = 1 << 20


class BadSetting(Exception):
    """A setting is invalid. The message says where it was set and what is wrong with it."""


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
            except Wrong as wrong:
                raise BadSetting(f"{sources[setting.name]}: {wrong}") from None
    _require(sources, "tls_cert", "tls_key")
    _require(sources, "tls_key", "tls_cert")
    _require(sources, "bodies", "engine")
    _require(sources, "account_map", "engine")
    _require(sources, "account_map", "cell")
    _require(sources, "cell", "account_map")
    _require(sources, "cell_address", "account_map")
    if values.get("oauth") == "on":
        _require(sources, "oauth", "oauth_issuers")
        _require(sources, "oauth", "oauth_keys")
    settings = Settings(**values)
    if settings.tls != "off" and settings.tls_cert is not None:
        raise BadSetting(f"{sources['tls']}: tls_cert must not be set too")
    if settings.memory and settings.engine is not None:
        raise BadSetting(f"{sources['memory']}: engine must not be set too")
    return settings


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
        # It may be a pipe, such as a process substitution of a shell.
        with path.open("rb") as opened:
            text = opened.read(_FILE_BYTES_MAX + 1)
        if len(text) > _FILE_BYTES_MAX:
            raise BadSetting(f"{path} cannot be read: it has more than {_FILE_BYTES_MAX} bytes")
        table = tomllib.loads(text.decode())
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


def _require(sources: Mapping[str, str], name: str, other: str) -> None:
    """Refuses one setting without another."""
    if name in sources and other not in sources:
        raise BadSetting(f"{sources[name]}: {other} must be set too")

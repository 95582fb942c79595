"""Values of the settings of a cluster: where its ledger, its bodies and its nodes are.

Addresses may contain passwords and keys. What is shown of them never does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from etagere.settings.values import PORT_MAX

_DATABASE_SCHEMES: Final = ("postgresql", "postgres")
_OBJECT_STORE_SCHEMES: Final = ("s3", "rados")
_KEYWORD: Final = re.compile(
    r"\s*(?P<keyword>[a-z_]+)\s*=\s*(?P<value>'(?:[^'\\]|\\.)*'|(?!')(?:[^\s\\]|\\.)*)", re.DOTALL
)
_SHOWN_KEYWORDS: Final = ("host", "hostaddr", "port", "dbname", "service")
_SHOWN_URL: Final = re.compile(r"(?:[^@/]*@)?(?P<shown>[^@?#]*)(?:[?#][^@]*)?")
"""What follows `://`. With another `@`, as in `KEY:SECRET/WITH/SLASHES@BUCKET`, it is not certain
where a secret ends."""
NODE_NAME_CHARACTERS_MAX: Final = 63
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_HOST: Final = re.compile(
    r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)


def _without_keys(url: str) -> str:
    """Returns what may be shown of a URL: not the user, the password and the options."""
    scheme, _, rest = url.partition("://")
    found = _SHOWN_URL.fullmatch(rest)
    return f"{scheme}://{'…' if found is None else found['shown']}"


@dataclass(frozen=True)
class DatabaseAddress:
    """The PostgreSQL server of a ledger, as libpq takes it: a URI, or keywords and values."""

    conninfo: str = field(repr=False)

    def __str__(self) -> str:
        """Returns what may be shown: the hosts and the database, not the user and the password."""
        if "://" not in self.conninfo:
            found = _KEYWORD.finditer(self.conninfo)
            shown = [each[0].strip() for each in found if each["keyword"] in _SHOWN_KEYWORDS]
            return " ".join(shown) or "postgresql"
        return _without_keys(self.conninfo)


def parse_database_address(text: str) -> DatabaseAddress:
    """Parses a connection string of libpq. Raises ValueError, without showing the text."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme in _DATABASE_SCHEMES and rest and "\0" not in text:
        return DatabaseAddress(text)
    if not separator and _is_keywords(text):
        return DatabaseAddress(text)
    raise ValueError("must be postgresql://[USER[:PASSWORD]@]HOST[:PORT],…/DATABASE or KEYWORD=…")


def _is_keywords(text: str) -> bool:
    if not text.strip() or "\0" in text:
        return False
    end = 0
    while found := _KEYWORD.match(text, end):
        end = found.end()
    return not text[end:].strip()


@dataclass(frozen=True)
class BodiesAddress:
    """Where the bodies of a cluster are: an object store, or a directory that all nodes share."""

    path: Path | None = None
    url: str = field(default="", repr=False)
    """Empty: a directory."""

    def __str__(self) -> str:
        """Returns what may be shown: not the keys in a URL."""
        if self.path is not None:
            return str(self.path)
        return _without_keys(self.url)


def parse_bodies_address(text: str) -> BodiesAddress:
    """Parses a path or a URL. Raises ValueError, without showing the text."""
    if not text or "\0" in text:
        raise ValueError("is not a path")
    scheme, separator, _ = text.partition("://")
    if not separator:
        return BodiesAddress(Path(text))
    try:
        named = scheme in _OBJECT_STORE_SCHEMES and urlsplit(text).netloc.rpartition("@")[2]
    except ValueError:
        named = ""
    if not named:
        raise ValueError("must be a directory, s3://BUCKET[/PREFIX] or rados://POOL[/PREFIX]")
    return BodiesAddress(url=text)


def parse_node_name(text: str) -> str:
    """Returns a node name. Raises ValueError if it cannot be one."""
    if len(text) > NODE_NAME_CHARACTERS_MAX or _NODE_NAME.fullmatch(text) is None:
        raise ValueError(
            f"must have at most {NODE_NAME_CHARACTERS_MAX} letters, digits and characters of ._-"
        )
    return text


@dataclass(frozen=True)
class NodeAddress:
    """Where the other nodes of a cluster reach a node."""

    host: str
    """Without brackets."""
    port: int = 0
    """0: any free port."""


def parse_node_address(text: str) -> NodeAddress:
    """Parses `HOST[:PORT]`. Raises ValueError if the text has another form."""
    found = _HOST.fullmatch(text)
    port = int(found["port"] or 0) if found is not None else 0
    if found is None or port > PORT_MAX:
        raise ValueError("must be HOST or HOST:PORT")
    return NodeAddress(found["host"].strip("[]"), port)


def format_host_and_port(host: str, port: int) -> str:
    """Returns `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""The settings of a server.

A flag takes precedence over an environment variable, a variable over the TOML file, and the file
over the default. Each setting is one field of `Settings`, which describes it completely: flags,
variables, keys of the file and the help are generated from these fields, and a test compares the
documentation with them.

Account keys are settings too. No error and no `repr` shows a key, or anything that may be one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from etagere.settings.addresses import BodiesAddress, DatabaseAddress, NodeAddress
from etagere.settings.kinds import (
    AccountNames,
    Accounts,
    Bodies,
    Choice,
    CopySources,
    Database,
    KeySets,
    Kind,
    NodeAddresses,
    NodeName,
    PathName,
    RoleAssignments,
    Switch,
    Text,
    Texts,
    Url,
    Whole,
)
from etagere.settings.oauth import KeySetSource, RoleAssignment
from etagere.settings.values import PORT_MAX, ConfiguredAccount, CopySource

T = TypeVar("T")
D = TypeVar("D")

VARIABLE_PREFIX = "ETAGERE_"
_WORKERS_MAX = 256
DEFAULT_WORKERS_MAX: Final = 4
_SECONDS_MAX = 7 * 24 * 3600
_SLOW_MILLISECONDS_MAX = 3_600_000

_ADDRESS = Text("ADDRESS")
_PORT = Whole("PORT", 0, PORT_MAX)
_SECONDS = Whole("SECONDS", 0, _SECONDS_MAX)
_SWITCH = Switch()
_DIRECTORY = PathName("DIR")
_FILE = PathName("FILE")
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
        Choice("auto", "required", "off"),
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
    engine: DatabaseAddress | None = _setting(  # noqa: RUF009
        Database(),
        None,
        "the PostgreSQL server with the ledger of a cluster, as a URI or keywords of libpq; "
        "without it, the ledger is in the data directory",
    )
    bodies: BodiesAddress | None = _setting(  # noqa: RUF009
        Bodies(),
        None,
        "where the bodies of a cluster are: a directory that all nodes share, `s3://BUCKET/PREFIX` "
        "or `rados://POOL/PREFIX`; without it, in the data directory. Requires `engine`",
    )
    node_name: str | None = _setting(
        NodeName(), None, "the name of this node of a cluster; without it, the host name"
    )
    node_address: NodeAddress | None = _setting(  # noqa: RUF009
        NodeAddresses(),
        None,
        "where the other nodes of a cluster reach this one; without it, any free port of the "
        "address that this node reaches PostgreSQL from",
    )
    account_map: DatabaseAddress | None = _setting(  # noqa: RUF009
        Database(),
        None,
        "the PostgreSQL server with the account map, which is in the ledger of one of several "
        "cells; the same on all nodes of all cells. Requires `engine` and `cell`",
    )
    cell: str | None = _setting(
        NodeName(),
        None,
        "the name of the cell of this node; the same on all nodes of a cluster. Requires "
        "`account_map`",
    )
    cell_address: NodeAddress | None = _setting(  # noqa: RUF009
        NodeAddresses(),
        None,
        "where the nodes of other cells reach this one; without it, any free port of the address "
        "that this node reaches PostgreSQL from. Requires `account_map`",
    )
    workers: int = _setting(
        Whole("COUNT", 0, _WORKERS_MAX),
        0,
        f"the number of front-end processes for Blob, Queue and Table, at most {_WORKERS_MAX}; 0 "
        f"starts one per core, at most {DEFAULT_WORKERS_MAX}. One more process serves File",
    )
    accounts: tuple[ConfiguredAccount, ...] = _setting(
        Accounts(),
        (),
        "an account besides those in the ledger; may be repeated",
        flag="--account",
    )
    premium_file_accounts: frozenset[str] = _setting(
        AccountNames(),
        frozenset(),
        "an account whose new file shares are premium; may be repeated",
        flag="--premium-file-account",
    )
    tls: str = _setting(
        Choice("off", "self-signed"),
        "off",
        "`self-signed` serves HTTPS with a certificate that the server creates; clients have to "
        "trust its CA. Not together with `tls_cert`",
    )
    tls_cert: Path | None = _setting(  # noqa: RUF009
        _FILE, None, "the certificate chain in PEM; requires `tls_key`"
    )
    tls_key: Path | None = _setting(  # noqa: RUF009
        _FILE, None, "the private key of the certificate in PEM, without a password"
    )
    oauth: str = _setting(
        Choice("off", "development", "on"),
        "off",
        "whether bearer tokens are accepted: `on` those of `oauth_issuers`, over HTTPS only; "
        "`development` any unexpired token, even unsigned, from this machine only",
    )
    oauth_issuers: tuple[str, ...] = _setting(
        Texts("ISSUER"),
        (),
        "an issuer of bearer tokens, the claim `iss`; may be repeated",
        flag="--oauth-issuer",
    )
    oauth_keys: KeySetSource | None = _setting(  # noqa: RUF009
        KeySets(), None, "the public keys of the issuers, as a JSON Web Key Set"
    )
    oauth_audiences: tuple[str, ...] = _setting(
        Texts("AUDIENCE"),
        (),
        "an audience, the claim `aud`, besides those of Azure Storage; may be repeated",
        flag="--oauth-audience",
    )
    oauth_roles: tuple[RoleAssignment, ...] = _setting(
        RoleAssignments(),
        (),
        "roles of users whose token has a value in `roles`, `groups`, `scp`, `oid` or `appid`; "
        "may be repeated",
        flag="--oauth-role",
    )
    oauth_authority: str | None = _setting(
        Url(),
        None,
        "the URL of the directory, with the tenant, where clients without a usable token are sent "
        "to (default of `on`: the first issuer)",
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
    admin_port: int | None = _setting(
        _PORT, None, "the port for health and metrics; 0 selects a free port"
    )
    admin_host: str = _setting(
        _ADDRESS,
        "127.0.0.1",
        "the address of that port; others than loopback addresses require `admin_token_file`",
    )
    admin_token_file: Path | None = _setting(  # noqa: RUF009
        _FILE, None, "a file with the token that requests to that port must present"
    )
    copy_sources: tuple[CopySource, ...] = _setting(
        CopySources(),
        (),
        "a server that copies may read from; may be repeated",
        flag="--copy-source",
    )
    log_format: str = _setting(
        Choice("text", "json"), "text", "the format of log lines: `text` for people, or `json`"
    )
    log_level: str = _setting(
        Choice("debug", "info", "warning", "error"),
        "info",
        "the lowest level of events that are logged; the access log does not depend on it",
    )
    access_log: bool = _setting(_SWITCH, True, "log each REST request")
    log_slow_milliseconds: int = _setting(
        Whole("COUNT", 0, _SLOW_MILLISECONDS_MAX),
        1_000,
        "log requests and operations of the writer that take longer than this; 0 logs none",
    )

    @property
    def rest_ports(self) -> dict[str, int]:
        """The ports of the REST services, by name; 0 is any free port."""
        return {
            "blob": self.blob_port,
            "queue": self.queue_port,
            "table": self.table_port,
            "file": self.file_port,
        }

    @property
    def uses_tls(self) -> bool:
        """Whether the REST services are served over HTTPS."""
        return self.tls != "off" or self.tls_cert is not None


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

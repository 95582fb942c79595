"""`etagere connection-string`: what a client needs to know to use an account."""

from __future__ import annotations

import argparse
import base64
import ipaddress
from collections.abc import Mapping

from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CLEAN, Unusable, settings_of, tell
from etagere.cli.account import reach, require_name
from etagere.operations.accounts import get_account
from etagere.settings import DEVELOPMENT_ACCOUNT, Settings
from etagere.settings import add_arguments as add_settings

NAME = "connection-string"
SUMMARY = "print the connection string of an account"
DESCRIPTION = """\
Prints the connection string of an account, with the endpoints of a server that has the same
settings: give both the same flags, environment and file. The account is the development
account, one of the settings, or one in the data directory.

The connection string has a key in it: treat it as a secret."""
EXAMPLES = """\
etagere connection-string                               # of the development account
etagere connection-string --account mine --host storage.example
export AZURE_STORAGE_CONNECTION_STRING="$(etagere connection-string)\""""

DEVELOPMENT_STORAGE = "UseDevelopmentStorage=true"
_FLAGS = (
    "host",
    "blob_port",
    "queue_port",
    "table_port",
    "file_port",
    "data",
    "tls_cert",
    "tls_key",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--account",
        metavar="NAME",
        default=DEVELOPMENT_ACCOUNT.name,
        help=f"the account's name (default: {DEVELOPMENT_ACCOUNT.name})",
    )
    add_settings(parser, *_FLAGS)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    name: str = arguments.account
    require_name(name)
    ports = _ports(settings)
    print(connection_string(name, _find_key(name, settings), settings, ports))
    if name == DEVELOPMENT_ACCOUNT.name and is_development_storage(settings, ports):
        # Not among the output, which a script may take as it is.
        tell(f"{DEVELOPMENT_STORAGE} says the same, without File")
    return CLEAN


def connection_string(name: str, key: bytes, settings: Settings, ports: Mapping[str, int]) -> str:
    parts = [
        ("DefaultEndpointsProtocol", _scheme(settings)),
        ("AccountName", name),
        ("AccountKey", base64.b64encode(key).decode()),
        *(
            (f"{service.capitalize()}Endpoint", f"{endpoint(settings, port)}/{name}")
            for service, port in ports.items()
        ),
    ]
    return "".join(f"{field}={value};" for field, value in parts)


def is_development_storage(settings: Settings, ports: Mapping[str, int]) -> bool:
    """Whether these ports are where every client looks for the development account."""
    usual = _ports(Settings())
    local = _client_host(settings.host) in (Settings().host, "localhost")
    plain = settings.tls_cert is None
    return plain and local and all(usual[service] == port for service, port in ports.items())


def endpoint(settings: Settings, port: int) -> str:
    """What clients call a port of the server."""
    return f"{_scheme(settings)}://{_client_host(settings.host)}:{port}"


def _find_key(name: str, settings: Settings) -> bytes:
    """Key 1 of an account, wherever it is known from."""
    for account in (DEVELOPMENT_ACCOUNT, *settings.accounts):
        if account.name == name:
            return account.keys[0]
    try:
        require_ledger(settings.data)
    except CannotCheck as error:
        raise Unusable(f"there is no account {name} in the settings, and {error}") from None
    with reach(settings.data) as store:
        stored = store.read(get_account, name)
    if stored is None:
        raise Unusable(f"there is no account {name}, in the settings or in {settings.data}")
    return stored.key1


def _ports(settings: Settings) -> dict[str, int]:
    """Those of a server with these settings, by the names of the services."""
    ports = {
        "blob": settings.blob_port,
        "queue": settings.queue_port,
        "table": settings.table_port,
        "file": settings.file_port,
    }
    for service, port in ports.items():
        if not port:
            name = service.capitalize()
            raise Unusable(f"the port of {name} is 0: only the server knows what it has chosen")
    return ports


def _scheme(settings: Settings) -> str:
    return "http" if settings.tls_cert is None else "https"


def _client_host(host: str) -> str:
    """What a client calls the address that a server listens on: "all of them" is none."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"

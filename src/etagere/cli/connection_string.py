"""`etagere connection-string`: what a client needs to know to use an account."""

from __future__ import annotations

import argparse
import base64
import ipaddress
import sys

from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CLEAN, Unusable
from etagere.cli.account import reach, settings_of
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
    print(connection_string(name, _find_key(name, settings), settings))
    if name == DEVELOPMENT_ACCOUNT.name and _endpoints(settings) == _endpoints(Settings()):
        # Not among the output, which a script may take as it is.
        print("etagere: UseDevelopmentStorage=true says the same, without File", file=sys.stderr)
    return CLEAN


def connection_string(name: str, key: bytes, settings: Settings) -> str:
    endpoints = _endpoints(settings)
    parts = [
        ("DefaultEndpointsProtocol", _scheme(settings)),
        ("AccountName", name),
        ("AccountKey", base64.b64encode(key).decode()),
        *((f"{service}Endpoint", f"{endpoint}/{name}") for service, endpoint in endpoints.items()),
    ]
    return "".join(f"{field}={value};" for field, value in parts)


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


def _endpoints(settings: Settings) -> dict[str, str]:
    """By the names that connection strings have for the services."""
    ports = {
        "Blob": settings.blob_port,
        "Queue": settings.queue_port,
        "Table": settings.table_port,
        "File": settings.file_port,
    }
    for service, port in ports.items():
        if not port:
            raise Unusable(f"the port of {service} is 0: only the server knows what it has chosen")
    base = f"{_scheme(settings)}://{_client_host(settings.host)}"
    return {service: f"{base}:{port}" for service, port in ports.items()}


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

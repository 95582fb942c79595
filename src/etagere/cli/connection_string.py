"""`etagere connection-string`: prints the connection string of an account."""

from __future__ import annotations

import argparse
import base64
import ipaddress
from collections.abc import Mapping

from etagere.admin.child import is_local
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.cli import CLEAN, CommandError, notify, settings_of
from etagere.cli.account import require_name, require_not_elsewhere
from etagere.cli.stores import open_store
from etagere.operations.accounts import get_account
from etagere.settings import Settings
from etagere.settings.loading import add_arguments as add_settings
from etagere.settings.values import DEVELOPMENT_ACCOUNT

NAME = "connection-string"
SUMMARY = "print the connection string of an account"
DESCRIPTION = """\
Prints the connection string of an account. The endpoints are computed from the settings: use
the same flags, environment and configuration file as the server. The account may be the
development account, defined by the settings, or stored in the ledger.

The connection string contains an account key. Treat it as a secret."""
EXAMPLES = """\
etagere connection-string                               # the development account
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
    "engine",
    "account_map",
    "cell",
    "tls",
    "tls_cert",
    "tls_key",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--account",
        metavar="NAME",
        default=DEVELOPMENT_ACCOUNT.name,
        help=f"the name of the account (default: {DEVELOPMENT_ACCOUNT.name})",
    )
    add_settings(parser, *_FLAGS)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    name: str = arguments.account
    require_name(name)
    ports = _ports(settings)
    print(connection_string(name, _find_key(name, settings), settings, ports))
    if name == DEVELOPMENT_ACCOUNT.name and is_development_storage(settings, ports):
        # Not on standard output, which a script may use.
        notify(f"{DEVELOPMENT_STORAGE} is equivalent, except for File")
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
    """Whether clients find this server with `UseDevelopmentStorage=true`."""
    usual = _ports(Settings())
    local = client_host(settings.host) in (Settings().host, "localhost")
    return (
        not settings.uses_tls
        and local
        and all(usual[service] == port for service, port in ports.items())
    )


def endpoint(settings: Settings, port: int) -> str:
    """Returns the URL of a port for clients."""
    return f"{_scheme(settings)}://{client_host(settings.host)}:{port}"


def smb_endpoint(settings: Settings, port: int) -> str:
    """Returns the URL of the SMB server for clients."""
    return f"smb://{client_host(settings.host)}:{port}"


def admin_endpoint(settings: Settings, port: int) -> str:
    """Returns the URL of the admin port. It uses TLS only if other machines can reach it."""
    is_secure = settings.uses_tls and not is_local(settings.admin_host)
    scheme = "https" if is_secure else "http"
    return f"{scheme}://{client_host(settings.admin_host)}:{port}"


def _find_key(name: str, settings: Settings) -> bytes:
    """Returns key 1 of an account from the settings or the ledger."""
    for account in (DEVELOPMENT_ACCOUNT, *settings.accounts):
        if account.name == name:
            return account.keys[0]
    if settings.engine is None:
        try:
            require_ledger(settings.data)
        except CannotCheck as error:
            raise CommandError(f"account {name} is not in the settings, and {error}") from None
    with open_store(settings) as store:
        stored = store.read(get_account, name)
    if stored is None:
        require_not_elsewhere(name, settings)
        place = settings.engine or settings.data
        raise CommandError(f"account {name} does not exist in the settings or in {place}")
    return stored.key1


def _ports(settings: Settings) -> dict[str, int]:
    """Returns the port of each REST service. Raises `CommandError` if one is not known."""
    ports = settings.rest_ports
    for service, port in ports.items():
        if not port:
            name = service.capitalize()
            raise CommandError(
                f"the port of {name} is 0; only the running server knows the port it uses"
            )
    return ports


def _scheme(settings: Settings) -> str:
    return "https" if settings.uses_tls else "http"


def client_host(host: str) -> str:
    """Returns the host name for clients of a server that listens on `host`, which may be the
    wildcard address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"

"""`etagere serve`: runs the server."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from etagere import app, data_directory, service_manager
from etagere.cli import CommandError, settings_of
from etagere.cli.connection_string import (
    DEVELOPMENT_STORAGE,
    admin_endpoint,
    client_host,
    connection_string,
    endpoint,
    is_development_storage,
    smb_endpoint,
)
from etagere.settings import Settings
from etagere.settings.loading import add_arguments as add_settings
from etagere.settings.values import DEVELOPMENT_ACCOUNT
from etagere.telemetry.formats import fields
from etagere.telemetry.logs import configure as configure_logs

NAME = "serve"
SUMMARY = "run the server"
DESCRIPTION = """\
Runs the server in the foreground. ^C or SIGTERM stops it after it has finished the requests
in progress; a second ^C stops it at once. No acknowledged write is lost in either case.

When the server accepts requests, it prints one line to standard output, which begins with
READY and lists the endpoints. Standard error shows how to connect, and then the log.

Each setting has a flag, an environment variable and a key in the configuration file. A flag
takes precedence over a variable, and a variable over the file. Other users of this machine
may see flags: keep account keys in the file, or in the data directory with
`etagere account add`.

Exit status: 0 after a stop, 2 if the server cannot start, 78 if one of its processes cannot
run."""
EXAMPLES = """\
etagere serve                             # on 127.0.0.1, data in ./etagere-data
etagere serve --memory --blob-port 0      # temporary data and a free port, for tests
etagere serve --data /srv/etagere --workers 2
etagere serve --config /etc/etagere.toml
etagere serve --engine postgresql://db1,db2/etagere --bodies s3://bucket/prefix # a node"""

logger = logging.getLogger(__name__)

SMB_USUAL_PORT = 445
"""The port that clients use if none is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)
    parser.add_argument(
        "--accept-clock",
        action="store_true",
        help="start even if the times in the data directory are implausible",
    )
    parser.add_argument(
        "--stop-at-eof",
        action="store_true",
        help="stop when standard input ends, for programs that start the server: if they hold "
        "the other end of a pipe, it never outlives them",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.stop_at_eof and sys.stdin is None:
        raise CommandError("--stop-at-eof: there is no standard input")
    settings = settings_of(arguments)
    configure_logs(settings.log_format, settings.log_level)
    if settings.oauth == "development":
        logger.warning(
            "oauth = development: every program on this machine can use every account with a token "
            "that it made itself"
        )
    elif settings.oauth == "on" and settings.tls_cert is None and settings.tls == "off":
        logger.warning("oauth = on has no effect without TLS: tokens are accepted over https only")
    if settings.development_account_anywhere:
        logger.warning(
            "--development-account-anywhere: everybody who can reach this server, and every web "
            "page in a browser on this machine, can read, change and delete the data of %s; its "
            "key is public",
            DEVELOPMENT_ACCOUNT.name,
        )
    supervisor = os.getpid()

    def announce(ports: Mapping[str, int], authority: Path | None) -> None:
        rest = {name: port for name, port in ports.items() if name not in ("smb", "admin")}
        smb_port, admin_port = ports.get("smb"), ports.get("admin")
        listed = [f"{service}={endpoint(settings, port)}" for service, port in rest.items()]
        if smb_port is not None:
            listed.append(f"smb={smb_endpoint(settings, smb_port)}")
        if admin_port is not None:
            listed.append(f"admin={admin_endpoint(settings, admin_port)}")
        if settings.log_format == "text":
            message = _startup_message(settings, rest, smb_port, admin_port, supervisor, authority)
            print(message, file=sys.stderr, flush=True)
        else:
            endpoints = dict(one.split("=", 1) for one in listed)
            logger.info("the server is ready", extra=fields(**endpoints))
        print("READY", *listed, flush=True)
        service_manager.notify(service_manager.READY)

    try:
        options = app.StartOptions(arguments.accept_clock, arguments.stop_at_eof)
        return app.serve(settings, announce, options)
    except data_directory.CannotUse as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"the server cannot run: {error}") from error


def _startup_message(
    settings: Settings,
    ports: Mapping[str, int],
    smb_port: int | None,
    admin_port: int | None,
    pid: int,
    authority: Path | None,
) -> str:
    """Returns the lines that tell the user how to connect to the server. The only key that they may
    contain is public. `ports` are those of the REST services."""
    name, (key,) = DEVELOPMENT_ACCOUNT.name, DEVELOPMENT_ACCOUNT.keys
    if is_development_storage(settings, ports):
        # It has no endpoint for File.
        connect = [DEVELOPMENT_STORAGE, "for File: run `etagere connection-string`"]
    else:
        connect = [connection_string(name, key, settings, ports)]
    rows = [
        *((service, f"{endpoint(settings, port)}/{name}") for service, port in ports.items()),
        *zip(("connect", ""), connect, strict=False),
        *zip(("smb", "", "", ""), _mount_commands(settings, smb_port, name), strict=False),
        *(() if admin_port is None else (("admin", admin_endpoint(settings, admin_port)),)),
        *_trust(authority),
        *_data(settings),
        ("stop", f"^C, or kill {pid}"),
    ]
    return "\n".join(f"  {title:<8} {text}" for title, text in rows)


def _data(settings: Settings) -> list[tuple[str, object]]:
    """Returns where the data is."""
    if settings.memory:
        return [("data", "temporary, removed when the server stops")]
    own = ("data", settings.data.absolute())
    if settings.engine is None:
        return [own]
    cell: list[tuple[str, object]] = [] if settings.cell is None else [("cell", settings.cell)]
    place = [("engine", settings.engine), ("bodies", settings.bodies or settings.data)]
    return [*place, *cell, own]


def _trust(authority: Path | None) -> list[tuple[str, str]]:
    """Returns how clients verify the certificate of a server that created it."""
    if authority is None:
        return []
    return [
        ("tls", f"clients have to trust the CA {authority.absolute()}"),
        ("", "`etagere certificate --help` shows how"),
    ]


def _mount_commands(settings: Settings, port: int | None, account: str) -> list[str]:
    """Returns how to mount a share over SMB."""
    if port is None:
        return ["off"]
    host = client_host(settings.host)
    windows_port = "" if port == SMB_USUAL_PORT else f" /TCPPORT:{port}"
    return [
        f"{smb_endpoint(settings, port)}/SHARE, user {account}, password: the account key",
        f"Linux: mount -t cifs //{host}/SHARE DIR -o port={port},vers=3.1.1,username={account}",
        f"Windows: net use * \\\\{host}\\SHARE /user:{account}{windows_port}",
        f"macOS: mount_smbfs //{account}@{host}:{port}/SHARE DIR",
    ]

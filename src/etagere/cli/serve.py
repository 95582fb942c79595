"""`etagere serve`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping

from etagere import app
from etagere.cli import Unusable, settings_of
from etagere.cli.connection_string import (
    DEVELOPMENT_STORAGE,
    connection_string,
    endpoint,
    is_development_storage,
)
from etagere.protocol import access_log
from etagere.settings import DEVELOPMENT_ACCOUNT, Settings
from etagere.settings import add_arguments as add_settings

NAME = "serve"
SUMMARY = "run the server"
DESCRIPTION = """\
Runs the server in the foreground until it is told to stop, by ^C or SIGTERM; it then
finishes what it has begun. A second ^C ends it at once. Neither loses what was acknowledged.

When requests are answered, the output gets a line that begins with READY and has the
endpoints. What is for people goes to the standard error: how to connect, then the log.

Each setting has a flag, a variable and a key in the file. A flag counts before a variable,
that before the file. Keys of accounts are better kept out of flags, which others on this
machine may see: in a file, or in the data directory by `etagere account add`.

Ends with 0 when told to stop, 2 if it cannot start, 78 if one of its processes cannot run."""
EXAMPLES = """\
etagere serve                             # on 127.0.0.1, data in ./etagere-data
etagere serve --memory --blob-port 0      # keep nothing, take a free port: for tests
etagere serve --data /srv/etagere --workers 2
etagere serve --config /etc/etagere.toml"""

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)
    parser.add_argument(
        "--accept-clock",
        action="store_true",
        help="start although the times in the data directory are implausible",
    )


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    _log()
    if settings.oauth != "off":
        logger.warning("oauth = %s has no effect yet: bearer tokens are refused", settings.oauth)
    if settings.development_account_anywhere:
        logger.warning(
            "--development-account-anywhere: whoever reaches this server may read, change and "
            "delete all that %s has, and so may every web page in a browser on this machine; its "
            "key is public",
            DEVELOPMENT_ACCOUNT.name,
        )
    supervisor = os.getpid()

    def announce(ports: Mapping[str, int]) -> None:
        print(_introduction(settings, ports, supervisor), file=sys.stderr, flush=True)
        listed = (f"{service}={endpoint(settings, port)}" for service, port in ports.items())
        print("READY", *listed, flush=True)

    try:
        return app.serve(settings, announce, accept_clock=arguments.accept_clock)
    except app.CannotUse as error:
        raise Unusable(str(error)) from error
    except OSError as error:
        raise Unusable(f"the server cannot run: {error}") from error


def _introduction(settings: Settings, ports: Mapping[str, int], pid: int) -> str:
    """What a person wants to know of a server that has just started. The one key that it may show
    is public."""
    name, (key,) = DEVELOPMENT_ACCOUNT.name, DEVELOPMENT_ACCOUNT.keys
    if is_development_storage(settings, ports):
        connect = DEVELOPMENT_STORAGE
    else:
        connect = connection_string(name, key, settings, ports)
    kept = "nowhere: it is thrown away when the server ends"
    rows = [
        *((service, f"{endpoint(settings, port)}/{name}") for service, port in ports.items()),
        ("connect", connect),
        ("data", kept if settings.memory else settings.data.absolute()),
        ("stop", f"^C, or kill {pid}"),
    ]
    return "\n".join(f"  {title:<8} {text}" for title, text in rows)


def _log() -> None:
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter(access_log.LINE))
    access_log.logger.addHandler(lines)
    access_log.logger.propagate = False

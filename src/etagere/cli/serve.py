"""`etagere serve`."""

from __future__ import annotations

import argparse
import logging
import os
import ssl

from etagere import app, settings
from etagere.cli import Unusable
from etagere.engine.ledger import NotALedger, SchemaTooNew
from etagere.protocol import access_log

NAME = "serve"
SUMMARY = "run the server"
DESCRIPTION = """\
Runs the server in the foreground until it is told to stop (SIGTERM or ^C).
Prints a line READY with the endpoints when requests are answered."""
EXAMPLES = """\
etagere serve                           # on 127.0.0.1, data in ./etagere-data
etagere serve --memory                  # keep nothing
etagere serve --data /srv/shelf --workers 2"""

add_arguments = settings.add_arguments


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


def run(arguments: argparse.Namespace) -> int:
    _log()
    try:
        return app.serve(settings.load(vars(arguments), os.environ))
    except (
        settings.BadSetting,
        app.CannotListen,
        app.DirectoryInUse,
        NotALedger,
        SchemaTooNew,
    ) as error:
        raise Unusable(str(error)) from error
    except ssl.SSLError as error:
        raise Unusable(f"the certificate cannot be used: {error}") from error
    except OSError as error:
        raise Unusable(f"{error.filename}: {error.strerror}") from error

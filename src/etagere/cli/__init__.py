"""The command line: one module per command."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from etagere.settings import Settings
from etagere.settings.loading import BadSetting, load, unknown_variables

CLEAN, FINDINGS, FAILED = 0, 1, 2
"""Exit statuses: success; the command found problems; the command could not run."""


class CommandError(Exception):
    """The command cannot run. The message is one line for the user."""


def notify(line: str) -> None:
    """Prints a line for the user to standard error; standard output may go to a program."""
    print(f"etagere: {line}", file=sys.stderr, flush=True)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Returns the settings in effect, which are the same for every command."""
    for warning in unknown_variables(os.environ):
        notify(f"warning: {warning}")
    try:
        return load(vars(arguments), os.environ)
    except BadSetting as error:
        raise CommandError(str(error)) from None


def directory_of(arguments: argparse.Namespace, instead: str) -> Path:
    """Returns the data directory, for commands that clusters do not have; `instead` says what these
    have in place of it."""
    settings = settings_of(arguments)
    if settings.engine is not None:
        raise CommandError(f"this command is not for clusters: {instead}")
    return settings.data

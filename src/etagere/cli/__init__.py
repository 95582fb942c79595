"""The command line: one module per command."""

from __future__ import annotations

import argparse
import os
import sys

from etagere.settings import BadSetting, Settings, load, unknown_variables

CLEAN, FINDINGS, UNUSABLE = 0, 1, 2
"""Exit statuses: all is well; something was found; what was asked cannot be done."""


class Unusable(Exception):
    """What was asked cannot be done; says why, in one line for the person who asked."""


def tell(line: str) -> None:
    """A line for people; output is for programs too."""
    print(f"etagere: {line}", file=sys.stderr, flush=True)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings in effect, the same for every command."""
    for warning in unknown_variables(os.environ):
        tell(f"warning: {warning}")
    try:
        return load(vars(arguments), os.environ)
    except BadSetting as error:
        raise Unusable(str(error)) from None

"""The verbs of a command, such as `etagere account add`."""

from __future__ import annotations

import argparse
import textwrap
from typing import Final, Generic, TypeVar

from etagere.settings.loading import add_arguments as add_settings

_DESCRIPTION_COLUMNS: Final = 92


Act = TypeVar("Act")
"""The functions that run the verbs of a command."""


class Verbs(Generic[Act]):
    """Adds the parsers of verbs to that of their command."""

    def __init__(
        self, parser: argparse.ArgumentParser, command: str, examples: str, *settings: str
    ) -> None:
        """`examples` are those of all verbs, one in each line. All verbs have the settings."""
        self._parsers = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
        self._command = command
        self._examples = examples.splitlines()
        self._settings = settings

    def add(
        self, name: str, act: Act, summary: str, more: str, *settings: str
    ) -> argparse.ArgumentParser:
        """Adds a verb with its first example. `act` becomes the attribute of the arguments by which
        the command runs it. `settings` are further settings."""
        prefix = f"{self._command} {name}"
        example = next(line for line in self._examples if prefix in line)
        added = self._parsers.add_parser(
            name,
            help=summary,
            description=textwrap.fill(f"{summary.capitalize()}. {more}", _DESCRIPTION_COLUMNS),
            epilog=f"example:\n  {example}",
        )
        add_settings(added, *self._settings, *settings)
        added.set_defaults(act=act)
        return added

"""The command `etagere`: finds the module of a subcommand and runs it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from etagere.cli import (
    UNUSABLE,
    Unusable,
    account,
    check,
    clock,
    compact,
    connection_string,
    serve,
    status,
    tell,
    version,
)
from etagere.settings import did_you_mean

_DESCRIPTION = "Étagère: Azure Storage on your own shelf."
_EPILOG = """\
examples:
  etagere serve                         # run a server, data in ./etagere-data
  etagere check --data ./etagere-data   # is everything in this data directory in order?

`etagere COMMAND --help` tells more about a command."""

_INTERRUPTED = 130
_HELP_COLUMNS_MAX = 100


class Command(Protocol):
    """What the module of a subcommand has."""

    @property
    def NAME(self) -> str: ...

    @property
    def SUMMARY(self) -> str:
        """One line, for the list of commands."""
        ...

    @property
    def DESCRIPTION(self) -> str: ...

    @property
    def EXAMPLES(self) -> str: ...

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...

    def run(self, arguments: argparse.Namespace, /) -> int:
        """Does it; returns an exit status."""
        ...


COMMANDS: tuple[Command, ...] = (
    serve,
    status,
    account,
    check,
    clock,
    compact,
    connection_string,
    version,
)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that stays readable on a wide terminal."""

    def __init__(self, prog: str) -> None:
        columns = min(shutil.get_terminal_size().columns, _HELP_COLUMNS_MAX)
        super().__init__(prog, width=columns)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and show nothing that may be a key: that is, of what
    it was given only the names of flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=_Help, allow_abbrev=False)
        # The innermost wins: the one that knows the flags that could have been given.
        self.set_defaults(parser=self)

    def error(self, message: str) -> NoReturn:
        # What the message quotes is what was given.
        told = re.sub(r""" ['"].*""", "", message, flags=re.DOTALL)
        joined = told if told.endswith("?") else f"{told};"
        raise Unusable(f"{joined} `{self.prog} --help` tells more")

    def refuse(self, unknown: list[str]) -> NoReturn:
        """Refuses what is left when all that is known has been taken."""
        for argument in unknown:
            if argument.startswith("-") and argument != "--":
                # A value may follow a short flag without anything between.
                flag = argument.partition("=")[0] if argument.startswith("--") else argument[:2]
                hint = did_you_mean(flag, self._option_string_actions, "--")
                self.error(f"there is no flag {flag}{hint}")
        self.error("there is an argument too many")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Only commands and verbs are chosen from a list."""
        if action.choices is not None and value not in action.choices:
            hint = did_you_mean(value, action.choices)
            raise argparse.ArgumentError(action, f"there is none of that name{hint}")


def main(argv: Sequence[str] | None = None) -> int:
    # Names in a store may have characters that this terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    try:
        arguments, unknown = _parser().parse_known_args(argv)
        if unknown:
            arguments.parser.refuse(unknown)
        status: int = arguments.command.run(arguments)
        sys.stdout.flush()
        return status
    except Unusable as error:
        tell(str(error))
        return UNUSABLE
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INTERRUPTED
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="etagere", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "--version", action="version", version=version.VERSION, help=version.SUMMARY
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        examples = command.EXAMPLES.replace("\n", "\n  ")
        subparser = commands.add_parser(
            command.NAME,
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=f"examples:\n  {examples}",
        )
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)
    return parser

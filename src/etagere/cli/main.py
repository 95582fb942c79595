"""The command `etagere`: finds the module of a subcommand and runs it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol

from etagere.cli import UNUSABLE, Unusable, account, check, connection_string, serve, version

_DESCRIPTION = "Étagère: Azure Storage on your own shelf."
_EPILOG = """\
example:
  etagere check --data ./etagere-data   # is everything in this data directory in order?

`etagere COMMAND --help` tells more about a command."""

_INTERRUPTED = 130


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


COMMANDS: tuple[Command, ...] = (serve, account, check, connection_string, version)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise Unusable(f"{message}; `{self.prog} --help` tells more")


def main(argv: Sequence[str] | None = None) -> int:
    # Names in a store may have characters that this terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    try:
        arguments = _parser().parse_args(argv)
        status: int = arguments.command.run(arguments)
        sys.stdout.flush()
        return status
    except Unusable as error:
        print(f"etagere: {error}", file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INTERRUPTED
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="etagere",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        examples = command.EXAMPLES.replace("\n", "\n  ")
        subparser = commands.add_parser(
            command.NAME,
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=f"examples:\n  {examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)
    return parser

"""The command `etagere`: parses the command line and runs a subcommand."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn, Protocol, cast

from etagere.cli import FAILED, CommandError, notify, version
from etagere.gc_tuning import paused_gc
from etagere.settings.loading import did_you_mean

_DESCRIPTION = "Étagère: an Azure Storage server for your own machine."
_EPILOG = """\
examples:
  etagere serve                         # run a server with its data in ./etagere-data
  etagere check --data ./etagere-data   # verify a data directory

Run `etagere COMMAND --help` for the help of a command."""

_INTERRUPTED = 130
_HELP_COLUMNS_MAX = 100


class Command(Protocol):
    """The interface of the module of a subcommand."""

    @property
    def NAME(self) -> str: ...

    @property
    def SUMMARY(self) -> str:
        """One line for the list of commands."""
        ...

    @property
    def DESCRIPTION(self) -> str: ...

    @property
    def EXAMPLES(self) -> str: ...

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...

    def run(self, arguments: argparse.Namespace, /) -> int:
        """Runs the command and returns its exit status."""
        ...


COMMANDS: tuple[str, ...] = (
    "serve",
    "status",
    "account",
    "backup",
    "restore",
    "cell",
    "certificate",
    "check",
    "clock",
    "compact",
    "connection-string",
    "migrate",
    "node",
    "version",
)
"""The subcommands, in the order of the help. The module of each has the same name."""


def load_command(name: str) -> Command:
    """Imports the module of a subcommand."""
    with paused_gc():
        return cast(Command, import_module(f"etagere.cli.{name.replace('-', '_')}"))


class _Help(argparse.RawDescriptionHelpFormatter):
    """A help formatter with a maximum width."""

    def __init__(self, prog: str) -> None:
        columns = min(shutil.get_terminal_size().columns, _HELP_COLUMNS_MAX)
        super().__init__(prog, width=columns)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and show no argument that may be a key: only the names of
    flags are shown."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=_Help, allow_abbrev=False)
        # The innermost parser wins: it knows the flags of the subcommand.
        self.set_defaults(parser=self)

    def error(self, message: str) -> NoReturn:
        # The quoted part of a message is an argument.
        text = re.sub(r""" ['"].*""", "", message, flags=re.DOTALL)
        joined = text if text.endswith("?") else f"{text};"
        raise CommandError(f"{joined} see `{self.prog} --help`")

    def refuse(self, unknown: list[str]) -> NoReturn:
        """Reports arguments that the parser did not recognize."""
        for argument in unknown:
            if argument.startswith("-") and argument != "--":
                # The value of a short flag may follow it immediately.
                flag = argument.partition("=")[0] if argument.startswith("--") else argument[:2]
                hint = did_you_mean(flag, self._option_string_actions, "--")
                self.error(f"unknown flag {flag}{hint}")
        self.error("too many arguments")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reports an unknown command or verb."""
        if action.choices is not None and value not in action.choices:
            hint = did_you_mean(value, action.choices)
            raise argparse.ArgumentError(action, f"unknown name{hint}")


def _open_standard_streams() -> None:
    """Opens the standard streams that were closed. Otherwise the next file that is opened would be
    taken for standard error, and log lines would be written to it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number
    # The interpreter has set the streams to None.
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def main(argv: Sequence[str] | None = None) -> int:
    _open_standard_streams()
    # Names in a store may contain characters that the terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    try:
        words = sys.argv[1:] if argv is None else argv
        arguments, unknown = build_parser(words).parse_known_args(words)
        if unknown:
            arguments.parser.refuse(unknown)
        status: int = arguments.command.run(arguments)
        sys.stdout.flush()
        return status
    except CommandError as error:
        notify(str(error))
        return FAILED
    except BrokenPipeError:
        # The reader of the output has closed it; the interpreter must not flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INTERRUPTED
    except KeyboardInterrupt:
        return _INTERRUPTED


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Returns the parser for these arguments. If they begin with a command, as they usually do,
    it has no other one: importing them all would double the time that a command takes to start."""
    names = words[:1] if words[:1] and words[0] in COMMANDS else COMMANDS
    parser = _Parser(prog="etagere", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "--version", action="version", version=version.VERSION, help=version.SUMMARY
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in map(load_command, names):
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

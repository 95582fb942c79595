"""Prints the man page etagere(1), made from the argument parser of the command."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

from etagere import __version__
from etagere.cli.main import build_parser
from etagere.settings.loading import CONFIG_VARIABLE

_PARSERS = argparse._SubParsersAction

_INTRODUCTION = """\
Étagère is a server that implements the Azure Storage protocols: Blob, Queue, Table and File
over REST, and File over SMB. Unmodified Azure SDKs and tools work with it.

`etagere serve` runs a server in the foreground. The other commands manage its data directory,
most of them while the server is running."""
_FILES = (
    ("./etagere-data", "the data directory, unless a setting names another one"),
    ("/var/lib/etagere", "the data directory of the systemd service"),
    ("/etc/default/etagere", "environment variables of the systemd service"),
)


def man_page() -> str:
    parser = build_parser()
    lines = [
        f'.TH ETAGERE 1 "" "Étagère {__version__}" "Étagère"',
        ".SH NAME",
        "etagere \\- an Azure Storage server for your own machine",
        ".SH SYNOPSIS",
        ".B etagere",
        ".I COMMAND",
        "[options]",
        ".br",
        ".B etagere",
        "\\fB\\-\\-help\\fR | \\fB\\-\\-version\\fR",
        ".SH DESCRIPTION",
        *_paragraphs(_INTRODUCTION),
        ".SH COMMANDS",
    ]
    for name, help_text in _summaries(parser):
        lines += [".TP", f".B {_escape(name)}", _escape(help_text)]
    for _, command in _subparsers(parser):
        lines += [f'.SH "{_escape(command.prog.upper())}"', *_command(command)]
    lines += [".SH ENVIRONMENT", *_paragraphs(_environment())]
    lines += [".SH FILES"]
    for path, text in _FILES:
        lines += [".TP", f".I {_escape(path)}", _escape(text)]
    return "\n".join(lines) + "\n"


def _environment() -> str:
    return (
        "Every setting of a server can be set by an environment variable that begins with "
        f"ETAGERE_, which its flag names above. {CONFIG_VARIABLE} names a configuration file."
    )


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yields the description, the options, the verbs and the examples of a command."""
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (".PP", f"\\fB{_escape(usage)}\\fR")
    yield from _paragraphs(parser.description or "")
    yield from _options(parser)
    for name, verb in _subparsers(parser):
        yield f'.SS "{_escape(f"{parser.prog} {name}")}"'
        yield from _command(verb)
    examples = (parser.epilog or "").partition("examples:\n")[2]
    if examples:
        yield from ("", ".PP", "Examples:", *_literal(examples))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, _PARSERS | argparse._HelpAction):
            continue
        yield ".TP"
        value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
        if action.option_strings:
            flags = ", ".join(f"\\fB{_escape(flag)}\\fR" for flag in action.option_strings)
            yield flags + (f" \\fI{_escape(value)}\\fR" if value else "")
        else:
            yield f"\\fI{_escape(value)}\\fR"
        yield _escape(action.help or "")


def _subparsers(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, _PARSERS):
            yield from action.choices.items()


def _summaries(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, _PARSERS):
            for choice in action._choices_actions:
                yield choice.dest, choice.help or ""


def _paragraphs(text: str) -> Iterator[str]:
    """Yields paragraphs; indented ones are shown as they are."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("  "):
            yield from _literal(paragraph)
        else:
            yield from (".PP", *map(_escape, paragraph.splitlines()))


def _literal(text: str) -> Iterable[str]:
    return (".PP", ".nf", *map(_escape, text.splitlines()), ".fi")


def _escape(text: str) -> str:
    """Escapes characters that are special to roff; a control character at the beginning too."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


if __name__ == "__main__":
    print(man_page(), end="")

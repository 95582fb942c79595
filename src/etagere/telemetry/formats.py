"""Formats of log lines: text and JSON.

An event is one line, whatever it contains. Characters that are not printable are escaped in both
formats: a client cannot forge a line, and cannot send escape sequences to the terminal of a reader.

Tracebacks show places in the code, but neither values nor the messages of exceptions, which may
contain what a client sent: a signature, a token or a lease ID.
"""

from __future__ import annotations

import logging
import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from etagere.telemetry.context import REQUEST_ID

TEXT_CHARACTERS_MAX: Final = 2_048
"""The longest message or value in a line; the rest is cut off."""
LIST_ITEMS_MAX: Final = 32
FIELDS_ATTRIBUTE: Final = "etagere_fields"
SUPPRESSED_ATTRIBUTE: Final = "etagere_suppressed"
_MODULES_WITH_MESSAGES: Final = ("etagere.", "apsw")
_TRACEBACK: Final = "traceback"
_CHAINED_MAX: Final = 4
_FRAMES_MAX: Final = 24
_QUOTED: Final = frozenset(' "=()')


def fields(**values: object) -> dict[str, object]:
    """Returns the `extra` argument of a call of a logger that adds fields to the line; those that
    are empty are left out. `request_id` replaces the one of the current task."""
    return {FIELDS_ATTRIBUTE: values}


def printable(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """Returns text with a limited length; if it is not printable, in ASCII with escapes."""
    shown = text[:characters_max]
    is_cut = len(text) > characters_max
    if not shown.isprintable():
        # All of it at once: character by character, a long path would take a millisecond.
        escaped = shown.encode("unicode_escape").decode("ascii")
        shown = escaped[:characters_max]
        is_cut = is_cut or len(escaped) > characters_max
    return f"{shown}…" if is_cut else shown


def describe_exception(error: BaseException) -> str:
    """Returns the type of an exception, with its message if that cannot contain what a client
    sent: errors of the operating system and of SQLite, and exceptions of this package."""
    name = type(error).__name__
    if isinstance(error, OSError) or type(error).__module__.startswith(_MODULES_WITH_MESSAGES):
        return f"{name}: {error}"
    return name


def _describe_traceback(error: BaseException) -> str:
    """Returns where an exception was raised, and those that caused it, outermost frame first."""
    described = []
    seen: BaseException | None = error
    for _ in range(_CHAINED_MAX):
        if seen is None:
            break
        frames = traceback.extract_tb(seen.__traceback__)[-_FRAMES_MAX:]
        places = [f"{_shown_path(one.filename)}:{one.lineno} {one.name}" for one in frames]
        described.append(" > ".join([*places, describe_exception(seen)]))
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return ", caused by ".join(described)


def _shown_path(path: str) -> str:
    """Returns a path in the source tree, without the directory of the installation."""
    return path.rpartition(f"{os.sep}src{os.sep}")[2].rpartition("site-packages/")[2]


class LineFormatter(logging.Formatter, ABC):
    """A format of log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.process_name = "supervisor"

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of an event, without a line feed."""
        found = _fields_of(record)
        # The writer knows it from the command that it runs.
        request_id = found.pop("request_id", "") or printable(REQUEST_ID.get())
        return self.encode(record, printable(record.getMessage()), request_id, found)

    @abstractmethod
    def encode(
        self, record: logging.LogRecord, message: str, request_id: str, found: Mapping[str, Any]
    ) -> str:
        """Returns the line of an event whose parts have been escaped."""


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    values: dict[str, Any] = dict(getattr(record, FIELDS_ATTRIBUTE, {}))
    if suppressed := getattr(record, SUPPRESSED_ATTRIBUTE, 0):
        values["suppressed"] = suppressed
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        values[_TRACEBACK] = _describe_traceback(error)
    return {name: _shown(value) for name, value in values.items() if value not in ("", None)}


def _shown(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value[:LIST_ITEMS_MAX]]
    return printable(str(value), 2 * TEXT_CHARACTERS_MAX)


def format_time(seconds: float) -> str:
    """Returns a time in UTC as in RFC 3339, with milliseconds."""
    written = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return written.replace("+00:00", "Z")


class TextFormatter(LineFormatter):
    """Lines for people: time, level, process, logger, request ID in brackets, message, fields.

    Everything that a client may have sent comes after the first colon and space.
    """

    def encode(
        self, record: logging.LogRecord, message: str, request_id: str, found: Mapping[str, Any]
    ) -> str:
        process = f"{text_process_name(self.process_name)}[{os.getpid()}]"
        marked = f" [{request_id}]" if request_id else ""
        tail = "".join(
            f" {name}={_quoted(value)}" for name, value in found.items() if name != _TRACEBACK
        )
        if _TRACEBACK in found:
            # People search for this word.
            tail += f" Traceback: {found[_TRACEBACK]}"
        head = f"{format_time(record.created)} {record.levelname} {process} {record.name}{marked}"
        return f"{head}: {message}{tail}"


def text_process_name(name: str) -> str:
    """Returns the name of a process as one word."""
    return name.replace(" ", "-")


def _quoted(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_quoted, value))
    text = str(value)
    if _QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '\\"') + '"'


class JsonFormatter(LineFormatter):
    """Lines for programs: a JSON object each."""

    def encode(
        self, record: logging.LogRecord, message: str, request_id: str, found: Mapping[str, Any]
    ) -> str:
        event: dict[str, Any] = {
            "time": format_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "process": self.process_name,
            "pid": os.getpid(),
            "message": message,
        }
        if request_id:
            event["request_id"] = request_id
        for name, value in found.items():
            event.setdefault(name, value)
        return msgspec.json.encode(event).decode()


FORMATTERS: Final[Mapping[str, Callable[[], LineFormatter]]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
}
"""The formats by the values of the setting."""

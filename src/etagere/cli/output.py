"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def print_json(result: Mapping[str, object]) -> None:
    """Prints the result of a command as JSON."""
    print(json.dumps(result, ensure_ascii=False, indent=1))


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Prints rows with aligned columns; the first row has the headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(padded).rstrip())

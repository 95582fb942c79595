"""Output of commands for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping


def print_json(result: Mapping[str, object]) -> None:
    """Prints the result of a command as JSON."""
    print(json.dumps(result, ensure_ascii=False, indent=1))

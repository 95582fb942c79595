"""The command line: one module per command."""

from __future__ import annotations

CLEAN, FINDINGS, UNUSABLE = 0, 1, 2
"""Exit statuses: all is well; something was found; what was asked cannot be done."""


class Unusable(Exception):
    """What was asked cannot be done; says why, in one line for the person who asked."""

"""Parametrizes the tests of the table of opens over the engines."""

from __future__ import annotations

from tests.engine.conftest import start

__all__ = ["start"]

"""Gives each test of the table operations every engine that there is."""

from __future__ import annotations

from tests.engine.conftest import start

__all__ = ["start"]

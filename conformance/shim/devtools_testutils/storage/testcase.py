"""Helpers that some tests import from this module."""

from __future__ import annotations

from . import StorageRecordedTestCase


def generate_sas_token() -> str:
    """Returns a token for tests that do not use it."""
    return StorageRecordedTestCase.sas_token

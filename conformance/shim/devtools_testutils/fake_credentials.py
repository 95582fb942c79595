"""Placeholders for secrets in recordings."""

from __future__ import annotations

STORAGE_ACCOUNT_FAKE_KEY = "TkVWRVIgVVNFRA=="

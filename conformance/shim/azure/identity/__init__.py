"""Credentials; a development issuer replaces Microsoft Entra ID."""

from __future__ import annotations

from conformance.shim.devtools_testutils.credentials import DevelopmentCredential


class DefaultAzureCredential(DevelopmentCredential):
    def __init__(self, **_: object) -> None:
        """Ignores its arguments, and connects to no server."""

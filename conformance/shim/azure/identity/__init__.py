"""What asks Microsoft Entra ID for tokens; here a development issuer gives them."""

from __future__ import annotations

from conformance.shim.devtools_testutils.credentials import DevelopmentCredential


class DefaultAzureCredential(DevelopmentCredential):
    def __init__(self, **_: object) -> None:
        """Wherever it is told to ask, it asks nobody."""

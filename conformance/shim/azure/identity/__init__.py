"""Credentials; a development issuer replaces Microsoft Entra ID."""

from __future__ import annotations

from typing import Any

from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from conformance.shim.devtools_testutils.credentials import DevelopmentCredential


class DefaultAzureCredential(DevelopmentCredential):
    """A token of the development issuer, unless sources of tokens are excluded."""

    def __init__(self, **options: object) -> None:
        self._excluded = [name for name in options if name.startswith("exclude_")]

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        if self._excluded:
            raise ClientAuthenticationError(f"no source of tokens is left: {self._excluded}")
        return super().get_token(*scopes, **options)

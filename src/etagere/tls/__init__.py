"""TLS: the context of the server, and certificates for development."""

from __future__ import annotations

from typing import Final

DIRECTORY_NAME: Final = "tls"
"""The directory of a self-signed certificate in the data directory."""

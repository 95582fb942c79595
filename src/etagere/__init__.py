"""Étagère: Azure Storage on your own shelf."""

__version__ = "0.1.0"

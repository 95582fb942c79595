"""Étagère: an Azure Storage server for your own machine."""

__version__ = "0.1.0"

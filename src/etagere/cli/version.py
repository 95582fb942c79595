"""`etagere version`: prints the version."""

from __future__ import annotations

import argparse

import etagere
from etagere.cli import CLEAN

NAME = "version"
SUMMARY = "print the version"
DESCRIPTION = "Prints the version of etagere."
EXAMPLES = "etagere version"
VERSION = f"etagere {etagere.__version__}"


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Adds nothing."""


def run(_arguments: argparse.Namespace) -> int:
    print(VERSION)
    return CLEAN

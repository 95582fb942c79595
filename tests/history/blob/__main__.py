"""The command line of histories of the blob service."""

from __future__ import annotations

import sys

from tests.history.blob.service import SERVICE
from tests.history.command_line import main

if __name__ == "__main__":
    sys.exit(main(SERVICE))

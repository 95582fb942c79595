"""The command line of histories of the file service."""

from __future__ import annotations

import sys

from tests.history.command_line import main
from tests.history.file.service import SERVICE

if __name__ == "__main__":
    sys.exit(main(SERVICE))

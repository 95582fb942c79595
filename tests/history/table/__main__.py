"""The command line of histories of the table service."""

from __future__ import annotations

import sys

from tests.history.command_line import main
from tests.history.table.service import SERVICE

if __name__ == "__main__":
    sys.exit(main(SERVICE))

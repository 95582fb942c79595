"""`python -m etagere`, where the command is not on the path."""

from __future__ import annotations

import sys

from etagere.cli.main import main

sys.exit(main())

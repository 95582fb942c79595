"""The list of all collections, by which ledgers are copied."""

from __future__ import annotations

import subprocess
import sys

from tests.server import environment

_SCRIPT = """
import etagere.operations.all_collections
from etagere.engine.records import COLLECTIONS
declared = set(COLLECTIONS)
import etagere.app
print(sorted(set(COLLECTIONS) - declared), len(declared) > 50)
"""


def test_servers_have_no_other_collections() -> None:
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]

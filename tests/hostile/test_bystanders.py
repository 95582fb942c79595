"""The measurement itself: it detects a stall, and a quiet server passes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.hostile.bystanders import assert_others_do_not_wait, bystanders
from tests.server import Server, served

pytestmark = pytest.mark.alone


def test_a_quiet_server_passes(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        assert_others_do_not_wait(server, lambda: time.sleep(0.5))


@pytest.mark.parametrize("seconds", [0.4])
def test_a_stalled_front_end_is_detected(tmp_path: Path, seconds: float) -> None:
    with served(tmp_path / "data", "--workers", "1") as server:
        with bystanders(server) as others:
            _stall(server, seconds)
        assert others.slowest_seconds > seconds * 0.9


def _stall(server: Server, seconds: float) -> None:
    for pid in server.children():
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in server.children():
        os.kill(pid, signal.SIGCONT)

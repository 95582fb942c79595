"""The limits of front ends."""

from __future__ import annotations

import pytest

from etagere.config import Config
from etagere.front.sizing import config_of_front_end


@pytest.mark.parametrize("relays", [False, True])
def test_connections_leave_descriptors_for_everything_else(relays: bool) -> None:
    config = config_of_front_end(Config(), 2, 1_024, relays=relays)
    descriptors_per_client = 2 if relays else 1
    assert config.connections_max * descriptors_per_client == 512
    assert config.segment_files_max <= 256


def test_connections_are_limited_even_with_many_descriptors() -> None:
    config = config_of_front_end(Config(), 2, 1 << 20, relays=True)
    assert config.connections_max == Config.connections_max

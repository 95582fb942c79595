"""How the resources of the machine are divided between front ends."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

from etagere.config import MIB, Config
from etagere.settings import DEFAULT_WORKERS_MAX

_PAGE_CACHE_BYTES_MIN = 16 * MIB
_MEMORY_BUDGET_BYTES_MIN = 96 * MIB
_CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")


def workers_for_cores() -> int:
    """Returns the default number of front ends. More would only wait for the one writer."""
    return min(len(os.sched_getaffinity(0)), DEFAULT_WORKERS_MAX)


def config_of_front_end(
    config: Config, front_ends: int, descriptors_max: int, *, relays: bool
) -> Config:
    """Returns the limits of each front end. `descriptors_max` is what each process may have;
    `relays` says whether it relays requests to other cells."""
    config = _for_descriptors(descriptors_max, _for_one_of(front_ends, config), relays=relays)
    return _for_memory(_memory_bytes(), config)


def _for_one_of(workers: int, config: Config) -> Config:
    """Divides the page cache between the front ends; the kernel caches the pages that one lacks."""
    cache_bytes = max(_PAGE_CACHE_BYTES_MIN, config.page_cache_bytes // workers)
    return replace(config, page_cache_bytes=cache_bytes)


def _for_descriptors(descriptors_max: int, config: Config, *, relays: bool) -> Config:
    """Divides the descriptors of a front end: half for connections, a quarter for open segments,
    and the rest for the ledger, for new segments, for uploads and downloads, which duplicate those
    of their connections, and for the sources of copies. A relayed request needs a connection to a
    node of another cell besides that of its client."""
    descriptors_per_connection = 2 if relays else 1
    return replace(
        config,
        connections_max=min(
            config.connections_max, descriptors_max // 2 // descriptors_per_connection
        ),
        segment_files_max=min(config.segment_files_max, descriptors_max // 4),
    )


def _for_memory(memory_bytes: int, config: Config) -> Config:
    """Limits bodies in flight to an eighth of a small machine's memory, but not below what the
    longest document needs."""
    budget_bytes = min(config.memory_budget_bytes, memory_bytes // 8)
    return replace(config, memory_budget_bytes=max(_MEMORY_BUDGET_BYTES_MIN, budget_bytes))


def _memory_bytes() -> int:
    """Returns the memory of the machine, or the limit of the container."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no such file, or no limit
        memory_bytes = min(memory_bytes, int(_CGROUP_MEMORY_MAX.read_text("ascii")))
    return memory_bytes

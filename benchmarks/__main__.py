"""python -m benchmarks [names ...] [--rounds 5] [--quick] [--strict] [--json FILE]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks import (
    appends,
    blocks,
    cluster,
    cluster_nodes,
    directory_growth,
    http_blocks,
    http_files,
    http_growth,
    http_large,
    http_requests,
    puts,
    queue_growth,
    queues,
    reads,
    smb,
    space,
    table_growth,
    tables,
    tags,
    uploads,
)
from benchmarks.figures import Measured, Settings, as_json, measure, table

GROUPS = {
    group.name: group
    for group in (
        puts.GROUP,
        reads.GETS,
        reads.GROWTH,
        blocks.GROUP,
        space.GROUP,
        uploads.GROUP,
        http_requests.GROUP,
        http_large.GROUP,
        http_blocks.GROUP,
        http_growth.GROUP,
        appends.GROUP,
        tags.GROUP,
        queues.GROUP,
        queue_growth.GROUP,
        tables.GROUP,
        table_growth.GROUP,
        http_files.GROUP,
        directory_growth.GROUP,
        smb.GROUP,
        cluster.GROUP,
        cluster_nodes.GROUP,
    )
}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    usual = ", ".join(name for name, group in GROUPS.items() if not group.on_request)
    others = ", ".join(name for name, group in GROUPS.items() if group.on_request)
    names_help = f"one of {usual}; only if named, because they take long: {others}"
    parser.add_argument("names", nargs="*", metavar="name", help=names_help)
    parser.add_argument(
        "--rounds", type=int, default=5, help="number of rounds; the median is reported"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test; the figures are meaningless"
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures of every round to a file"
    )
    parser.add_argument(
        # If temporary files are in memory, an fsync costs nothing, and ratios are meaningless.
        "--directory",
        type=Path,
        default=Path("/var/tmp"),
        help="the directory to measure in",
    )
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.names) - set(GROUPS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    return parsed


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _arguments(arguments)
    settings = Settings(max(1, parsed.rounds), parsed.quick, parsed.directory)
    measured: list[Measured] = []
    for name, group in GROUPS.items():
        if name in parsed.names or not (parsed.names or group.on_request):
            # The event loop that front ends use.
            measured += uvloop.run(measure(group, settings, _progress))
    _progress("")
    print(table(measured))
    if parsed.json is not None:
        parsed.json.write_text(as_json(measured), encoding="utf-8")
    missed = any(one.verdict == "MISSED" for one in measured)
    return 1 if parsed.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())

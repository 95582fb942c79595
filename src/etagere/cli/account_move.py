"""`etagere account move`: moves an account to another cell."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from etagere.bodies.transfer import ExtentsDamaged
from etagere.cli import CommandError, notify
from etagere.cli.progress import ProgressBar
from etagere.data_directory import CannotUse
from etagere.jobs.status import size_text
from etagere.model.cells import KEEP_SECONDS
from etagere.node.opening import optional_dependencies
from etagere.settings import Settings
from etagere.settings.loading import BadSetting, load

SETTINGS: Final = ("bodies",)
"""Settings of this verb in addition to those of all verbs."""
SUMMARY: Final = "move an account to another cell"
MORE: Final = (
    "Most of its data is copied while clients use the account. Then the account is read-only for a "
    "short time: writes are answered with 503 (ServerBusy) until the other cell serves it. Keys, "
    "ETags, leases and times do not change. SMB clients are disconnected, and have to connect to a "
    "node of the other cell. If the command is interrupted, the nodes cancel or complete the move; "
    "run the command again to move the account."
)
_KEEP_SECONDS_MAX: Final = 24 * 3600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the account")
    parser.add_argument(
        "--to",
        dest="target",
        metavar="FILE",
        required=True,
        help="the configuration file of a node of the other cell",
    )
    parser.add_argument(
        "--keep",
        metavar="SECONDS",
        default=str(KEEP_SECONDS),
        help="how long this cell keeps the data after the move, for requests that began before it "
        f"(default: {KEEP_SECONDS})",
    )
    parser.add_argument(
        "--cancel",
        action="store_true",
        help="cancel a move that was interrupted, unless the account has moved already",
    )


def act(arguments: argparse.Namespace, settings: Settings) -> str:
    """Moves the account, or cancels its move. Returns what to print."""
    name, keep_seconds = arguments.name, _seconds(arguments.keep)
    try:
        target = load({"config": arguments.target}, {})
    except BadSetting as error:
        raise CommandError(f"--to: {error}") from None
    if settings.account_map is None:
        raise CommandError("set --account-map and --cell: accounts are moved between cells")
    if target.account_map is None:
        raise CommandError("--to: account_map and cell must be set")
    if settings.account_map != target.account_map:
        raise CommandError("--to: account_map differs from that of this cell")
    try:
        with optional_dependencies():
            from etagere.node import account_move  # noqa: PLC0415
        endpoints = account_move.endpoints_of(settings, target)
        if arguments.cancel:
            account_move.cancel_move(name, endpoints)
            return f"account {name} stays in cell {settings.cell}"
        with ProgressBar(sys.stderr) as bar:

            def report(step: str) -> None:
                bar.clear()
                notify(step)

            moved = account_move.move_account(
                name,
                endpoints,
                keep_seconds=keep_seconds,
                report=report,
                copied=lambda done: bar(f"{size_text(done)} copied", 0, 0),
            )
    except CannotUse as error:
        raise CommandError(str(error)) from error
    except ExtentsDamaged as damaged:
        raise CommandError(
            f"{damaged}, and the account was not moved; find the objects with `etagere check`, "
            "delete or replace them, and try again"
        ) from damaged
    result = "the interrupted move was completed"
    if moved.records:
        result = (
            f"{moved.records} records and {size_text(moved.extent_bytes)} copied, read-only for "
            f"{moved.frozen_seconds:.1f} s"
        )
    return f"account {name} is in cell {target.cell}: {result}"


def _seconds(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= _KEEP_SECONDS_MAX:
        return int(text)
    raise CommandError(f"--keep: must be a number of seconds from 0 to {_KEEP_SECONDS_MAX}")

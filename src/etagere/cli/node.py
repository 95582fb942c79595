"""`etagere node`: shows, drains and resumes the nodes of a cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from etagere.cli import CLEAN, CommandError, settings_of
from etagere.cli.output import print_columns, print_json
from etagere.cli.verbs import Verbs
from etagere.coordination.interface import CoordinatorUnavailable
from etagere.data_directory import CannotUse
from etagere.node.opening import optional_dependencies
from etagere.settings import Settings

if TYPE_CHECKING:
    from etagere.coordination.postgres.nodes import Node, NodeRegistry

NAME = "node"
SUMMARY = "list, drain, resume and remove the nodes of a cluster"
DESCRIPTION = """\
Shows the nodes of a cluster, and changes their state. The commands use the database of the
cluster, `--engine`, and may run on any machine that reaches it.

A node is `serving`, `draining`, or `gone` if none of its processes has renewed its membership
for ten seconds. Draining a node prepares it for maintenance: it is not ready any more, so
that load balancers send it no new connections; it finishes requests that are under way and
closes connections after their next response; and it leaves background jobs and the file
service to other nodes. It continues to be drained, over restarts too, until it is resumed."""
EXAMPLES = """\
etagere node list --engine postgresql://db.example/etagere
etagere node list --json                  # for programs; $ETAGERE_ENGINE
etagere node drain node-2                 # before maintenance
etagere node resume node-2
etagere node forget node-3                # a machine that will not come back"""

_HEADINGS: Final = ("NODE", "STATE", "VERSION", "SEEN", "FILES", "ADDRESSES")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs: Verbs[Callable[[argparse.Namespace, NodeRegistry, Settings], None]] = Verbs(
        parser, NAME, EXAMPLES, "engine"
    )
    shown = verbs.add(
        "list", _list, "list the nodes", "Nodes that are gone are listed until forgotten."
    )
    shown.add_argument("--json", action="store_true", help="print the nodes as JSON")
    named = [
        verbs.add(
            "drain",
            lambda arguments, registry, _: registry.drain(arguments.name),
            "drain a node",
            "Its processes notice within a second, or when the database answers them again.",
        ),
        verbs.add(
            "resume",
            lambda arguments, registry, _: registry.resume(arguments.name),
            "let a node serve again",
            "Load balancers find it ready within a few seconds.",
        ),
        verbs.add(
            "forget",
            _forget,
            "remove a node from the list",
            "A node that is running cannot be removed. With --account-map, it is removed from "
            "the account map too.",
            "account_map",
            "cell",
        ),
    ]
    for each in named:
        each.add_argument("name", metavar="NAME", help="the node")


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    address = settings.engine
    if address is None:
        raise CommandError("set --engine to the database of the cluster")
    try:
        with optional_dependencies():
            from etagere.coordination.postgres import nodes  # noqa: PLC0415
    except CannotUse as error:
        raise CommandError(str(error)) from error
    try:
        arguments.act(arguments, nodes.NodeRegistry(address.conninfo), settings)
    except nodes.NoCluster:
        raise CommandError(f"there is no ledger in {address}") from None
    except (nodes.NoSuchNode, nodes.NodeInUse) as error:
        raise CommandError(str(error)) from None
    except CoordinatorUnavailable as error:
        raise CommandError(f"{address} cannot be used: {error}") from None
    return CLEAN


def _list(arguments: argparse.Namespace, registry: NodeRegistry, _settings: Settings) -> None:
    nodes = registry.list()
    if arguments.json:
        print_json({"nodes": [_as_json(node) for node in nodes]})
        return
    if not nodes:
        print("no node has been started")
        return
    print_columns([_HEADINGS, *(_columns(node) for node in nodes)])


def _forget(arguments: argparse.Namespace, registry: NodeRegistry, settings: Settings) -> None:
    """Removes a node. If it is not in the list, an earlier command may have been interrupted before
    it changed the account map."""
    from etagere.coordination.postgres.nodes import NoSuchNode  # noqa: PLC0415

    try:
        registry.forget(arguments.name)
    except NoSuchNode:
        if not _unregister(settings, arguments.name):
            raise
    else:
        _unregister(settings, arguments.name)


def _unregister(settings: Settings, name: str) -> bool:
    """Removes a node from the account map, if there is a map; returns whether it was there."""
    if settings.account_map is None:
        return False
    from etagere.cli.account_map import unregister_node  # noqa: PLC0415

    return unregister_node(settings, name)


def _columns(node: Node) -> tuple[str, ...]:
    addresses = " ".join(f"{service}={place}" for service, place in node.addresses.items())
    files = "yes" if node.serves_files else "-"
    return (node.name, node.state, node.version, _ago(time.time() - node.seen), files, addresses)


def _ago(seconds: float) -> str:
    """Returns how long ago a node was seen. Clocks of machines differ a little."""
    if seconds < 60:
        return f"{max(0, int(seconds))} s ago"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3_600:.0f} h ago"


def _as_json(node: Node) -> dict[str, object]:
    shown: dict[str, object] = msgspec.to_builtins(node)
    return shown

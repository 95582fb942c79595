"""The machines of a cluster in tests: all on the loopback address, or each in a network namespace.

Namespaces can be cut off from the others, like machines whose network fails. They need root. The
process that uses them runs in a network namespace of its own (`in_own_network`), so that nothing
of the machine's network changes, and nothing remains when it has ended.

There are two networks. The machines of a cluster use the first one among themselves; the second one
is for clients, and remains when a machine is cut off.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final, Protocol

from tests.server import eventually

LOOPBACK: Final = "127.0.0.1"
_OWN_NETWORK: Final = "ETAGERE_TESTS_OWN_NETWORK"
GATEWAY: Final = "10.0.0.1"
"""The address of this process in the network of the machines."""
_BRIDGE: Final = "lan"
_CLIENT_BRIDGE: Final = "clients"
_CLIENT_GATEWAY: Final = "10.0.1.1"
_FIRST_HOST: Final = 10
_COMMAND_SECONDS_MAX: Final = 20.0


class Host(Protocol):
    """A machine."""

    address: str
    client_address: str
    """For clients of a service on this machine."""
    command_prefix: tuple[str, ...]
    """The beginning of commands that run on this machine."""

    def cut_off(self) -> None:
        """Drops all packets between this machine and the others, except for clients."""

    def reconnect(self) -> None:
        """Ends what `cut_off` has begun."""

    def isolate(self) -> None:
        """Drops all packets between this machine and others that are isolated too."""

    def end_isolation(self) -> None:
        """Ends what `isolate` has begun."""


class LoopbackHost:
    """This machine, under one of its loopback addresses."""

    command_prefix: tuple[str, ...] = ()

    def __init__(self, address: str = LOOPBACK) -> None:
        self.address = self.client_address = address

    def cut_off(self) -> None:
        raise RuntimeError("only hosts in network namespaces can be cut off")

    reconnect = isolate = end_isolation = cut_off


class NamespaceHost:
    """A network namespace with addresses of its own, which exists until its directory is
    destroyed."""

    def __init__(self, directory: Path, number: int) -> None:
        self.address = f"10.0.0.{_FIRST_HOST + number}"
        self.client_address = f"10.0.1.{_FIRST_HOST + number}"
        self._link = f"host{number}"
        # The namespace exists as long as this process, which belongs to the directory.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"], cwd=directory, start_new_session=True
        )
        namespace = Path(f"/proc/{self._holder.pid}/ns/net")
        own = Path("/proc/self/ns/net").readlink()
        eventually(lambda: namespace.readlink() != own, "the network namespace")
        self._holder.returncode = 0  # the guard of the directory ends it
        self.command_prefix: tuple[str, ...] = ("nsenter", f"--net={namespace}")
        self._connect(self._link, _BRIDGE, "eth0", self.address)
        self._connect(f"client{number}", _CLIENT_BRIDGE, "eth1", self.client_address)
        _run(*self.command_prefix, "ip", "link", "set", "lo", "up")

    def _connect(self, link: str, bridge: str, inner_link: str, address: str) -> None:
        """Connects the namespace to a bridge."""
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", inner_link, "netns",
             str(self._holder.pid))  # fmt: skip
        _run("ip", "link", "set", link, "master", bridge, "up")
        inside = (*self.command_prefix, "ip")
        _run(*inside, "address", "add", f"{address}/24", "dev", inner_link)
        _run(*inside, "link", "set", inner_link, "up")

    def cut_off(self) -> None:
        _run("ip", "link", "set", self._link, "down")

    def reconnect(self) -> None:
        _run("ip", "link", "set", self._link, "up")

    def isolate(self) -> None:
        _run("ip", "link", "set", self._link, "type", "bridge_slave", "isolated", "on")

    def end_isolation(self) -> None:
        _run("ip", "link", "set", self._link, "type", "bridge_slave", "isolated", "off")


def loopback_hosts(count: int) -> list[Host]:
    return [LoopbackHost() for _ in range(count)]


def distinct_loopback_hosts(count: int) -> list[Host]:
    """Returns hosts with addresses of their own, on which each can use the same ports."""
    return [LoopbackHost(f"127.0.0.{_FIRST_HOST + number}") for number in range(count)]


def namespace_hosts(directory: Path, count: int, first: int = 0) -> list[Host]:
    """Returns machines that can be cut off. This process must be in a network of its own."""
    if _OWN_NETWORK not in os.environ:
        raise RuntimeError("network namespaces need `in_own_network`")
    return [NamespaceHost(directory, number) for number in range(first, first + count)]


def can_have_own_network() -> bool:
    """Returns whether this process may create network namespaces."""
    command = ["unshare", "--net", "true"]
    return (
        os.geteuid() == 0
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def in_own_network() -> None:
    """Executes this program again, with the same arguments, in a network namespace of its own.
    Returns there, after it has prepared the network."""
    if _OWN_NETWORK not in os.environ:
        os.environ[_OWN_NETWORK] = "yes"
        os.execvp("unshare", ["unshare", "--net", "--", sys.executable, *sys.orig_argv[1:]])
    _run("ip", "link", "set", "lo", "up")
    for bridge, gateway in ((_BRIDGE, GATEWAY), (_CLIENT_BRIDGE, _CLIENT_GATEWAY)):
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "address", "add", f"{gateway}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=_COMMAND_SECONDS_MAX)

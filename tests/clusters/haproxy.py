"""HAProxy before the nodes of a cluster, for tests: each connection goes to the next node.

Connections are forwarded as they are, since HAProxy would change the case of header names.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.clusters.guard import private_directory, start_daemon
from tests.clusters.ports import free_ports, is_listening
from tests.server import SERVICES, eventually

_SETTINGS: Final = """\
global
    maxconn 2000
    nbthread 1
defaults
    mode tcp
    balance roundrobin
    timeout connect 5s
    timeout client 180s
    timeout server 180s
"""


@contextlib.contextmanager
def balanced(
    directory: Path,
    nodes: Sequence[Mapping[str, str]],
    ports: Mapping[str, int] | None = None,
) -> Iterator[dict[str, str]]:
    """Runs HAProxy before nodes with these endpoints, and yields its own. Its log is in
    `directory`."""
    ports = ports or dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    with private_directory("haproxy") as private:
        lines = [_SETTINGS]
        for service, port in ports.items():
            lines += [f"listen {service}", f"    bind 127.0.0.1:{port}"]
            lines += [
                f"    server node{number} {urlsplit(endpoints[service]).netloc}"
                for number, endpoints in enumerate(nodes)
            ]
        configuration = private / "haproxy.cfg"
        configuration.write_text("\n".join((*lines, "")), "utf-8")
        command = ["haproxy", "-db", "-f", str(configuration)]
        process = start_daemon(command, private, directory / "haproxy.log", may_be_root=True)
        try:
            eventually(lambda: all(map(is_listening, ports.values())), "HAProxy")
            scheme = urlsplit(nodes[0]["blob"]).scheme
            yield {name: f"{scheme}://127.0.0.1:{port}" for name, port in ports.items()}
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)

"""Runs the tests of a suite against a new server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from conformance.sources import CACHE, ROOT, environment, tests_of
from conformance.suites import Suite, accounts
from tests.clusters.ceph import ceph_cluster
from tests.clusters.haproxy import balanced
from tests.clusters.hosts import distinct_loopback_hosts
from tests.clusters.nodes import cluster_nodes
from tests.clusters.ports import free_ports
from tests.clusters.postgresql import postgresql
from tests.clusters.s3 import BUCKET, s3_server
from tests.server import PORTS, SERVICES, Server

_SHIM = ROOT / "conformance/shim"


@dataclass(frozen=True)
class Options:
    """Options of a run."""

    workers: int
    """Front ends of the server."""
    runners: int
    """Test processes."""
    test_seconds_max: float
    seconds_max: float
    selection: Sequence[str] = ()
    """Additional arguments for pytest."""
    keep: bool = False
    """Whether to keep the data of the server."""
    nodes: int = 0
    """The number of nodes of a cluster; 0: one server that is no cluster."""
    bodies: str = "s3"
    """Where the bodies of a cluster are: `s3`, `ceph` or `directory`."""


class Outcome(NamedTuple):
    """The outcome of a test: `passed`, `failed` or `skipped`."""

    node: str
    outcome: str
    error: str = ""


class Ran(NamedTuple):
    """The outcomes, and the problem that ended the run early, if any."""

    outcomes: list[Outcome]
    problem: str = ""


def run(suite: Suite, options: Options) -> Ran:
    """Runs a suite; keeps the logs of the server and of pytest."""
    python = environment()
    tests = tests_of(suite.package, python)
    directory = CACHE / suite.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with _served(suite, options, directory) as variables:
        return _tested(python, tests, directory, variables, options)


@contextlib.contextmanager
def _served(suite: Suite, options: Options, directory: Path) -> Iterator[dict[str, str]]:
    """Starts a server; yields the environment variables for its tests."""
    certificate, key_file = _certificate(directory)
    variables = {
        "CONFORMANCE_LISTS": str(suite.lists),
        "REQUESTS_CA_BUNDLE": str(certificate),
        "SSL_CERT_FILE": str(certificate),
    }
    if suite.sleep_seconds_max is not None:
        variables["CONFORMANCE_SLEEP_SECONDS_MAX"] = str(suite.sleep_seconds_max)
    flags = ["--workers", str(options.workers), "--oauth", "development", *suite.flags]
    flags += ["--tls-cert", str(certificate), "--tls-key", str(key_file)]
    for account in accounts(suite, options.runners):
        flags += ["--account", f"{account.name}:{account.key}"]
        if account.premium_files:
            flags += ["--premium-file-account", account.name]
        variables[f"{account.prefix}_ACCOUNT_NAME"] = account.name
        variables[f"{account.prefix}_ACCOUNT_KEY"] = account.key
    start = _started_cluster if options.nodes else _started_server
    with start(directory, tuple(flags), options) as endpoints:
        named = {f"CONFORMANCE_{name.upper()}": url for name, url in endpoints.items()}
        yield {**variables, **named}


@contextlib.contextmanager
def _started_server(
    directory: Path, flags: tuple[str, ...], options: Options
) -> Iterator[dict[str, str]]:
    """Runs a server with its data in a directory, and yields its endpoints."""
    server = Server(directory / "data", *flags)
    server.start()
    try:
        yield server.endpoints
    finally:
        server.kill()
        if not options.keep:
            shutil.rmtree(server.directory)


@contextlib.contextmanager
def _started_cluster(
    directory: Path, flags: tuple[str, ...], options: Options
) -> Iterator[dict[str, str]]:
    """Runs the nodes of a cluster behind HAProxy, and yields its endpoints.

    HAProxy has the ports of the nodes, as in production: a node recognizes URLs of its own services
    by their ports, if they are sources of copies.
    """
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(postgresql(directory))
        variables: dict[str, str] = {}
        bodies = str(directory / "bodies")
        if options.bodies == "s3":
            store = stack.enter_context(s3_server(directory))
            variables, bodies = store.environment, f"s3://{BUCKET}/bodies"
        elif options.bodies == "ceph":
            bodies = stack.enter_context(ceph_cluster()).url("bodies")
        nodes = stack.enter_context(
            cluster_nodes(
                directory,
                options.nodes,
                ledger.dsn,
                bodies,
                flags=flags,
                hosts=distinct_loopback_hosts(options.nodes),
                ports=ports,
                variables=variables,
            )
        )
        endpoints = [node.endpoints for node in nodes]
        yield stack.enter_context(
            balanced(directory, endpoints, {service: ports[service] for service in SERVICES})
        )


def _certificate(directory: Path) -> tuple[Path, Path]:
    """Creates a certificate: the SDKs send bearer tokens over TLS only."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run([*command.split(), *subject, *files], check=True, capture_output=True)
    return certificate, key


def _tested(
    python: Path, tests: Path, directory: Path, variables: dict[str, str], options: Options
) -> Ran:
    outcomes = directory / "outcomes.jsonl"
    outcomes.touch()
    command = [str(python), "-m", "pytest", "-c", str(_SHIM / "pytest.ini")]
    command += ["--rootdir", str(tests)]
    command += ["--numprocesses", str(options.runners), "--dist", "worksteal"]
    # A restarted process would have no accounts.
    command += ["--max-worker-restart", "0"]
    command += ["--timeout", str(options.test_seconds_max), *options.selection]
    ours = {
        "CONFORMANCE_OUTCOMES": str(outcomes),
        "PYTHONPATH": f"{_SHIM}{os.pathsep}{ROOT}",
    }
    with (directory / "pytest.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=tests,
            env={**os.environ, **variables, **ours},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        problem = _wait(process, outcomes, options.seconds_max)
    finally:
        # Including processes that a test has left behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return Ran(read(outcomes), problem and f"{problem}; see {directory / 'pytest.log'}")


def _wait(process: subprocess.Popen[bytes], outcomes: Path, seconds_max: float) -> str:
    deadline = time.monotonic() + seconds_max
    while process.poll() is None:
        if time.monotonic() > deadline:
            return f"the tests were stopped after {seconds_max:.0f} seconds"
        time.sleep(0.5)
        if sys.stderr.isatty():
            count = outcomes.read_bytes().count(b"\n")
            print(f"\r\x1b[K{count} tests", end="\r", file=sys.stderr, flush=True)
    # 0 and 1 tell whether tests failed; the lists decide about that.
    return "" if process.returncode in (0, 1) else f"pytest exited with status {process.returncode}"


def read(outcomes: Path) -> list[Outcome]:
    """Reads one outcome per test; a failure in the teardown is a failure of the test."""
    by_node: dict[str, Outcome] = {}
    for line in outcomes.read_text("utf-8").splitlines():
        outcome = Outcome(**json.loads(line))
        if outcome.outcome == "failed" or outcome.node not in by_node:
            by_node[outcome.node] = outcome
    return list(by_node.values())

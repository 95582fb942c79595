"""A pytest plugin that runs the tests and writes their outcomes to a file."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import json
import os
import socket
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from conformance.lists import Lists

OUTCOMES = "CONFORMANCE_OUTCOMES"
LISTS = "CONFORMANCE_LISTS"
SLEEP_SECONDS_MAX = "CONFORMANCE_SLEEP_SECONDS_MAX"

_TELLING = ("x-ms-blob-type", "x-ms-lease-action")
"""Headers that identify the operation."""

_resolve = socket.getaddrinfo
_sleep = time.sleep


def _resolve_here(host: Any, *arguments: Any, **options: Any) -> Any:
    """Resolves this machine only: a test that uses a host in Azure fails at once."""
    name = host.decode() if isinstance(host, bytes) else host or "localhost"
    try:
        here = ipaddress.ip_address(name).is_loopback
    except ValueError:
        here = name == "localhost"
    if not here:
        raise socket.gaierror(socket.EAI_NONAME, f"{name} is not on this machine")
    return _resolve(host, *arguments, **options)


def _sleep_briefly(seconds: Any) -> None:
    _sleep(min(seconds, float(os.environ[SLEEP_SECONDS_MAX])))


def pytest_configure() -> None:
    socket.getaddrinfo = _resolve_here
    if SLEEP_SECONDS_MAX in os.environ:
        time.sleep = _sleep_briefly


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """The recording proxy, which is not used."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lists = Lists.load(Path(os.environ[LISTS]))
    for item in items:
        if reason := lists.why_never(item.nodeid):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        item.user_properties.append(("error", describe(call.excinfo.value)))
        report.user_properties = item.user_properties
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        error = dict(report.user_properties).get("error", "")
        _tell({"node": report.nodeid, "outcome": report.outcome, "error": error})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Reports a file that cannot be imported, which would go unnoticed otherwise."""
    if report.failed:
        error = report.longreprtext.strip().rpartition("\n")[2]
        _tell({"node": f"{report.nodeid}::test_*", "outcome": report.outcome, "error": error})


def _tell(outcome: dict[str, object]) -> None:
    """Writes an outcome, in the controller of xdist only, which gets all outcomes."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    # One line at a time, so that an interrupted run has outcomes too.
    with Path(os.environ[OUTCOMES]).open("a", encoding="utf-8") as outcomes:
        print(json.dumps(outcome), file=outcomes)


def describe(error: BaseException) -> str:
    """Describes an error in one line, which is the same for failures of the same kind."""
    response = getattr(error, "response", None)
    if response is None:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0]}"[:160]
    request = response.request
    query = parse_qs(urlsplit(request.url).query)
    asked = [f"{name}={query[name][0]}" for name in ("restype", "comp") if name in query]
    asked += [f"{name}: {request.headers[name]}" for name in _TELLING if name in request.headers]
    code = getattr(error, "error_code", None)
    told = f"{response.status_code} {getattr(code, 'value', code)} {request.method}"
    # The header or parameter that the error names.
    details = getattr(error, "additional_info", None) or {}
    about = [details[name] for name in ("headername", "queryparametername") if name in details]
    return " ".join([told, *asked, *about])

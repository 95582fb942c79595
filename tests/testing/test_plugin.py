"""The plugin of pytest, in runs of pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.server import environment

# The module is named, because the environment may have been installed before the plugin existed.
PYTEST = (sys.executable, "-m", "pytest", "-p", "etagere.testing.plugin", "-p", "no:cacheprovider")

USES = '''
"""One test for each fixture. The tests of a pair would fail if they shared an account."""

import asyncio
import os

import pytest
from azure.storage.blob.aio import BlobServiceClient

SEEN = set()


@pytest.mark.parametrize("run", [1, 2])
def test_clients(run, etagere_account, blob_service, queue_service, table_service, share_service):
    blob_service.create_container("things").upload_blob("one", b"1")
    queue_service.create_queue("things").send_message("1")
    table_service.create_table("things").create_entity({"PartitionKey": "1", "RowKey": "1"})
    share_service.create_share("things").get_file_client("one").upload_file(b"1")
    assert etagere_account.name not in SEEN
    SEEN.add(etagere_account.name)


def test_async_client(etagere_connection_string):
    async def run():
        async with BlobServiceClient.from_connection_string(etagere_connection_string) as service:
            await service.create_container("things")
            return [found.name async for found in service.list_containers()]

    assert asyncio.run(run()) == ["things"]


def test_environment(etagere_environment):
    assert os.environ["AZURE_STORAGE_CONNECTION_STRING"] == etagere_environment.connection_string


def test_environment_is_restored():
    assert "AZURE_STORAGE_CONNECTION_STRING" not in os.environ


def test_settings(etagere_server):
    assert "smb" not in etagere_server.endpoints

'''

FAILS = """
from azure.core.exceptions import ResourceNotFoundError


def test_fails(blob_service):
    blob_service.get_container_client("missing").delete_container()


def test_fails_without_server():
    assert False
"""

CONFIGURATION = """
[pytest]
filterwarnings = error
etagere_settings =
    smb = false
    workers=1
"""


def run_pytest(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    variables = {**environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    variables.pop("PYTEST_XDIST_WORKER", None)
    variables.pop("AZURE_STORAGE_CONNECTION_STRING", None)
    return subprocess.run(
        [*PYTEST, *flags],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / ("pytest.ini" if name == "configuration" else f"{name}.py")
        path.write_text(textwrap.dedent(text), "utf-8")


def test_fixtures(tmp_path: Path) -> None:
    """In two workers of pytest-xdist; `test_wheel` uses the fixtures without it."""
    write(tmp_path, configuration=CONFIGURATION, test_uses=USES)
    shown = run_pytest(tmp_path, "-p", "xdist", "-n", "2")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "6 passed" in shown.stdout


def test_reports_of_failures_contain_the_log(tmp_path: Path) -> None:
    write(tmp_path, configuration=CONFIGURATION, test_fails=FAILS)
    shown = run_pytest(tmp_path)
    assert "2 failed" in shown.stdout
    assert shown.stdout.count("- etagere log -") == 1
    log = shown.stdout.partition("- etagere log -")[2]
    assert "404" in log
    assert "/missing" in log


def test_wrong_settings(tmp_path: Path) -> None:
    uses = "def test_uses(etagere_server): pass"
    for setting, message in (
        ("smbb = false", "'smbb' is not a setting; did you mean smb?"),
        ("smb", "'smb' is not NAME=VALUE"),
    ):
        text = f"[pytest]\netagere_settings = {setting}\n"
        write(tmp_path, configuration=text, test_uses=uses)
        assert message in run_pytest(tmp_path).stdout


def test_projects_that_do_not_use_it_pay_nothing() -> None:
    """The plugin is imported in every run of pytest."""
    program = (
        "import sys, pytest; before = set(sys.modules); import etagere.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == ["etagere", "etagere.testing", "etagere.testing.plugin"]


def test_the_message_without_the_sdks(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['azure'] = None\n"
        "from etagere.testing import Account\n"
        "Account('mine', 'a2V5', {'blob': 'http://127.0.0.1:1'}).blob_service()\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install azure-storage-blob" in shown.stderr
    assert "pip install etagere[pytest]" in shown.stderr

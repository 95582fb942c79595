"""The benchmarks run and report their figures. Speed is not checked here."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from benchmarks import cpu_quota, tables
from benchmarks.__main__ import GROUPS, main
from benchmarks.figures import Figure, Measured, table
from benchmarks.load import Load, account_sas, development_sas, run_all, run_each, script
from benchmarks.queues import create, delete_load, get_load, put_load, taken_in
from benchmarks.services import QUEUE, TABLE, etagere
from etagere.auth import sas_parsing, sas_signature
from etagere.auth.request import Address, RestRequest
from etagere.auth.shared_key import AccountKey
from etagere.errors import Refusal


def test_every_figure_is_measured_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "figures.json"
    where = ["--directory", str(tmp_path), "--json", str(written)]
    assert main(["--rounds", "1", "--quick", *where]) == 0
    output = capsys.readouterr().out
    rows = json.loads(written.read_text(encoding="utf-8"))
    keys = [row["key"] for row in rows]
    groups = [group for group in GROUPS.values() if not group.on_request]
    figures = [figure for group in groups for figure in group.figures]
    figures = [figure for figure in figures if figure.key in keys or not _needs_others(figure)]
    assert all(figure.text in output for figure in figures)
    assert keys == [figure.key for figure in figures]
    assert not any(_of_others(figure) for figure in figures if _is_over_http(figure))
    assert all(row["values"] for row in rows)
    assert list(tmp_path.iterdir()) == [written]


def _of_others(figure: Figure) -> bool:
    """Figures that need other servers, which take long."""
    return "azurite" in figure.key or "nginx" in figure.key or figure.key.endswith("_ratio")


def _is_over_http(figure: Figure) -> bool:
    return figure.key.startswith(("appends", "http", "queue", "table"))


def _needs_others(figure: Figure) -> bool:
    by_tools = (
        "appends.spread",
        "appends.one",
        "http.put",
        "http.get",
        "queues.put",
        "tables.get",
        "tables.insert",
        "tables.group",
        "smb.",  # by programs of Samba
    )
    return figure.key.startswith(by_tools) or (_is_over_http(figure) and _of_others(figure))


def test_only_named_figures_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gets", "--rounds", "2", "--quick", "--directory", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "a read of one record" in output
    assert "conditional puts" not in output
    with pytest.raises(SystemExit):
        main(["no such benchmark"])
    assert "no such benchmark" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "progress"),
    [
        ("http_growth", "400 of 400 blobs"),
        ("queue_growth", "340 of 400 are hidden"),
        ("table_growth", "2,400 of 2,400"),
        ("directory_growth", "400 of 400"),
    ],
)
def test_slow_figures_are_measured_when_named(
    name: str, progress: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growth = GROUPS[name]
    assert growth.on_request
    written = tmp_path / "figures.json"
    where = ["--directory", str(tmp_path), "--json", str(written)]
    assert main([growth.name, "--rounds", "1", "--quick", *where]) == 0
    assert progress in capsys.readouterr().err
    rows = json.loads(written.read_text(encoding="utf-8"))
    assert [row["key"] for row in rows] == [figure.key for figure in growth.figures]
    assert all(row["values"] for row in rows)
    assert list(tmp_path.iterdir()) == [written]


@pytest.mark.long  # starts two databases and two servers
def test_a_node_of_a_cluster_is_measured_when_named(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    where = ["--directory", str(tmp_path), "--json", str(written)]
    assert main(["cluster", "--rounds", "1", "--quick", *where]) == 0
    rows = json.loads(written.read_text(encoding="utf-8"))
    figures = [figure for figure in GROUPS["cluster"].figures if not _of_others(figure)]
    assert [row["key"] for row in rows] == [figure.key for figure in figures]
    assert list(tmp_path.iterdir()) == [written]


@pytest.mark.long
@pytest.mark.skipif(
    not cpu_quota.is_available() or shutil.which("wrk") is None,
    reason="needs root, control groups and wrk",
)
def test_nodes_with_limited_cpu_time_are_measured_when_named(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    where = ["--directory", str(tmp_path), "--json", str(written)]
    assert main(["cluster_nodes", "--rounds", "1", "--quick", *where]) == 0
    rows = json.loads(written.read_text(encoding="utf-8"))
    assert [row["key"] for row in rows] == [each.key for each in GROUPS["cluster_nodes"].figures]
    assert list(tmp_path.iterdir()) == [written]


def test_a_target_is_met_or_missed() -> None:
    at_least = Figure("a", "much", " MiB/s", at_least=2)
    at_most = Figure("b", "little", " ms", at_most=2)
    for figure, value, verdict in [
        (at_least, 2.0, "ok"),
        (at_least, 1.9, "MISSED"),
        (at_most, 2.0, "ok"),
        (at_most, 2.1, "MISSED"),
        (Figure("c", "whatever"), 5.0, ""),
    ]:
        assert Measured(figure, (0.0, value, 10_000.0)).verdict == verdict


def test_the_table_is_aligned() -> None:
    rows = [
        Measured(Figure("a", "a long description", "/s", at_least=10_000), (12_345.6,)),
        Measured(Figure("b", "short", " ms"), (0.5,)),
    ]
    assert table(rows).splitlines() == [
        "figure              measured     target",
        "-------------------------------------------",
        "a long description  12,346/s  ≥ 10000/s  ok",
        "short                0.50 ms",
    ]


@pytest.mark.parametrize("service", ["blob", "queue", "table"])
def test_an_account_token_is_accepted(service: str) -> None:
    query = account_sas(b"key", "account", "2099-01-01T00:00:00Z")
    signed = RestRequest(service, "GET", Address("account", False, True), "/account/c", query, {})
    token = sas_parsing.parse(signed)
    assert not isinstance(token, Refusal)
    assert sas_signature.verify(token, [AccountKey(b"key")]) is None
    assert sas_signature.verify(token, [AccountKey(b"another")]) is not None


def test_the_script_of_a_load() -> None:
    lua = script(Load("PUT", "/a/{}?q", 10, ("x: y",), 3), "host:1", 7)
    assert 'local before, after = "PUT /a/", "?q HTTP/1.1\\r\\n' in lua
    assert "x: y\\r\\nContent-Length: 3\\r\\n\\r\\n" in lua
    assert "math.random(0, 9)" in lua
    assert 'local body = "xxx"' in lua
    assert 'return before .. "" .. after' in script(Load("GET", "/a"), "host:1", 7)
    enveloped = script(Load("POST", "/a", body_bytes=3, envelope="<b>{}</b>"), "host:1", 7)
    assert "Content-Length: 10\\r\\n\\r\\n" in enveloped
    assert 'local body = "<b>xxx</b>"' in enveloped


def test_placeholders_in_documents_are_numbered() -> None:
    """The length is that of the sent document: numbers are padded to the digits of the greatest."""
    lua = script(Load("POST", "/a", 10_000, document="a={}, b={}"), "host:1", 7)
    assert 'local body = "a={}, b={}"' in lua
    assert "Content-Length: 14\\r\\n\\r\\n" in lua
    assert 'return before .. "" .. after .. body:gsub("{}", ' in lua
    assert 'string.format("%04d", math.random(0, 9999))' in lua


def test_all_pages_of_a_scan_are_followed(tmp_path: Path) -> None:
    """They count as one request and contain all results."""
    sas = development_sas()
    with contextlib.ExitStack() as ends:
        service = etagere(tmp_path, ends, TABLE)
        tables.create(service, "Table", sas)
        groups = [
            tables.group_load("Table", sas, [tables.entity(str(n), str(row)) for row in range(100)])
            for n in range(12)
        ]
        assert run_all(service, groups).requests == 12
        scan = tables.Scan(service, tables.query_load("Table", sas, "PartitionKey ne '3'"))
        assert scan.run().requests == 1
        assert scan.found == 1_100


def test_a_request_may_depend_on_a_response(tmp_path: Path) -> None:
    """Both together count as one, and both are sent."""
    sas = development_sas()
    with contextlib.ExitStack() as ends:
        service = etagere(tmp_path, ends, QUEUE)
        create(service, "queue", sas)
        run_each(service, put_load("queue", sas), [""] * 20)
        answers: list[bytes] = []

        def follow(answer: bytes) -> bytes | None:
            answers.append(answer)
            if answer.startswith(b"HTTP/1.1 204 "):
                return None
            target = delete_load("queue", sas).target.format(taken_in(answer))
            return f"DELETE {target} HTTP/1.1\r\nHost: {service.address}\r\n\r\n".encode()

        done = run_each(service, get_load("queue", sas), [""] * 20, follow)
        assert done.requests == 20
        assert len(answers) == 40
        with pytest.raises(RuntimeError, match="no message was taken"):
            run_each(service, get_load("queue", sas), [""], follow)

"""The benchmarks run and tell what they measured. How fast anything is, is not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import GROUPS, main
from benchmarks.figures import Figure, Measured, table


def test_every_figure_is_measured_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "figures.json"
    where = ["--directory", str(tmp_path), "--json", str(written)]
    assert main(["--rounds", "1", "--quick", *where]) == 0
    told = capsys.readouterr().out
    figures = [figure for group in GROUPS.values() for figure in group.figures]
    assert all(figure.text in told for figure in figures)
    rows = json.loads(written.read_text(encoding="utf-8"))
    assert [row["key"] for row in rows] == [figure.key for figure in figures]
    assert all(row["values"] for row in rows)
    assert list(tmp_path.iterdir()) == [written]


def test_only_what_is_named_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gets", "--rounds", "2", "--quick", "--directory", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "a read of one record" in told
    assert "conditional puts" not in told
    with pytest.raises(SystemExit):
        main(["no such benchmark"])
    assert "no such benchmark" in capsys.readouterr().err


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

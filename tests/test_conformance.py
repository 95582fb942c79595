"""The expectation lists of the conformance suites, and the verdicts that follow from them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.lists import Lists, Name, parse
from conformance.report import as_list, judge, table
from conformance.run import Outcome, read
from conformance.shim.devtools_testutils import AzureRecordedTestCase, PowerShellPreparer
from conformance.shim.devtools_testutils.storage import StorageRecordedTestCase
from conformance.sources import ROOT, find_pin
from conformance.suites import SUITES, Suite, accounts

LISTS = Lists(
    never=parse('[[group]]\nreason = "Azure only"\ntests = ["ors::*"]'),
    missing=parse(
        """
        [[group]]
        reason = "append blobs"
        tests = ["append_blob::*", "container::list[append]"]
        [[group]]
        reason = "copies"
        async_tests = ["container::copy"]
        """
    ),
)


def node(name: str) -> str:
    file, _, test = name.partition("::")
    return f"test_{file}.py::TestStorage::test_{test}"


def surprises(name: str, outcome: str) -> list[str]:
    return judge([Outcome(node(name), outcome, "an error")], LISTS, whole=False).surprises


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("container::create", "passed"),
        ("append_blob::create", "failed"),
        ("append_blob::create", "skipped"),
        ("container_async::copy_async", "failed"),
        ("container::copy", "passed"),
        ("ors::source", "skipped"),
    ],
)
def test_listed_outcomes_are_expected(name: str, outcome: str) -> None:
    assert surprises(name, outcome) == []


@pytest.mark.parametrize(
    ("name", "outcome", "expected"),
    [
        ("container::create", "failed", "failed, but is not listed: an error"),
        ("container::create", "skipped", "was skipped, but is not listed"),
        ("append_blob::create", "passed", "passed, but is listed as missing: append blobs"),
        ("container::copy", "failed", "failed, but is not listed"),
        ("container_async::copy", "passed", "passed, but is listed as missing: copies"),
    ],
)
def test_unlisted_outcomes_are_unexpected(name: str, outcome: str, expected: str) -> None:
    (surprise,) = surprises(name, outcome)
    assert surprise.startswith(f"{node(name)} {expected}")


def test_inapplicable_tests_cannot_be_missing() -> None:
    both = Lists(never=LISTS.never, missing=LISTS.never)
    verdict = judge([Outcome(node("ors::source"), "skipped")], both, whole=True)
    assert (verdict.surprises, verdict.missing) == ([], {})


def test_lists_name_only_existing_tests() -> None:
    outcomes = [
        Outcome(node("append_blob::create"), "failed"),
        Outcome(node("container_async::copy"), "failed"),
    ]
    assert judge(outcomes, LISTS, whole=False).surprises == []
    assert judge(outcomes, LISTS, whole=True).surprises == [
        "no test matches ors::*",
        "no test matches container::list[append]",
    ]


def test_the_table_counts_by_file() -> None:
    outcomes = [
        Outcome(node("container::create"), "passed"),
        Outcome(node("container::list[append]"), "failed"),
        Outcome(node("ors::source"), "skipped"),
    ]
    lines = [line.split() for line in table(judge(outcomes, LISTS, whole=False)).splitlines()]
    assert lines == [
        ["passed", "applicable", "missing", "never"],
        ["test_container.py", "1", "2", "1", "0"],
        ["test_ors.py", "0", "0", "0", "1"],
        ["all", "1", "2", "1", "1"],
    ]


def test_names() -> None:
    assert Name.of("test_a_async.py::TestA::test_b_async[c-d]") == Name("a::b[c-d]", True)
    assert Name.of("test_a.py::test_b_async_c") == Name("a::b_async_c", False)
    assert Name.of("avro/test_avro.py::AvroTests::test_b") == Name("avro::b", False)


def test_stars_are_wildcards_and_brackets_are_literal() -> None:
    (group,) = parse('[[group]]\nreason = "r"\ntests = ["a::*_b[*]"]')
    assert group.holds(Name("a::x_b[1]", False))
    assert not group.holds(Name("a::x_b", True))
    assert not group.holds(Name("c::a::x_b[1]", True))


def test_misspelt_keys_are_reported() -> None:
    with pytest.raises(ValueError, match="unknown keys in a group: test"):
        parse('[[group]]\nreason = "r"\ntest = ["a::b"]')


def test_failures_round_trip_as_a_list() -> None:
    failed = [node("a::b"), node("a_async::b"), node("a::c[1]"), node("d_async::e")]
    outcomes = [Outcome(one, "failed", f"400 {one[5]}") for one in failed]
    written = Lists((), parse(as_list([*outcomes, Outcome(node("a::f"), "passed")])))
    assert judge(outcomes, written, whole=True).surprises == []
    assert [group.reason for group in written.missing] == ["400 a", "400 d"]


def test_a_failing_teardown_fails_the_test(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    passed, failed = Outcome("a", "passed"), Outcome("a", "failed", "at the end")
    path.write_text("".join(f"{json.dumps(one._asdict())}\n" for one in (passed, failed)), "utf-8")
    assert read(path) == [failed]


@pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))
def test_each_suite_has_its_lists_and_pins(suite: Suite) -> None:
    lists = Lists.load(suite.lists)
    assert all(group.reason and group.patterns for group in (*lists.never, *lists.missing))
    locks = [ROOT / "requirements/dev.txt", ROOT / "conformance/requirements.txt"]
    dev, tests = (find_pin(lock.read_text("utf-8"), suite.package) for lock in locks)
    assert dev == tests, "`make lock` writes both"
    assert dev.hashes


@pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))
def test_each_runner_and_each_lone_test_has_its_own_accounts(suite: Suite) -> None:
    names = [account.name for account in accounts(suite, 3)]
    owners = 3 + 2 * len(suite.lone_tests)
    assert len(set(names)) == owners * len(suite.accounts)
    assert all(3 <= len(name) <= 24 and name.isalnum() for name in names)


def test_a_connection_string_names_the_address_of_each_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, name in enumerate(SUITES, 1):
        monkeypatch.setenv(f"CONFORMANCE_{name.upper()}", f"https://127.0.0.1:{number}")
    parts = StorageRecordedTestCase().connection_string("shelf", "a2V5").split(";")
    assert parts == [
        "AccountName=shelf",
        "AccountKey=a2V5",
        "BlobEndpoint=https://127.0.0.1:1/shelf",
        "QueueEndpoint=https://127.0.0.1:2/shelf",
        "FileEndpoint=https://127.0.0.1:4/shelf",
    ]


def test_a_table_is_addressed_through_the_path_whatever_class_comes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class TableTestCase:
        def account_url(self, account: str, kind: str) -> str:
            return f"https://{account}.{kind}.core.windows.net"

    class TestTable(AzureRecordedTestCase, TableTestCase):
        """Defined like those of the suites."""

    monkeypatch.setenv("CONFORMANCE_TABLE", "https://127.0.0.1:1")
    assert TestTable().account_url("shelf", "table") == "https://127.0.0.1:1/shelf"


def test_a_test_is_given_the_account_of_its_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    both = list(accounts(SUITES["table"], 2))
    for prefix, name, key, _ in both:
        monkeypatch.setenv(f"{prefix}_ACCOUNT_NAME", name)
        monkeypatch.setenv(f"{prefix}_ACCOUNT_KEY", key)
    given = []

    @PowerShellPreparer(
        "tables",
        tables_storage_account_name="fake",
        tables_primary_storage_account_key="fake",
    )
    def test(*, tables_storage_account_name: str, tables_primary_storage_account_key: str) -> None:
        given.append((tables_storage_account_name, tables_primary_storage_account_key))

    for runner in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", runner)
        test()
    assert given == [(name, key) for _, name, key, _ in both]


def test_a_lone_test_is_given_an_account_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = replace(SUITES["queue"], lone_tests=("queue::lone",))
    for account in accounts(suite, 1):
        monkeypatch.setenv(f"{account.prefix}_ACCOUNT_NAME", account.name)
    given = []

    @PowerShellPreparer("storage", storage_account_name="fake")
    def test(*, storage_account_name: str) -> None:
        given.append(storage_account_name)

    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    for node in (
        "test_queue.py::TestQueue::test_lone (call)",
        "test_queue_async.py::TestQueue::test_lone (call)",
        "test_queue.py::TestQueue::test_other (call)",
    ):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", node)
        test()
    assert given == ["storage1", "storage2", "storage0"]

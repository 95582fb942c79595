"""Settings: precedence of sources, errors with their location, and secrecy of keys."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import traceback
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etagere.settings import SETTINGS, Setting, Settings
from etagere.settings.addresses import BodiesAddress, DatabaseAddress, NodeAddress
from etagere.settings.loading import BadSetting, add_arguments, load, unknown_variables
from etagere.settings.oauth import KeySetSource, Role, RoleAssignment
from etagere.settings.values import (
    DEVELOPMENT_ACCOUNT,
    ConfiguredAccount,
    CopySource,
    decode_key,
    parse_account,
)

KEY = base64.b64encode(b"a secret of the account").decode()
KEY2 = base64.b64encode(b"another of its secrets!").decode()
BY_NAME = {setting.name: setting for setting in SETTINGS}
ENGINE = "postgresql://me:a-password@db1:5432,db2/etagere?sslpassword=another-password"
KEYWORDS = "host=db1,db2 dbname=etagere password='a password'"
FLAG, VARIABLE, FILE = "flag", "variable", "file"
NO_BODIES = "must be a directory, s3://BUCKET[/PREFIX] or rados://POOL[/PREFIX]"
NO_NODE_NAME = "must have at most 63 letters, digits and characters of ._-"
NO_URL = "is not an http or https URL"
SOURCES = (FLAG, VARIABLE, FILE)
"""In order of precedence."""


class Sample(NamedTuple):
    """A value, and how it is written in each source."""

    flag: tuple[str, ...]
    variable: str
    toml: str
    value: Any


def text(flag: str, written: str, value: Any = None) -> Sample:
    return Sample((flag, written), written, f'"{written}"', value or written)


def port(name: str, number: int) -> Sample:
    return Sample((f"--{name}-port", str(number)), str(number), str(number), number)


def switch(flag: str) -> tuple[Sample, Sample]:
    return Sample((f"--{flag}",), "yes", "true", True), Sample(
        (f"--no-{flag}",), "off", "false", False
    )


def file(flag: str, path: str) -> Sample:
    return text(flag, path, Path(path))


ONE = ConfiguredAccount("one", (decode_key(KEY),))
TWO = ConfiguredAccount("two", (decode_key(KEY), decode_key(KEY2)))


def seconds(name: str) -> tuple[Sample, Sample]:
    flag = f"--{name}"
    return Sample((flag, "0"), "0", "0", 0), Sample((flag, "604800"), "604800", "604800", 604_800)


SAMPLES: dict[str, tuple[Sample, Sample]] = {
    "host": (text("--host", "0.0.0.0"), text("--host", "::1")),
    "blob_port": (port("blob", 0), port("blob", 65_535)),
    "queue_port": (port("queue", 0), port("queue", 65_535)),
    "table_port": (port("table", 0), port("table", 65_535)),
    "file_port": (port("file", 0), port("file", 65_535)),
    "smb_port": (port("smb", 0), port("smb", 65_535)),
    "smb": switch("smb"),
    "smb_encryption": (text("--smb-encryption", "required"), text("--smb-encryption", "off")),
    "data": (file("--data", "/srv/one"), file("--data", "/srv/two")),
    "memory": switch("memory"),
    "engine": (
        text("--engine", ENGINE, DatabaseAddress(ENGINE)),
        text("--engine", KEYWORDS, DatabaseAddress(KEYWORDS)),
    ),
    "bodies": (
        text("--bodies", "s3://bucket/prefix", BodiesAddress(url="s3://bucket/prefix")),
        text("--bodies", "/srv/bodies", BodiesAddress(Path("/srv/bodies"))),
    ),
    "node_name": (text("--node-name", "one"), text("--node-name", "node-2.example.com")),
    "node_address": (
        text("--node-address", "10.0.0.1", NodeAddress("10.0.0.1")),
        text("--node-address", "[::1]:7000", NodeAddress("::1", 7_000)),
    ),
    "account_map": (
        text("--account-map", ENGINE, DatabaseAddress(ENGINE)),
        text("--account-map", KEYWORDS, DatabaseAddress(KEYWORDS)),
    ),
    "cell": (text("--cell", "one"), text("--cell", "cell-2")),
    "cell_address": (
        text("--cell-address", "10.0.0.1", NodeAddress("10.0.0.1")),
        text("--cell-address", "[::1]:7001", NodeAddress("::1", 7_001)),
    ),
    "workers": (
        Sample(("--workers", "1"), "1", "1", 1),
        Sample(("--workers", "256"), "256", "256", 256),
    ),
    "accounts": (
        Sample(
            ("--account", f"one:{KEY}", "--account", f"two:{KEY}:{KEY2}"),
            f"one:{KEY}; two:{KEY}:{KEY2};",
            f'["one:{KEY}", "two:{KEY}:{KEY2}"]',
            (ONE, TWO),
        ),
        Sample(("--account", f"one:{KEY}"), f"one:{KEY}", f'["one:{KEY}"]', (ONE,)),
    ),
    "premium_file_accounts": (
        Sample(
            ("--premium-file-account", "one", "--premium-file-account", "two"),
            "one; two;",
            '["one", "two"]',
            frozenset({"one", "two"}),
        ),
        Sample(("--premium-file-account", "one"), "one", '["one"]', frozenset({"one"})),
    ),
    "tls": (text("--tls", "self-signed"), text("--tls", "off")),
    "tls_cert": (file("--tls-cert", "/tls/one"), file("--tls-cert", "/tls/two")),
    "tls_key": (file("--tls-key", "/tls/one"), file("--tls-key", "/tls/two")),
    "oauth": (text("--oauth", "development"), text("--oauth", "off")),
    "oauth_issuers": (
        Sample(
            ("--oauth-issuer", "https://one/", "--oauth-issuer", "two"),
            "https://one/; two;",
            '["https://one/", "two"]',
            ("https://one/", "two"),
        ),
        Sample(("--oauth-issuer", "three"), "three", '["three"]', ("three",)),
    ),
    "oauth_keys": (
        text("--oauth-keys", "/keys/one", KeySetSource(Path("/keys/one"))),
        text("--oauth-keys", "https://two/keys", KeySetSource(url="https://two/keys")),
    ),
    "oauth_audiences": (
        Sample(("--oauth-audience", "api://one"), "api://one", '["api://one"]', ("api://one",)),
        Sample(
            ("--oauth-audience", "one", "--oauth-audience", "two"),
            "one; two",
            '["one", "two"]',
            ("one", "two"),
        ),
    ),
    "oauth_roles": (
        Sample(
            ("--oauth-role", "a=blob-reader,queue-owner@one", "--oauth-role", "oid:b=owner"),
            "a=blob-reader,queue-owner@one; oid:b=owner",
            '{a = ["blob-reader", "queue-owner@one"], "oid:b" = "owner"}',
            (
                RoleAssignment("", "a", Role.BLOB_READER),
                RoleAssignment("", "a", Role.QUEUE_OWNER, "one"),
                RoleAssignment("oid", "b", Role.OWNER),
            ),
        ),
        Sample(
            ("--oauth-role", "*=table-reader"),
            "*=table-reader",
            '["*=table-reader"]',
            (RoleAssignment("", "*", Role.TABLE_READER),),
        ),
    ),
    "oauth_authority": (
        text("--oauth-authority", "https://login.example.com/tenant"),
        text("--oauth-authority", "http://127.0.0.1:8080/t"),
    ),
    "development_account_anywhere": switch("development-account-anywhere"),
    "rehydrate_standard_seconds": seconds("rehydrate-standard-seconds"),
    "rehydrate_high_seconds": seconds("rehydrate-high-seconds"),
    "last_access_time_tracking": switch("last-access-time-tracking"),
    "admin_port": (port("admin", 0), port("admin", 65_535)),
    "admin_host": (text("--admin-host", "0.0.0.0"), text("--admin-host", "::1")),
    "admin_token_file": (
        file("--admin-token-file", "/tokens/one"),
        file("--admin-token-file", "/tokens/two"),
    ),
    "copy_sources": (
        Sample(
            ("--copy-source", "Example.com", "--copy-source", "[::1]:8080"),
            "Example.com; [::1]:8080;",
            '["Example.com", "[::1]:8080"]',
            (CopySource("example.com", None), CopySource("::1", 8080)),
        ),
        Sample(
            ("--copy-source", "10.0.0.1:80"),
            "10.0.0.1:80",
            '["10.0.0.1:80"]',
            (CopySource("10.0.0.1", 80),),
        ),
    ),
    "log_format": (text("--log-format", "json"), text("--log-format", "text")),
    "log_level": (text("--log-level", "debug"), text("--log-level", "error")),
    "access_log": switch("access-log"),
    "log_slow_milliseconds": (
        Sample(("--log-slow-milliseconds", "0"), "0", "0", 0),
        Sample(("--log-slow-milliseconds", "3600000"), "3600000", "3600000", 3_600_000),
    ),
}
PARTNERS = {
    "tls_cert": ("tls_key",),
    "tls_key": ("tls_cert",),
    "bodies": ("engine",),
    "account_map": ("engine", "cell"),
    "cell": ("engine", "account_map"),
    "cell_address": ("engine", "account_map", "cell"),
}
"""Settings that need other ones."""
PARTNER_VALUES = {"engine": ENGINE, "account_map": ENGINE, "cell": "one"}


def parse(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return vars(parser.parse_args(arguments))


def load_from(
    folder: Path, flags: tuple[str, ...] = (), toml: str | None = None, **environment: str
) -> Settings:
    if toml is None:
        return load(parse(*flags), environment)
    path = folder / "etagere.toml"
    path.write_text(toml, encoding="utf-8")
    return load(parse("--config", str(path), *flags), environment)


# The table


def test_every_setting_has_samples() -> None:
    assert SAMPLES.keys() == BY_NAME.keys() == {each.name for each in dataclasses.fields(Settings)}


def test_nothing_given_is_the_defaults() -> None:
    settings = load(parse(), {})
    assert settings == Settings() == load({}, {})
    assert (settings.host, settings.data) == ("127.0.0.1", Path("etagere-data"))
    ports = [settings.blob_port, settings.queue_port, settings.table_port, settings.file_port]
    assert [*ports, settings.smb_port] == [10_000, 10_001, 10_002, 10_003, 10_445]
    assert (settings.memory, settings.workers, settings.accounts) == (False, 0, ())
    assert (settings.tls_cert, settings.tls_key, settings.oauth) == (None, None, "off")
    assert not settings.development_account_anywhere


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Settings(), "host", "::")  # noqa: B010


@pytest.mark.parametrize("given", list(product([False, True], repeat=3)))
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_precedence_of_sources(tmp_path: Path, setting: Setting, given: tuple[bool, ...]) -> None:
    """Tests every subset of the sources, with one value in the source that wins and another in the
    others, and the other way round."""
    sources = [source for source, there in zip(SOURCES, given, strict=True) if there]
    for counting, other in (SAMPLES[setting.name], SAMPLES[setting.name][::-1]):
        assert counting.value != other.value
        written = {source: counting if source == sources[0] else other for source in sources}
        flags = written[FLAG].flag if FLAG in written else ()
        environment = {setting.variable: written[VARIABLE].variable} if VARIABLE in written else {}
        partners = PARTNERS.get(setting.name, ())
        for partner in partners if sources else ():
            environment[BY_NAME[partner].variable] = PARTNER_VALUES.get(partner, "/tls/partner")
        toml = f"{setting.name} = {written[FILE].toml}" if FILE in written else None
        settings = load_from(tmp_path, flags, toml, **environment)
        expected = counting.value if sources else setting.default
        assert getattr(settings, setting.name) == expected
        others = {setting.name, *partners}
        for untouched in SETTINGS:
            if untouched.name not in others:
                assert getattr(settings, untouched.name) == untouched.default


def test_sources_mix(tmp_path: Path) -> None:
    settings = load_from(
        tmp_path,
        ("--blob-port", "1"),
        "blob_port = 3\nqueue_port = 3\ntable_port = 3",
        ETAGERE_BLOB_PORT="2",
        ETAGERE_QUEUE_PORT="2",
    )
    ports = (settings.blob_port, settings.queue_port, settings.table_port, settings.file_port)
    assert ports == (1, 2, 3, 10_003)


def test_an_empty_variable_is_ignored() -> None:
    environment = {setting.variable: "" for setting in SETTINGS}
    assert load({}, {**environment, "ETAGERE_CONFIG": ""}) == Settings()


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    named, other = tmp_path / "named.toml", tmp_path / "other.toml"
    named.write_text("workers = 2", encoding="utf-8")
    other.write_text("workers = 3", encoding="utf-8")
    environment = {"ETAGERE_CONFIG": str(named)}
    assert load(parse(), environment).workers == 2
    assert load(parse("--config", str(other)), environment).workers == 3


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    settings = load_from(tmp_path, toml='data = "shelf"\ntls_cert = "c"\ntls_key = "/k"')
    assert settings.data == tmp_path / "shelf"
    assert (settings.tls_cert, settings.tls_key) == (tmp_path / "c", Path("/k"))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *((word, True) for word in ("1", "true", "TRUE", "yes", "On")),
        *((word, False) for word in ("0", "false", "False", "no", "OFF")),
    ],
)
def test_boolean_values(word: str, expected: bool) -> None:
    assert load({}, {"ETAGERE_MEMORY": word}).memory is expected


def test_a_parser_may_have_some_of_the_flags() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser, "data")
    assert vars(parser.parse_args(["--data", "x"])) == {"config": None, "data": "x"}


def test_help_names_every_variable_and_default() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    shown = " ".join(parser.format_help().split())
    for setting in SETTINGS:
        assert setting.flag in shown
        assert f"variable {setting.variable}, key {setting.name})" in shown
    assert "(default: 127.0.0.1; variable ETAGERE_HOST, key host)" in shown


# Errors

WRONG_NUMBERS = ("", "x", "-1", "65536", "1.5", " 1", "1_0", "٣", "9" * 5_000)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("_port")])
@pytest.mark.parametrize("written", WRONG_NUMBERS, ids=range(len(WRONG_NUMBERS)))
def test_wrong_ports(name: str, written: str) -> None:
    setting = BY_NAME[name]
    with pytest.raises(BadSetting) as caught:
        load({name: written}, {})
    assert str(caught.value).startswith(f"{setting.flag}: ")
    assert written in str(caught.value)
    assert str(caught.value).endswith(" is not an integer from 0 to 65535")
    if written:
        with pytest.raises(BadSetting, match=f"^{setting.variable}: "):
            load({}, {setting.variable: written})


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (("--host", ""), {}, "--host: must not be empty"),
        (("--data", ""), {}, "--data: is not a path"),
        (("--workers", "257"), {}, "--workers: 257 is not an integer from 0 to 256"),
        (("--oauth", "entra"), {}, "--oauth: 'entra' is not one of off, development, on"),
        (("--oauth", "on"), {}, "--oauth: oauth_issuers must be set too"),
        (("--oauth", "on", "--oauth-issuer", "i"), {}, "--oauth: oauth_keys must be set too"),
        (("--oauth-issuer", ""), {}, "--oauth-issuer: must not be empty"),
        (("--oauth-keys", ""), {}, "--oauth-keys: '' is not a path"),
        (
            ("--oauth-keys", "http://example.com/keys"),
            {},
            "--oauth-keys: 'http://example.com/keys' must be an https URL, unless it is on this "
            "machine",
        ),
        *(
            (("--oauth-authority", url), {}, f"--oauth-authority: {url!r} {NO_URL}")
            for url in (
                "example.com",
                "ftp://example.com/",
                "https:///path",
                "https://a b/",
                "https://a,b/",
                "https://host:99999/",
                "https://host/#part",
                "https://host/\npath",
            )
        ),
        (("--oauth-role", "x"), {}, "--oauth-role: 'x' must be VALUE=ROLE or VALUE=ROLE,ROLE"),
        (("--oauth-role", "x=king"), {}, "--oauth-role: 'x=king' has an unknown role, 'king'"),
        (("--tls-cert", "c"), {}, "--tls-cert: tls_key must be set too"),
        (("--tls-key", "k"), {}, "--tls-key: tls_cert must be set too"),
        ((), {"ETAGERE_TLS_KEY": "k"}, "ETAGERE_TLS_KEY: tls_cert must be set too"),
        (
            ("--tls-cert", "c", "--tls-key", "k"),
            {"ETAGERE_TLS": "self-signed"},
            "ETAGERE_TLS: tls_cert must not be set too",
        ),
        (("--bodies", "s3://b"), {}, "--bodies: engine must be set too"),
        (("--account-map", ENGINE), {}, "--account-map: engine must be set too"),
        (
            ("--account-map", ENGINE, "--engine", ENGINE),
            {},
            "--account-map: cell must be set too",
        ),
        (("--cell", "one"), {}, "--cell: account_map must be set too"),
        (("--cell-address", "a"), {}, "--cell-address: account_map must be set too"),
        (("--memory", "--engine", ENGINE), {}, "--memory: engine must not be set too"),
        *(
            (("--engine", ENGINE, "--bodies", url), {}, f"--bodies: {NO_BODIES}")
            for url in ("s3://", "https://host/a", "s3://user:key@/a", "s3://[", "S3://bucket")
        ),
        (("--node-name", "a/b"), {}, f"--node-name: 'a/b' {NO_NODE_NAME}"),
        (("--node-name", "a" * 64), {}, f"--node-name: {'a' * 64!r} {NO_NODE_NAME}"),
        (("--node-address", "a:b"), {}, "--node-address: 'a:b' must be HOST or HOST:PORT"),
        (("--node-address", "a:70000"), {}, "--node-address: 'a:70000' must be HOST or HOST:PORT"),
        (
            (),
            {"ETAGERE_MEMORY": "maybe"},
            "ETAGERE_MEMORY: 'maybe' is not one of 1, true, yes, on, 0, false, no, off",
        ),
    ],
)
def test_wrong_values(flags: tuple[str, ...], environment: dict[str, str], message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        load(parse(*flags), environment)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("host = 1", "host: must be a string"),
        ("host = ''", "host: must not be empty"),
        ("blob_port = '1'", "blob_port: '1' is not an integer from 0 to 65535"),
        ("blob_port = true", "blob_port: True is not an integer from 0 to 65535"),
        ("blob_port = 1.0", "blob_port: 1.0 is not an integer from 0 to 65535"),
        ("blob_port = 65536", "blob_port: 65536 is not an integer from 0 to 65535"),
        ("memory = 'yes'", "memory: must be true or false"),
        ("memory = 1", "memory: must be true or false"),
        ("data = ['x']", "data: must be a string"),
        ('data = "a\\u0000b"', "data: is not a path"),
        ("oauth = false", "oauth: must be a string"),
        ("oauth = 'on'", "oauth: oauth_issuers must be set too"),
        ("oauth_issuers = 'x'", 'oauth_issuers: must be a list of strings "ISSUER"'),
        ("oauth_audiences = [1]", 'oauth_audiences: must be a list of strings "AUDIENCE"'),
        ("oauth_keys = 1", "oauth_keys: must be a string"),
        (
            "oauth_roles = 'x'",
            "oauth_roles: must be a table from values of claims to lists of roles",
        ),
        ("[oauth_roles]\nx = 1", "oauth_roles: 'x' must be a list of roles"),
        ("[oauth_roles]\nx = [1]", "oauth_roles: 'x' must be a list of roles"),
        ("[oauth_roles]\nx = 'king'", "oauth_roles: 'x' has an unknown role, 'king'"),
        ("tls_cert = 'c'", "tls_cert: tls_key must be set too"),
        ("accounts = 'x'", 'accounts: must be a list of strings "NAME:KEY[:KEY2]"'),
        ("accounts = [1]", 'accounts: must be a list of strings "NAME:KEY[:KEY2]"'),
        (
            "premium_file_accounts = 'x'",
            'premium_file_accounts: must be a list of strings "NAME"',
        ),
        (
            "premium_file_accounts = ['one', 'Two']",
            "premium_file_accounts: name 2 must be 3 to 24 lowercase letters and digits",
        ),
        ("bolb_port = 1", "'bolb_port' is not a setting; did you mean blob_port?"),
        ("blob-port = 1", "'blob-port' is not a setting; did you mean blob_port?"),
        ("config = 'x'", "'config' is not a setting"),
        ("[server]\nhost = 'x'", "'server' is not a setting"),
        ("[host]\nname = 'x'", "host: must be a string"),
    ],
)
def test_wrong_keys_of_a_file(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        load_from(tmp_path, toml=toml)
    assert str(caught.value) == f"{tmp_path / 'etagere.toml'}: {message}"


def test_unknown_keys_are_errors_in_any_source(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="'prot' is not a setting"):
        load_from(tmp_path, ("--blob-port", "1"), "prot = 1")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing, broken, binary = tmp_path / "missing", tmp_path / "broken", tmp_path / "binary"
    deep, long = tmp_path / "deep", tmp_path / "long"
    deep.write_text(f"host = {'[' * 10_000}", encoding="utf-8")
    long.write_text(f"host = {'9' * 10_000}", encoding="utf-8")
    broken.write_text("\nhost = \n", encoding="utf-8")
    binary.write_bytes(b"host = '\xff'")
    for path, message in (
        (missing, f"{missing} cannot be read: No such file or directory"),
        (tmp_path, f"{tmp_path} cannot be read: Is a directory"),
        (broken, f"{broken} is not TOML: Invalid value (at line 2, column 8)"),
        (binary, f"{binary} is not TOML: it is not UTF-8"),
        (deep, f"{deep} is not TOML: maximum recursion depth"),
        (long, f"{long} is not TOML: Exceeds the limit"),
        (Path("/dev/zero"), "/dev/zero cannot be read: it has more than 1048576 bytes"),
    ):
        with pytest.raises(BadSetting) as caught:
            load({"config": str(path)}, {})
        assert str(caught.value).startswith(message)


def test_an_empty_file_name() -> None:
    with pytest.raises(BadSetting, match=r"^--config: is not a path$"):
        load(parse("--config", ""), {"ETAGERE_CONFIG": "other.toml"})


def test_unknown_variables() -> None:
    known = ["ETAGERE_CONFIG", *(setting.variable for setting in SETTINGS)]
    assert list(unknown_variables([*known, "HOME", "XETAGERE_HOST", "etagere_host"])) == []
    assert list(unknown_variables(["ETAGERE_ACCOUNT", "ETAGERE_Q", "ETAGERE_"])) == [
        "ETAGERE_ACCOUNT is not a setting; did you mean ETAGERE_ACCOUNTS?",
        "ETAGERE_Q is not a setting",
        "ETAGERE_ is not a setting",
    ]


# Accounts and their keys


def test_accounts_have_one_key_or_two() -> None:
    assert parse_account(f"one:{KEY}").keys == (b"a secret of the account",)
    assert parse_account(f" two:{KEY}:{KEY2} ") == TWO


WRONG_ACCOUNTS = [
    (KEY, "must be NAME:KEY or NAME:KEY:KEY2"),
    (f"one:{KEY}:{KEY2}:{KEY}", "must be NAME:KEY or NAME:KEY:KEY2"),
    (f"{KEY}:one", "its name must be 3 to 24 lowercase letters and digits"),
    (f"no:{KEY}", "its name must be 3 to 24 lowercase letters and digits"),
    (f"One:{KEY}", "its name must be 3 to 24 lowercase letters and digits"),
    (f"{DEVELOPMENT_ACCOUNT.name}:{KEY}", "which is built in, cannot be changed"),
    (f"one:{KEY[:-1]}", "its key 1 is not base64"),
    (f"one:*{KEY}", "its key 1 is not base64"),
    (f"one:ä{KEY}", "its key 1 is not base64"),
    (f"one:{KEY}:{KEY2[:-1]}", "its key 2 is not base64"),
    ("one:", "its key 1 must have 1 to 64 bytes, not 0"),
    (f"one:{KEY}:", "its key 2 must have 1 to 64 bytes, not 0"),
    (f"one:{KEY * 3}", "its key 1 is not base64"),
    (f"one:{'QUJD' * 22}", "its key 1 must have 1 to 64 bytes, not 66"),
]


def assert_secret(error: BaseException) -> None:
    output = "".join(traceback.format_exception(error)) + repr(error)
    for key in (KEY, KEY2, "QUJD"):
        for at in range(0, len(key) - 3, 4):
            assert key[at : at + 4] not in output


@pytest.mark.parametrize("flag", ["--oauth-keys", "--oauth-authority", "--copy-source"])
def test_errors_of_urls_do_not_show_secrets(flag: str) -> None:
    for url in (f"https://user:{KEY}@host/path", f"ftp://host/path?sig={KEY}"):
        with pytest.raises(BadSetting, match="host/path") as caught:
            load(parse(flag, url), {})
        assert_secret(caught.value)


@pytest.mark.parametrize(
    "written", [KEY, f"mysql://me:{KEY}@host/db", f"host=a {KEY}", f"host=a password='{KEY}", ""]
)
def test_errors_of_databases_do_not_show_secrets(written: str) -> None:
    with pytest.raises(BadSetting, match=r"^--engine: must be postgresql:") as caught:
        load(parse("--engine", written), {})
    assert_secret(caught.value)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (f"postgresql://me:{KEY}@db1:5432,db2/etagere?password={KEY}", "db1:5432,db2/etagere"),
        (f"postgresql://me@host/db?password={KEY}", "host/db"),
        (f"postgres:///db?password={KEY}", "/db"),
        (f"postgresql://{KEY}@host", "host"),
        (f"postgresql://me:one?{KEY}@host/db", "host/db"),
        (f"postgresql://me:one/{KEY}@host/db", "…"),
        (f"postgresql://me:one@{KEY}@host/db", "…"),
        (f"postgresql://host/db?password=one@{KEY}", "…"),
        (f"password=one\\ host={KEY} port=1", "port=1"),
        (f"host=db1 password={KEY} port = 1 sslpassword='{KEY}'", "host=db1 port = 1"),
        (f"password={KEY}", "postgresql"),
    ],
)
def test_addresses_of_databases_do_not_show_secrets(written: str, shown: str) -> None:
    settings = load(parse("--engine", written), {})
    assert str(settings.engine).removeprefix("postgresql://").removeprefix("postgres://") == shown
    assert KEY not in f"{settings!r} {settings.engine} {settings.engine!r}"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (f"s3://me:{KEY}@bucket/prefix?secret={KEY}", "s3://bucket/prefix"),
        (f"s3://me:one/{KEY}@bucket/prefix", "s3://…"),  # keys of AWS contain slashes
        (f"s3://me:one/{KEY}?two@bucket", "s3://…"),
    ],
)
def test_addresses_of_bodies_do_not_show_secrets(written: str, shown: str) -> None:
    settings = load(parse("--engine", ENGINE, "--bodies", written), {})
    assert str(settings.bodies) == shown
    assert KEY not in f"{settings!r} {settings.bodies!r}"


@pytest.mark.parametrize(("written", "message"), WRONG_ACCOUNTS)
def test_errors_of_accounts_do_not_show_keys(tmp_path: Path, written: str, message: str) -> None:
    good = f"good:{KEY}"
    for flags, toml, environment, where in (
        (("--account", good, "--account", written), None, {}, "--account"),
        ((), None, {"ETAGERE_ACCOUNTS": f"{good};{written}"}, "ETAGERE_ACCOUNTS"),
        ((), f'accounts = ["{good}", "{written}"]', {}, f"{tmp_path}/etagere.toml: accounts"),
    ):
        with pytest.raises(BadSetting) as caught:
            load_from(tmp_path, flags, toml, **environment)
        assert str(caught.value).startswith(f"{where}: account 2: ")
        assert str(caught.value).endswith(message)
        assert_secret(caught.value)


def test_account_names_are_unique() -> None:
    with pytest.raises(BadSetting) as caught:
        load(parse("--account", f"one:{KEY}", "--account", f"one:{KEY2}"), {})
    assert str(caught.value) == "--account: account 2: its name is already in use"
    assert_secret(caught.value)


@pytest.mark.parametrize(
    "toml",
    [
        f"accounts = '{KEY}'",
        f"accounts = [['{KEY}']]",
        f"[accounts]\none = '{KEY}'",
        f"accounts = ['one:{KEY}'",
        f"accounts = 'one:{KEY}",
        f"accounts = one:{KEY}",
    ],
)
def test_no_key_of_a_file_is_shown(tmp_path: Path, toml: str) -> None:
    with pytest.raises(BadSetting) as caught:
        load_from(tmp_path, toml=toml)
    assert_secret(caught.value)


def test_no_repr_shows_a_key() -> None:
    settings = load(parse("--account", f"one:{KEY}:{KEY2}"), {})
    shown = repr(settings)
    assert "name='one'" in shown
    for secret in (KEY, KEY2, "a secret", "another of"):
        assert secret not in shown

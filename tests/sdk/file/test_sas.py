"""SAS tokens and stored access policies of shares and files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from azure.storage.fileshare import (
    AccessPolicy,
    ContentSettings,
    ShareClient,
    ShareDirectoryClient,
    ShareFileClient,
    ShareServiceClient,
)

from tests.sdk.file.clients import (
    account_token,
    file_token,
    sas_client,
    sas_service,
    share_token,
)
from tests.sdk.harness import HOUR, now, refused
from tests.server import WRONG_KEY, Server, unique

MISMATCH = "AuthorizationPermissionMismatch"
LETTERS = "rcwdl"
Action = Callable[[ShareClient], Any]


def _old(share: ShareClient) -> ShareFileClient:
    return share.get_file_client("old")


def _crate(share: ShareClient) -> ShareDirectoryClient:
    return share.get_directory_client("crate")


# Permissions

ON_FILES: dict[str, tuple[str, Action]] = {
    "download": ("r", lambda share: _old(share).download_file().readall()),
    "properties": ("r", lambda share: _old(share).get_file_properties()),
    "ranges": ("r", lambda share: list(_old(share).list_ranges())),
    "create": ("cw", lambda share: share.get_file_client("new").create_file(9)),
    "replace": ("w", lambda share: _old(share).create_file(9)),
    "write": ("w", lambda share: _old(share).upload_range(b"four", 0, 4)),
    "clear": ("w", lambda share: _old(share).clear_range(0, 512)),
    "metadata": ("w", lambda share: _old(share).set_file_metadata({"a": "b"})),
    "headers": ("w", lambda share: _old(share).set_http_headers(ContentSettings())),
    "resize": ("w", lambda share: _old(share).resize_file(3)),
    "lease": ("w", lambda share: _old(share).acquire_lease().release()),
    "delete": ("d", lambda share: _old(share).delete_file()),
}
ON_DIRECTORIES: dict[str, tuple[str, Action]] = {
    "create": ("cw", lambda share: share.create_directory("new")),
    "properties": ("r", lambda share: _crate(share).get_directory_properties()),
    "metadata": ("w", lambda share: _crate(share).set_directory_metadata({"a": "b"})),
    "headers": ("w", lambda share: _crate(share).set_http_headers(file_attributes="Hidden")),
    "delete": ("d", lambda share: _crate(share).delete_directory()),
}
ON_SHARES: dict[str, tuple[str, Action]] = {
    "list": ("l", lambda share: list(share.list_directories_and_files())),
    "properties": ("r", lambda share: share.get_share_properties()),
    "usage": ("r", lambda share: share.get_share_stats()),
    "metadata": ("w", lambda share: share.set_share_metadata({"a": "b"})),
    "quota": ("w", lambda share: share.set_share_quota(3)),
    "snapshot": ("cw", lambda share: share.create_snapshot()),
    "lease": ("w", lambda share: share.acquire_lease().release()),
    "delete": ("d", lambda share: share.delete_share(delete_snapshots=True)),
}


def require(client: ShareClient, action: Action, allowed: bool) -> None:
    with client:
        if allowed:
            action(client)
        else:
            with refused(403, MISMATCH):
                action(client)


@pytest.mark.parametrize("kind", ON_FILES)
@pytest.mark.parametrize("letter", LETTERS)
def test_permissions_on_files(share: ShareClient, kind: str, letter: str) -> None:
    needed, action = ON_FILES[kind]
    name = "new" if kind == "create" else "old"
    tokens = [share_token(share, permission=letter), account_token(letter, "o")]
    if letter != "l":
        tokens.append(file_token(share, name, permission=letter))
    for token in tokens:
        _old(share).upload_file(b"old content" * 50)
        require(sas_client(share, token), action, letter in needed)
        if kind == "create" and letter in needed:
            share.get_file_client("new").delete_file()


@pytest.mark.parametrize("kind", ON_DIRECTORIES)
@pytest.mark.parametrize("letter", LETTERS)
def test_permissions_on_directories(share: ShareClient, kind: str, letter: str) -> None:
    needed, action = ON_DIRECTORIES[kind]
    for token in (share_token(share, permission=letter), account_token(letter, "o")):
        if not _crate(share).exists():
            share.create_directory("crate")
        require(sas_client(share, token), action, letter in needed)
        if kind == "create" and letter in needed:
            share.delete_directory("new")


@pytest.mark.parametrize("kind", ON_SHARES)
@pytest.mark.parametrize("letter", LETTERS)
def test_permissions_on_shares(share: ShareClient, kind: str, letter: str) -> None:
    needed, action = ON_SHARES[kind]
    require(sas_client(share, account_token(letter, "c")), action, letter in needed)


def _listed(client: ShareClient, directory: str) -> object:
    return list(client.list_directories_and_files(directory))


def test_listing_with_a_share_token(share: ShareClient) -> None:
    share.create_directory("crate")
    for letter in LETTERS:
        for directory in ("", "crate"):
            client = sas_client(share, share_token(share, permission=letter))
            require(client, partial(_listed, directory=directory), letter == "l")


def test_share_tokens_cannot_manage_the_share(share: ShareClient) -> None:
    with sas_client(share, share_token(share, permission=LETTERS)) as client:
        for action in (
            client.delete_share,
            client.get_share_properties,
            client.get_share_access_policy,
            client.create_snapshot,
            lambda: client.set_share_metadata({}),
            lambda: client.set_share_quota(2),
        ):
            with refused(403, "AuthorizationFailure"):
                action()
    assert share.get_share_properties().name == share.share_name


def test_no_token_reaches_the_policies(share: ShareClient) -> None:
    with sas_client(share, account_token("rwdlac", "sco")) as client:
        with refused(403, MISMATCH):
            client.get_share_access_policy()
        with refused(403, MISMATCH):
            client.set_share_access_policy({})


def test_permissions_of_files(share: ShareClient) -> None:
    """Security descriptors are stored in the share, so tokens for a share may create them."""
    sddl = "O:SYG:SYD:(A;;FA;;;SY)"
    with sas_client(share, share_token(share, permission="wd")) as client:
        key = client.create_permission_for_share(sddl)
    assert key is not None
    with sas_client(share, share_token(share, permission="r")) as client:
        assert client.get_permission_for_share(key).startswith("O:SYG:SY")
        with refused(403, MISMATCH):
            client.create_permission_for_share(sddl)
    with sas_client(share, share_token(share, permission="cwl")) as client:
        with refused(403, MISMATCH):
            client.get_permission_for_share(key)
        with refused(403, MISMATCH):
            client.create_permission_for_share(sddl)


def test_tokens_are_limited_to_their_resource(
    files: ShareServiceClient, share: ShareClient
) -> None:
    for name in ("one", "two", "One."):
        share.get_file_client(name).upload_file(b"")
    other = files.create_share(unique("share"))
    other.get_file_client("one").upload_file(b"")
    with sas_client(share, file_token(share, "one")) as client:
        client.get_file_client("one").download_file().readall()
        for name in ("two", "ONE", "one.", "one/two"):
            with refused(403, "AuthenticationFailed"):
                client.get_file_client(name).download_file()
        with refused(403, "AuthenticationFailed"):
            list(client.list_directories_and_files())
    with sas_client(other, share_token(share)) as client, refused(403, "AuthenticationFailed"):
        client.get_file_client("one").download_file()
    other.delete_share()


@pytest.mark.parametrize(
    "path",
    [
        "plain",
        "a b/c d",
        "Größe/ß.txt",
        "100%/50%25",
        "a+b/c&d=e",
        "💾/日本",
        "'(~)!/@,;$",
        "UP/low",
    ],
)
def test_names_in_tokens(share: ShareClient, path: str) -> None:
    """The SDK sends the slashes of a path as `%2F`, and signs them as slashes."""
    directory, _, _ = path.rpartition("/")
    if directory:
        share.create_directory(directory)
    share.get_file_client(path).upload_file(b"content")
    for token in (file_token(share, path), share_token(share), account_token("r", "o")):
        with sas_client(share, token) as client:
            assert client.get_file_client(path).download_file().readall() == b"content"


def test_tokens_and_trailing_dots(server: Server, share: ShareClient) -> None:
    dotted = sas_client(share, share_token(share, permission="rw"), allow_trailing_dot=True)
    with dotted:
        for name in ("name", "name."):
            dotted.get_file_client(name).upload_file(name.encode())
    token = file_token(share, "name.")
    with sas_client(share, token, allow_trailing_dot=True) as client:
        assert client.get_file_client("name.").download_file().readall() == b"name."
    with (
        sas_client(share, token, allow_trailing_dot=False) as client,
        refused(403, "AuthorizationFailure"),
    ):
        client.get_file_client("name.").download_file()


def test_account_tokens_on_the_service(server: Server) -> None:
    with sas_service(server, account_token("l", "s")) as client:
        list(client.list_shares())
        with refused(403, "AuthorizationResourceTypeMismatch"):
            client.create_share("never")
    with sas_service(server, account_token("r", "s")) as client:
        client.get_service_properties()
        with refused(403, MISMATCH):
            list(client.list_shares())


def test_account_tokens_create_shares(server: Server, files: ShareServiceClient) -> None:
    for letter in "cw":
        with sas_service(server, account_token(letter, "c")) as client:
            name = unique("share")
            client.create_share(name)
            files.delete_share(name)


def test_account_tokens_for_other_services(share: ShareClient) -> None:
    token = account_token("r", "sco").replace("ss=f", "ss=b")
    with sas_client(share, token) as client, refused(403, "AuthenticationFailed"):
        client.get_share_properties()


# Renames


def test_renames_with_tokens(share: ShareClient) -> None:
    """A share token that reads and writes suffices for both paths of a rename."""
    token = share_token(share, permission="rw")
    with sas_client(share, token) as client:
        crate = client.create_directory("crate").rename_directory("box")
        assert crate.get_directory_properties().is_directory
        client.get_file_client("one").upload_file(b"content")
        renamed = client.get_file_client("one").rename_file(f"box/two?{token}")
        assert renamed.download_file().readall() == b"content"


def test_renames_with_tokens_for_files(share: ShareClient) -> None:
    share.get_file_client("one").upload_file(b"content")
    source = file_token(share, "one", permission="rw")
    destination = file_token(share, "two", permission="c")
    with sas_client(share, source) as client:
        client.get_file_client("one").rename_file(f"two?{destination}")
    assert share.get_file_client("two").download_file().readall() == b"content"
    share.get_file_client("one").upload_file(b"newer")
    with sas_client(share, source) as client, refused(403, MISMATCH):
        client.get_file_client("one").rename_file(f"two?{destination}", overwrite=True)
    with sas_client(share, file_token(share, "one", permission="w")) as client:
        replaces = file_token(share, "two", permission="w")
        with refused(403, MISMATCH):
            client.get_file_client("one").rename_file(f"two?{replaces}", overwrite=True)
    assert share.get_file_client("two").download_file().readall() == b"content"


# Validity, IP ranges, signatures


@pytest.mark.parametrize(
    ("start", "expiry", "valid"),
    [(-HOUR, HOUR, True), (HOUR, 2 * HOUR, False), (-2 * HOUR, -HOUR, False)],
    ids=["now", "later", "before"],
)
def test_times(share: ShareClient, start: timedelta, expiry: timedelta, valid: bool) -> None:
    _old(share).upload_file(b"")
    window = {"start": now() + start, "expiry": now() + expiry}
    for token in (
        share_token(share, **window),
        file_token(share, "old", **window),
        account_token("r", "o", **window),
    ):
        with sas_client(share, token) as client:
            if valid:
                _old(client).download_file().readall()
            else:
                with refused(403, "AuthenticationFailed"):
                    _old(client).download_file()


def test_addresses(share: ShareClient) -> None:
    _old(share).upload_file(b"")
    for addresses in ("127.0.0.1", "127.0.0.0-127.0.0.9"):
        with sas_client(share, share_token(share, ip=addresses)) as client:
            _old(client).download_file().readall()
    for addresses in ("10.0.0.1", "127.0.0.2-127.0.0.9"):
        client = sas_client(share, share_token(share, ip=addresses))
        with client, refused(403, "AuthorizationSourceIPMismatch"):
            _old(client).download_file()


def test_protocols(share: ShareClient) -> None:
    _old(share).upload_file(b"")
    with sas_client(share, share_token(share, protocol="https,http")) as client:
        _old(client).download_file().readall()
    client = sas_client(share, share_token(share, protocol="https"))
    with client, refused(403, "AuthorizationProtocolMismatch"):
        _old(client).download_file()


def test_forged_tokens(share: ShareClient) -> None:
    _old(share).upload_file(b"")
    for token in (
        share_token(share, account_key=WRONG_KEY),
        share_token(share).replace("sp=r", "sp=rw"),
    ):
        with sas_client(share, token) as client, refused(403, "AuthenticationFailed"):
            _old(client).download_file()


def test_tokens_replace_headers(share: ShareClient) -> None:
    _old(share).upload_file(b"")
    token = file_token(share, "old", content_type="text/x-other", content_disposition="attachment")
    with sas_client(share, token) as client:
        read = _old(client).download_file().properties.content_settings
        asked = _old(client).get_file_properties().content_settings
    for shown in (read, asked):
        assert shown.content_type == "text/x-other"
        assert shown.content_disposition == "attachment"


# Stored policies


def test_policies_round_trip(share: ShareClient) -> None:
    start, expiry = (now().replace(microsecond=0, tzinfo=None) + part for part in (-HOUR, HOUR))
    policies = {f"policy {n}": AccessPolicy("rl", expiry, start) for n in range(5)}
    share.set_share_access_policy(policies)
    found = share.get_share_access_policy()["signed_identifiers"]
    assert [identifier.id for identifier in found] == list(policies)
    for identifier in found:
        assert identifier.access_policy.permission == "rl"
        assert str(identifier.access_policy.start).startswith(start.isoformat())
        assert str(identifier.access_policy.expiry).startswith(expiry.isoformat())


def test_policies_take_effect_and_are_revoked_at_once(share: ShareClient) -> None:
    _old(share).upload_file(b"content")
    token = share_token(share, permission=None, expiry=None, policy_id="it")
    with sas_client(share, token) as client:
        for _ in range(10):
            share.set_share_access_policy({"it": AccessPolicy("r", now() + HOUR)})
            assert _old(client).download_file().readall() == b"content"
            with refused(403, MISMATCH):
                _old(client).delete_file()
            share.set_share_access_policy({"it": AccessPolicy("l", now() + HOUR)})
            with refused(403, MISMATCH):
                _old(client).download_file()
            share.set_share_access_policy({"it": AccessPolicy("r", now() - HOUR)})
            with refused(403, "AuthenticationFailed"):
                _old(client).download_file()
            share.set_share_access_policy({})
            with refused(403, "AuthenticationFailed"):
                _old(client).download_file()


def test_tokens_supply_what_the_policy_leaves_out(share: ShareClient) -> None:
    _old(share).upload_file(b"content")
    share.set_share_access_policy({"it": AccessPolicy(permission="rl")})
    token = file_token(share, "old", permission=None, policy_id="it")
    with sas_client(share, token) as client:
        assert _old(client).download_file().readall() == b"content"
    both = file_token(share, "old", permission="r", policy_id="it")
    with sas_client(share, both) as client, refused(403, "AuthenticationFailed"):
        _old(client).download_file()


def test_tokens_read_snapshots(share: ShareClient) -> None:
    _old(share).upload_file(b"older")
    snapshot = share.create_snapshot()["snapshot"]
    _old(share).upload_file(b"newer")
    for token in (share_token(share), file_token(share, "old")):
        with sas_client(share, token, snapshot=snapshot) as client:
            assert _old(client).download_file().readall() == b"older"

"""Permissions of a share: security descriptors as text and bytes, by key."""

from __future__ import annotations

import base64
import re

import pytest
from azure.storage.fileshare import (
    ContentSettings,
    DirectoryProperties,
    FileProperties,
    ShareClient,
)
from azure.storage.fileshare._generated.models import SharePermission

from etagere.model.security_descriptors import NULL_ACL, Acl, CustomAce, SecurityDescriptor
from etagere.rules.file_permissions import (
    DEFAULT_DIRECTORY_SDDL,
    SYSTEM,
    format_permission_key,
)
from etagere.rules.sddl import parse_sddl
from etagere.rules.security_descriptors import decode_descriptor, encode_descriptor
from tests.sdk.file.clients import sas_client, share_token
from tests.sdk.harness import ResponseRecorder, refused

SDDL = (
    "O:S-1-5-21-2127521184-1604012920-1887927527-21560751"
    "G:S-1-5-21-2127521184-1604012920-1887927527-513"
    "D:AI(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x1200a9;;;S-1-5-21-397955417-626881126-188441444-3053964)"
)


def create(share: ShareClient, permission: str, form: str) -> str:
    """Creates a permission in a format, for which the client has no option."""
    key = share._client.share.create_permission(
        SharePermission(permission=permission, format=form),
        cls=lambda _response, _model, headers: headers["x-ms-file-permission-key"],
    )
    return str(key)


def test_a_permission_is_stored_once_and_found_by_its_key(share: ShareClient) -> None:
    answer = ResponseRecorder()
    key = share.create_permission_for_share(SDDL, raw_response_hook=answer)
    assert answer.status == 201
    assert "etag" not in answer.headers
    assert re.fullmatch(r"[0-9]{1,20}\*[0-9]{1,20}", str(key))
    assert share.create_permission_for_share(SDDL) == key
    assert share.create_permission_for_share("O:SYG:SYD:") != key
    assert share.get_permission_for_share(str(key), raw_response_hook=answer) == (
        f"{SDDL}S:NO_ACCESS_CONTROL"
    )
    assert "content-type" not in answer.headers


def test_both_formats(share: ShareClient) -> None:
    key = str(share.create_permission_for_share(SDDL))
    binary = str(share.get_permission_for_share(key, file_permission_format="binary"))
    descriptor = decode_descriptor(base64.b64decode(binary))
    assert descriptor.owner == parse_sddl(SDDL).owner
    again = create(share, binary, "binary")
    assert again == key
    text = base64.b64encode(encode_descriptor(parse_sddl(SDDL))).decode()
    assert create(share, text, "binary") == key


def test_the_default_permissions_have_keys(share: ShareClient) -> None:
    assert share.get_permission_for_share(format_permission_key(0)) == DEFAULT_DIRECTORY_SDDL
    file = str(share.get_permission_for_share(format_permission_key(1)))
    assert file.startswith("O:SYG:SYD:(A;;FA;;;BA)")
    assert not file.endswith("S:NO_ACCESS_CONTROL")


def test_a_custom_entry_has_no_sddl(share: ShareClient) -> None:
    entry = CustomAce(0x99, 0, b"body")
    custom = SecurityDescriptor(SYSTEM, SYSTEM, Acl((entry,)))
    text = base64.b64encode(encode_descriptor(custom)).decode()
    key = create(share, text, "binary")
    with refused(400, "CannotConvertToSddlDueToCustomAce"):
        share.get_permission_for_share(key)
    shown = str(share.get_permission_for_share(key, file_permission_format="binary"))
    descriptor = decode_descriptor(base64.b64decode(shown))
    assert descriptor.dacl == custom.dacl
    assert descriptor.sacl == NULL_ACL


def test_long_permissions(share: ShareClient) -> None:
    entry = "(A;;FA;;;S-1-5-21-1-2-3-{})"
    longest = "O:SYG:SYD:" + "".join(entry.format(number) for number in range(1_000, 2_700))
    key = str(share.create_permission_for_share(longest))
    assert share.get_permission_for_share(key) == f"{longest}S:NO_ACCESS_CONTROL"
    with refused(400, "FileInvalidPermission"):
        share.create_permission_for_share(longest + entry.format(1) * 200)


@pytest.mark.parametrize(
    ("permission", "form"),
    [
        ("", "sddl"),
        ("abcde", "sddl"),
        ("O:SYG:SY", "sddl"),
        ("O:SYD:", "sddl"),
        ("O:SYG:SYD:(A;;FA;;;XX)", "sddl"),
        ("O:SYG:SYD:(A;;FA;;;DA)", "sddl"),
        ("O:SYG:SYD:(A;;ЖЖ;;;SY)", "sddl"),
        ("O:SYG:SYD:", "binary"),
        ("AAAA", "binary"),
        ("O:SYG:SYD:", "xml"),
    ],
)
def test_invalid_permissions(share: ShareClient, permission: str, form: str) -> None:
    with refused(400, "FileInvalidPermission") as error:
        create(share, permission, form)
    assert "The specified file permission is not valid." in error.message


@pytest.mark.parametrize("key", ["", "1", "1*1", "abc", "17948196579957258*13624753409017152634"])
def test_unknown_keys(share: ShareClient, key: str) -> None:
    with refused(400, "FileInvalidPermissionKey" if key else "MissingRequiredHeader"):
        share.get_permission_for_share(key)


# Permissions of directories and files


def sddl_of(share: ShareClient, entry: DirectoryProperties | FileProperties) -> str:
    return str(share.get_permission_for_share(str(entry.permission_key)))


def test_keys_of_entries_that_inherit(share: ShareClient) -> None:
    plain = share.create_directory("plain")
    file = plain.upload_file("file", b"")
    assert sddl_of(share, plain.get_directory_properties()) == DEFAULT_DIRECTORY_SDDL
    assert sddl_of(share, file.get_file_properties()).startswith("O:SYG:SYD:(A;;FA;;;BA)")
    other = share.get_directory_client("other")
    other.create_directory(file_permission="O:BAG:BAD:(A;OICI;FA;;;WD)")
    child, file = other.create_subdirectory("child"), other.upload_file("file", b"")
    null_sacl = "S:NO_ACCESS_CONTROL"
    for shown, expected in (
        (other.get_directory_properties(), "O:BAG:BAD:(A;OICI;FA;;;WD)"),
        (child.get_directory_properties(), "O:SYG:SYD:(A;OICI;FA;;;WD)"),
        (file.get_file_properties(), "O:SYG:SYD:(A;;FA;;;WD)"),
    ):
        assert sddl_of(share, shown) == expected + null_sacl
    key = file.get_file_properties().permission_key
    moved = file.rename_file("plain/moved")
    assert moved.get_file_properties().permission_key == key


def test_entries_that_inherit_from_a_long_permission(share: ShareClient) -> None:
    entries = "(A;OICI;GA;;;CO)" * 3_200
    key = str(share.create_permission_for_share(f"O:SYG:SYD:{entries}"))
    long = share.get_directory_client("long")
    long.create_directory(file_permission_key=key)
    with refused(400, "FileInvalidPermission"):
        long.create_subdirectory("child")
    source = share.get_file_client("source")
    source.upload_file(b"source")
    created, copied = long.get_file_client("created"), long.get_file_client("copied")
    copied.start_copy_from_url(source.url)
    created.create_file(0)
    for file in (copied, created):
        shown = sddl_of(share, file.get_file_properties())
        assert shown == f"O:SYG:SYD:{'(A;;FA;;;SY)' * 3_200}S:NO_ACCESS_CONTROL"


def test_permissions_that_entries_are_given(share: ShareClient) -> None:
    key = str(share.create_permission_for_share(SDDL))
    directory = share.get_directory_client("directory")
    directory.create_directory(file_permission_key=key)
    assert directory.get_directory_properties().permission_key == key
    directory.set_http_headers(file_attributes="none", file_permission="O:SYG:SYD:")
    assert sddl_of(share, directory.get_directory_properties()).startswith("O:SYG:SYD:S:")
    file = directory.get_file_client("file")
    binary = share.get_permission_for_share(key, file_permission_format="binary")
    file.create_file(0, file_permission=binary, file_permission_format="binary")
    assert file.get_file_properties().permission_key == key
    file.set_http_headers(ContentSettings(content_type="text/plain"))
    assert file.get_file_properties().permission_key == key
    long = "O:SYG:SYD:" + "".join(f"(A;;FA;;;S-1-5-21-1-2-3-{each})" for each in range(300))
    key = str(share.create_permission_for_share(long))
    other = directory.get_file_client("other")
    other.create_file(0, permission_key=key)
    assert sddl_of(share, other.get_file_properties()) == f"{long}S:NO_ACCESS_CONTROL"


def test_tokens_for_the_share(share: ShareClient) -> None:
    with sas_client(share, share_token(share, permission="rwd")) as client:
        key = str(client.create_permission_for_share("O:SYG:SYD:"))
        assert client.get_permission_for_share(key).startswith("O:SYG:SYD:")
    with (
        sas_client(share, share_token(share, permission="r")) as reader,
        refused(403, "AuthorizationPermissionMismatch"),
    ):
        reader.create_permission_for_share("O:SYG:SYD:")

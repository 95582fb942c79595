"""Bad requests for copies of files are refused, and change nothing."""

from __future__ import annotations

from tests.probes.client import Request, shared_key
from tests.probes.file.fixture import FileFixture
from tests.probes.file.operations import OPERATIONS, SDDL, VERSION
from tests.server import ACCOUNT, KEY

SIGN = shared_key(ACCOUNT, KEY)
BAD_HEADERS = [
    ("x-ms-copy-source", "", "MissingRequiredHeader"),
    ("x-ms-copy-source", "/devstoreaccount1/share/file", "InvalidHeaderValue"),
    ("x-ms-file-attributes", "Directory", "InvalidHeaderValue"),
    ("x-ms-file-attributes", "Preserve", "InvalidHeaderValue"),
    ("x-ms-file-creation-time", "yesterday", "InvalidHeaderValue"),
    ("x-ms-file-last-write-time", "preserve", "InvalidHeaderValue"),
    ("x-ms-file-change-time", "9999-99-99", "InvalidHeaderValue"),
    ("x-ms-file-permission", "nonsense", "FileInvalidPermission"),
    ("x-ms-file-permission-key", "nonsense", "FileInvalidPermissionKey"),
    ("x-ms-file-permission-key", "123*456", "FileInvalidPermissionKey"),
    ("x-ms-file-permission-copy-mode", "both", "InvalidHeaderValue"),
    ("x-ms-file-copy-ignore-readonly", "perhaps", "InvalidHeaderValue"),
    ("x-ms-file-copy-set-archive", "1", "InvalidHeaderValue"),
    ("x-ms-file-owner-copy-mode", "x", "InvalidHeaderValue"),
    ("x-ms-file-mode-copy-mode", "x", "InvalidHeaderValue"),
    ("x-ms-mode", "0755", "UnsupportedHeader"),
    ("x-ms-owner", "0", "UnsupportedHeader"),
    ("x-ms-lease-id", "x", "InvalidHeaderValue"),
    ("x-ms-meta-1", "x", "InvalidMetadata"),
    ("x-ms-source-allow-trailing-dot", "x", "InvalidHeaderValue"),
    ("x-ms-copy-source-authorization", "Bearer x", "UnsupportedHeader"),
]


def test_bad_copies(files: FileFixture) -> None:
    operation = next(form for form in OPERATIONS if form.name == "copy_file_over_another")
    with files.target_for(operation) as target, files.unchanged():
        wrong = []
        for name, value, code in BAD_HEADERS:
            answer = files.client.ask(SIGN(operation.request(target).setting(name, value)))
            if (answer.code, 400 <= answer.status < 500) != (code, True):
                wrong.append((name, value, answer.status, answer.code))
        both = operation.request(target).having(
            ("x-ms-file-permission-copy-mode", "source"), ("x-ms-file-permission", SDDL)
        )
        assert files.client.ask(SIGN(both)).code == "InvalidHeaderValue"
        assert not wrong


def test_bad_aborts(files: FileFixture) -> None:
    target = files.create()
    path = f"/{ACCOUNT}/{target.share}/{target.file}"
    action = ("x-ms-copy-action", "abort")
    copy_id = ("copyid", "11111111-2222-3333-4444-555555555555")
    comp, version = ("comp", "copy"), ("x-ms-version", VERSION)
    with files.unchanged():
        for query, headers, code in (
            ((comp, copy_id), (action,), "NoPendingCopyOperation"),
            ((comp, copy_id), (), "MissingRequiredHeader"),
            ((comp, copy_id), (("x-ms-copy-action", "stop"),), "InvalidHeaderValue"),
            ((comp,), (action,), "MissingRequiredQueryParameter"),
            ((comp, ("copyid", "x")), (action,), "InvalidQueryParameterValue"),
            ((comp, copy_id, ("sharesnapshot", "x")), (action,), "InvalidQueryParameterValue"),
        ):
            answer = files.client.ask(SIGN(Request("PUT", path, query, (version, *headers))))
            assert answer.code == code, (query, headers, answer)
        missing = Request("PUT", f"{path}x", (comp, copy_id), (version, action))
        assert files.client.ask(SIGN(missing)).code == "ResourceNotFound"
        directory = Request("PUT", f"/{ACCOUNT}/{target.share}/{target.directory}",
                            (comp, copy_id), (version, action))  # fmt: skip
        assert files.client.ask(SIGN(directory)).code == "ResourceTypeMismatch"
    files.remove(target)

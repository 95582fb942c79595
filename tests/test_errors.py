"""The error table, compared with independently stated facts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from etagere.errors import (
    ERRORS,
    OTHER_STATUSES,
    STATUS_BY_SERVICE,
    Error,
    Refusal,
    _by_code,
    http_status,
)
from etagere.nt_status import NtStatus

STATUSES = {400, 401, 403, 404, 405, 408, 409, 411, 412, 413, 415, 416, 500, 501, 503}

# Messages that the service was recorded to send without a full stop.
UNFINISHED = {"MediaTypeNotSupported"}

WELL_KNOWN = [
    ("AuthenticationFailed", 403),
    ("AuthorizationPermissionMismatch", 403),
    ("BlobAlreadyExists", 409),
    ("BlobNotFound", 404),
    ("ConditionNotMet", 412),
    ("ContainerAlreadyExists", 409),
    ("ContainerBeingDeleted", 409),
    ("ContainerNotFound", 404),
    ("EntityAlreadyExists", 409),
    ("FilesystemNotFound", 404),
    ("InternalError", 500),
    ("InvalidBlockList", 400),
    ("InvalidHeaderValue", 400),
    ("InvalidPageRange", 416),
    ("InvalidRange", 416),
    ("LeaseAlreadyPresent", 409),
    ("LeaseIdMismatchWithBlobOperation", 412),
    ("LeaseIdMismatchWithLeaseOperation", 409),
    ("LeaseIdMissing", 412),
    ("MessageNotFound", 404),
    ("MissingContentLengthHeader", 411),
    ("NoAuthenticationInformation", 401),
    ("NotImplemented", 501),
    ("OperationTimedOut", 500),
    ("PathAlreadyExists", 409),
    ("QueueNotFound", 404),
    ("RequestBodyTooLarge", 413),
    ("ServerBusy", 503),
    ("ShareNotFound", 404),
    ("SharingViolation", 409),
    ("TableNotFound", 404),
    ("UnsupportedHttpVerb", 405),
    ("UpdateConditionNotSatisfied", 412),
]

SMB_EQUIVALENTS = [
    ("SharingViolation", 0xC0000043),
    ("SMBDeletePending", 0xC0000056),
    ("DeletePending", 0xC0000056),
    ("FileLockConflict", 0xC0000054),
    ("ResourceNotFound", 0xC0000034),
    ("ParentNotFound", 0xC000003A),
    ("ResourceAlreadyExists", 0xC0000035),
    ("DirectoryNotEmpty", 0xC0000101),
    ("CannotDeleteFileOrDirectory", 0xC0000121),
    ("ShareSizeLimitReached", 0xC000007F),
    ("HandleLimitExceeded", 0xC000011F),
    ("InvalidResourceName", 0xC0000033),
    ("InvalidInput", 0xC000000D),
    ("AuthorizationFailure", 0xC0000022),
    ("BlobNotFound", None),
    ("EntityAlreadyExists", None),
]


def recorded_statuses() -> dict[str, int]:
    text = (Path(__file__).parent / "data" / "error_codes.json").read_text(encoding="utf-8")
    return msgspec.convert(json.loads(text), dict[str, int])


@pytest.mark.parametrize("error", ERRORS.values(), ids=lambda error: error.code)
def test_row_is_well_formed(error: Error) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", error.code)
    assert error.status in STATUSES
    assert error.message.endswith(".") or error.code in UNFINISHED
    assert error.message == " ".join(error.message.split())
    assert not re.search(r"[{}<>%\n]|TODO|RequestId", error.message)


def test_codes_differ_by_more_than_case() -> None:
    assert len({code.lower() for code in ERRORS}) == len(ERRORS)
    assert all(code == error.code for code, error in ERRORS.items())


def test_second_row_for_a_code_is_refused() -> None:
    row = Error("BlobNotFound", 404, "The specified blob does not exist.")
    with pytest.raises(ValueError, match="BlobNotFound"):
        _by_code((row,), (row,))


def test_table_holds_exactly_the_recorded_codes() -> None:
    assert {code: error.status for code, error in ERRORS.items()} == recorded_statuses()


@pytest.mark.parametrize(("code", "status"), WELL_KNOWN)
def test_well_known_status(code: str, status: int) -> None:
    assert ERRORS[code].status == status


@pytest.mark.parametrize(("code", "nt_status"), SMB_EQUIVALENTS)
def test_smb_equivalent(code: str, nt_status: int | None) -> None:
    assert ERRORS[code].nt_status == nt_status


def test_every_nt_status_is_a_known_error() -> None:
    statuses = {error.nt_status for error in ERRORS.values()} - {None}
    assert statuses <= set(NtStatus)
    assert all(value >> 30 == 0b11 for value in statuses if value is not None)


def test_status_that_depends_on_the_service() -> None:
    assert http_status("FeatureVersionMismatch", "blob") == 409
    assert http_status("FeatureVersionMismatch", "file") == 400
    assert http_status("PreviousSnapshotNotFound", "blob") == 409
    assert http_status("PreviousSnapshotNotFound", "file") == 404
    assert http_status("BlobNotFound", "dfs") == 404


def test_exceptions_name_rows_and_differ_from_them() -> None:
    for (service, code), status in STATUS_BY_SERVICE.items():
        assert service in {"blob", "queue", "table", "file", "dfs"}
        assert status != ERRORS[code].status
    for code, statuses in OTHER_STATUSES.items():
        assert statuses
        assert ERRORS[code].status not in statuses


def test_refusal_has_its_row() -> None:
    assert Refusal("LeaseIdMissing").error is ERRORS["LeaseIdMissing"]


def test_refusal_with_an_unknown_code_raises() -> None:
    with pytest.raises(ValueError, match="BlobNotFuond"):
        Refusal("BlobNotFuond")
    with pytest.raises(msgspec.ValidationError, match="BlobNotFuond"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(["BlobNotFuond", {}]), type=Refusal)


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("BlobNotFound"),
        Refusal("ConditionNotMet", {"condition": "If-Match", "current": '"0x8D"', "ends": 2**40}),
    ],
)
def test_refusals_round_trip(refusal: Refusal) -> None:
    encoded = msgspec.msgpack.encode(refusal)
    assert msgspec.msgpack.decode(encoded, type=Refusal) == refusal


def test_refusals_do_not_share_their_details() -> None:
    assert Refusal("BlobNotFound").facts is not Refusal("BlobNotFound").facts

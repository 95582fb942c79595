"""Keys of sessions, compared with published ones."""

from __future__ import annotations

import pytest

from etagere.protocol.smb.encryption import Cipher
from etagere.protocol.smb.keys import (
    INITIAL_PREAUTH_HASH,
    SessionKeys,
    derive_keys,
    extend_preauth_hash,
)
from tests.protocol.smb import windows_messages as windows

SMB_3_0_SESSION_KEY = bytes.fromhex("7CD451825D0450D235424E44BA6E78CC")


def test_smb_2_signs_with_the_session_key() -> None:
    assert derive_keys(0x0210, b"k" * 16, b"", None) == SessionKeys(b"k" * 16, b"", b"")


@pytest.mark.parametrize("dialect", [0x0300, 0x0302])
def test_smb_3_0(dialect: int) -> None:
    keys = derive_keys(dialect, SMB_3_0_SESSION_KEY, b"", Cipher.AES_128_CCM)
    assert keys.signing.hex().upper() == "0B7E9C5CAC36C0F6EA9AB275298CEDCE"
    assert keys.decryption.hex().upper() == "FAD27796665B313EBB578F388632B4F7"
    assert keys.encryption.hex().upper() == "B0F0427F7CEB416D1D9DCC0CD4F99447"


def test_smb_3_1_1() -> None:
    keys = derive_keys(0x0311, windows.SESSION_KEY, windows.HASH_OF_SESSION, Cipher.AES_128_GCM)
    assert keys.signing == windows.SIGNING_KEY
    assert keys.decryption.hex().upper() == "629BCBC54422A0F572B97F45989B6073"
    assert keys.encryption.hex().upper() == "E2AF0DCEFAC68DA71A0DFBD0D1350D74"


def test_keys_of_encrypted_messages() -> None:
    ccm = derive_keys(0x0300, windows.CCM_SESSION_KEY, b"", Cipher.AES_128_CCM)
    assert ccm.decryption == windows.CCM_KEY_OF_CLIENT
    assert ccm.encryption == windows.CCM_KEY_OF_SERVER
    gcm = derive_keys(
        0x0311, windows.GCM_SESSION_KEY, windows.GCM_HASH_OF_SESSION, Cipher.AES_128_GCM
    )
    assert gcm.decryption == windows.GCM_KEY_OF_CLIENT
    assert gcm.encryption == windows.GCM_KEY_OF_SERVER


@pytest.mark.parametrize("cipher", [Cipher.AES_256_CCM, Cipher.AES_256_GCM])
def test_long_keys(cipher: Cipher) -> None:
    """The length is an input of the derivation: a long key does not start with the short one."""
    long = derive_keys(0x0311, windows.SESSION_KEY, windows.HASH_OF_SESSION, cipher)
    assert long.signing == windows.SIGNING_KEY
    assert (len(long.decryption), len(long.encryption)) == (32, 32)
    assert not long.decryption.hex().upper().startswith("629BCBC5")


def test_without_encryption() -> None:
    keys = derive_keys(0x0311, windows.SESSION_KEY, windows.HASH_OF_SESSION, None)
    assert keys == SessionKeys(windows.SIGNING_KEY, b"", b"")


def test_preauth_hash() -> None:
    value = extend_preauth_hash(INITIAL_PREAUTH_HASH, windows.NEGOTIATE_REQUEST)
    assert value == windows.HASH_AFTER_NEGOTIATE_REQUEST
    value = windows.HASH_AFTER_NEGOTIATE_RESPONSE
    value = extend_preauth_hash(value, windows.FIRST_SESSION_SETUP_REQUEST)
    assert value == windows.HASH_AFTER_FIRST_REQUEST
    value = extend_preauth_hash(value, memoryview(windows.FIRST_SESSION_SETUP_RESPONSE))
    assert value == windows.HASH_AFTER_FIRST_RESPONSE
    value = extend_preauth_hash(value, bytearray(windows.SECOND_SESSION_SETUP_REQUEST))
    assert value == windows.HASH_OF_SESSION

"""SDDL against texts that Windows and the File service are known to print."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.model.security_descriptors import (
    NULL_ACL,
    Ace,
    AceFlag,
    AceType,
    Acl,
    Control,
    CustomAce,
    SecurityDescriptor,
    Sid,
)
from etagere.rules.sddl import (
    SDDL_LENGTH_MAX,
    NoSddlFormError,
    format_rights,
    format_sddl,
    parse_rights,
    parse_sddl,
)
from etagere.rules.security_descriptors import (
    InvalidDescriptorError,
    decode_descriptor,
    encode_descriptor,
)
from etagere.rules.sids import (
    DOMAIN_ALIASES,
    SID_ALIASES,
    format_sid,
    format_sid_numbers,
    parse_sid,
)
from tests.rules.descriptors import sids, text_descriptors, words

DOMAIN = Sid(5, (21, 397955417, 626881126, 188441444))
EVERYONE = SID_ALIASES["WD"]
GUID = "bf967aba-0de6-11d0-a285-00aa003049e2"

# SIDs

WELL_KNOWN = {
    "AA": "S-1-5-32-579",
    "AC": "S-1-15-2-1",
    "AN": "S-1-5-7",
    "AO": "S-1-5-32-548",
    "AS": "S-1-18-1",
    "AU": "S-1-5-11",
    "BA": "S-1-5-32-544",
    "BG": "S-1-5-32-546",
    "BO": "S-1-5-32-551",
    "BU": "S-1-5-32-545",
    "CD": "S-1-5-32-574",
    "CG": "S-1-3-1",
    "CO": "S-1-3-0",
    "CY": "S-1-5-32-569",
    "ED": "S-1-5-9",
    "ER": "S-1-5-32-573",
    "ES": "S-1-5-32-576",
    "HA": "S-1-5-32-578",
    "HI": "S-1-16-12288",
    "IS": "S-1-5-32-568",
    "IU": "S-1-5-4",
    "LS": "S-1-5-19",
    "LU": "S-1-5-32-559",
    "LW": "S-1-16-4096",
    "ME": "S-1-16-8192",
    "MP": "S-1-16-8448",
    "MS": "S-1-5-32-577",
    "MU": "S-1-5-32-558",
    "NO": "S-1-5-32-556",
    "NS": "S-1-5-20",
    "NU": "S-1-5-2",
    "OW": "S-1-3-4",
    "PO": "S-1-5-32-550",
    "PS": "S-1-5-10",
    "PU": "S-1-5-32-547",
    "RA": "S-1-5-32-575",
    "RC": "S-1-5-12",
    "RD": "S-1-5-32-555",
    "RE": "S-1-5-32-552",
    "RM": "S-1-5-32-580",
    "RU": "S-1-5-32-554",
    "SI": "S-1-16-16384",
    "SO": "S-1-5-32-549",
    "SS": "S-1-18-2",
    "SU": "S-1-5-6",
    "SY": "S-1-5-18",
    "UD": "S-1-5-84-0-0-0-0-0",
    "WD": "S-1-1-0",
    "WR": "S-1-5-33",
}


def test_every_alias_is_in_the_table() -> None:
    assert set(SID_ALIASES) == set(WELL_KNOWN)
    assert not set(SID_ALIASES) & set(DOMAIN_ALIASES)


@pytest.mark.parametrize(("alias", "numbers"), WELL_KNOWN.items())
def test_alias_of_a_sid(alias: str, numbers: str) -> None:
    assert parse_sid(alias) == parse_sid(numbers) == parse_sid(alias.lower())
    assert format_sid(parse_sid(numbers)) == alias
    assert format_sid_numbers(parse_sid(alias)) == numbers


@pytest.mark.parametrize(("alias", "rid"), DOMAIN_ALIASES.items())
def test_alias_of_a_domain_account_needs_the_domain(alias: str, rid: int) -> None:
    numbers = f"{format_sid_numbers(DOMAIN)}-{rid}"
    assert parse_sid(alias, DOMAIN) == parse_sid(numbers)
    assert format_sid(parse_sid(numbers), DOMAIN) == alias
    assert format_sid(parse_sid(numbers)) == numbers
    with pytest.raises(InvalidDescriptorError):
        parse_sid(alias)


def test_domain_account_without_an_alias_is_printed_as_numbers() -> None:
    numbers = f"{format_sid_numbers(DOMAIN)}-3053964"
    assert format_sid(parse_sid(numbers), DOMAIN) == numbers
    assert format_sid(parse_sid("S-1-5-21-1-2-3-512"), DOMAIN) == "S-1-5-21-1-2-3-512"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("S-1-0-0", "S-1-0-0"),
        ("s-1-5-18", "SY"),
        ("S-1-0x2-3-4", "S-1-2-3-4"),
        ("S-1-3-0xffffffff-3-4", "S-1-3-4294967295-3-4"),
        ("S-1-5-21-0x1-0x2-0x3-513", "S-1-5-21-1-2-3-513"),
        # An authority of more than 32 bits is printed in hexadecimal.
        ("S-1-4294967295-1", "S-1-4294967295-1"),
        ("S-1-21474836480-32-579", "S-1-0x500000000-32-579"),
        ("S-1-5000000000-30-40", "S-1-0x12A05F200-30-40"),
        ("S-1-281474976710655-1", "S-1-0xFFFFFFFFFFFF-1"),
        ("S-1-5" + "-1" * 15, "S-1-5" + "-1" * 15),
    ],
)
def test_numbers_of_a_sid(text: str, canonical: str) -> None:
    assert format_sid(parse_sid(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "S",
        "S-",
        "S-1",
        "S-1-5",
        "S-1-5-",
        "S-2-5-18",
        "S-0x1-5-18",
        "S-1-5-18-",
        "S-1--18",
        "S-1-5-x",
        "S-1-5-0x",
        "S-1-5-1 8",
        "S-1-5-+18",
        "S-1-5-1_8",
        "S-1-5-٣",
        "S-1-5-4294967296",
        "S-1-5-0x100000000",
        "S-1-281474976710656-1",
        "S-1-0x1000000000000-1",
        "S-1-0x1313131313131-513",
        "S-1-5" + "-1" * 16,
        "ZZ",
        "S ",
        "SYS",
        "ß",
        "\u017fy",
    ],
)
def test_malformed_sid_is_refused(text: str) -> None:
    with pytest.raises(InvalidDescriptorError):
        parse_sid(text)


@given(sids)
def test_every_sid_survives_its_text(sid: Sid) -> None:
    assert parse_sid(format_sid(sid)) == sid
    assert parse_sid(format_sid_numbers(sid)) == sid
    assert parse_sid(format_sid(sid, DOMAIN), DOMAIN) == sid


# Rights


@pytest.mark.parametrize(
    ("text", "mask", "canonical"),
    [
        ("", 0, ""),
        ("0", 0, ""),
        ("0x0", 0, ""),
        ("FA", 0x1F01FF, "FA"),
        ("FR", 0x120089, "FR"),
        ("FW", 0x120116, "FW"),
        ("FX", 0x1200A0, "FX"),
        ("FRFX", 0x1200A9, "0x1200a9"),
        ("0x1F01FF", 0x1F01FF, "FA"),
        ("0x1301bf", 0x1301BF, "0x1301bf"),
        ("0X1301BF", 0x1301BF, "0x1301bf"),
        ("KA", 0xF003F, "KA"),
        ("KR", 0x20019, "KR"),
        ("KX", 0x20019, "KR"),
        ("KW", 0x20006, "KW"),
        ("CC", 0x1, "CC"),
        ("DC", 0x2, "DC"),
        ("LC", 0x4, "LC"),
        ("SW", 0x8, "SW"),
        ("RP", 0x10, "RP"),
        ("WP", 0x20, "WP"),
        ("DT", 0x40, "DT"),
        ("LO", 0x80, "LO"),
        ("CR", 0x100, "CR"),
        ("SD", 0x10000, "SD"),
        ("RC", 0x20000, "RC"),
        ("WD", 0x40000, "WD"),
        ("WO", 0x80000, "WO"),
        ("GA", 0x10000000, "GA"),
        ("GX", 0x20000000, "GX"),
        ("GW", 0x40000000, "GW"),
        ("GR", 0x80000000, "GR"),
        ("GRGWGXSD", 0xE0010000, "SDGXGWGR"),
        ("RPWPCRCCDCLCLORCWOWDSDDTSW", 0xF01FF, "CCDCLCSWRPWPDTLOCRSDRCWDWO"),
        ("RPWPCCDCLCSWRCWDWOGA", 0x100E003F, "CCDCLCSWRPWPRCWDWOGA"),
        ("GAGA", 0x10000000, "GA"),
        ("ga", 0x10000000, "GA"),
        (" GA", 0x10000000, "GA"),
        ("16", 0x10, "RP"),
        ("17", 0x11, "CCRP"),
        ("0xff", 0xFF, "CCDCLCSWRPWPDTLO"),
        ("0xe00f0000", 0xE00F0000, "SDRCWDWOGXGWGR"),
        ("123456789", 0x75BCD15, "0x75bcd15"),
        ("01234567", 0x53977, "0x53977"),
        ("0x401200a0", 0x401200A0, "0x401200a0"),
        ("0x100000", 0x100000, "0x100000"),
        ("0xffffffff", 0xFFFFFFFF, "0xffffffff"),
        ("4294967295", 0xFFFFFFFF, "0xffffffff"),
        ("NW", 0x1, "CC"),
    ],
)
def test_rights(text: str, mask: int, canonical: str) -> None:
    assert parse_rights(text) == mask
    assert format_rights(mask) == canonical
    assert parse_rights(canonical) == mask


@pytest.mark.parametrize(
    "text",
    [
        "G",
        "GAG",
        "ZZ",
        "GA ",
        "0x",
        "0x 1",
        "0x1 ",
        "08",
        "-1",
        "+1",
        "1_0",
        "٣",
        "0x100000000",
        "4294967296",
        "0x123456789",
        "0x" + "0" * 100 + "1",
        "GA" * 1000,
        "CROOO",
        "GAß",
        "\u017fD",
    ],
)
def test_malformed_rights_are_refused(text: str) -> None:
    with pytest.raises(InvalidDescriptorError):
        parse_rights(text)


@given(words)
def test_every_mask_survives_its_text(mask: int) -> None:
    for ace_type in (AceType.ALLOWED, AceType.MANDATORY_LABEL):
        assert parse_rights(format_rights(mask, ace_type)) == mask


# Texts

CANONICAL = [
    "",
    "O:SY",
    "G:BA",
    "O:S-1-2-512D:",
    "D:",
    "D:S:",
    "D:PS:",
    "D:PARAI",
    "D:NO_ACCESS_CONTROL",
    "D:AINO_ACCESS_CONTROL",
    "S:NO_ACCESS_CONTROL",
    "D:NO_ACCESS_CONTROLS:PNO_ACCESS_CONTROL",
    "D:PARAI(A;;GA;;;SY)",
    "D:(D;;FA;;;AN)(A;OICIIO;GXGR;;;BU)",
    "D:(A;;;;;BO)",
    "D:(A;;0x401200a0;;;BU)",
    "D:AI(A;OICINPIOID;FA;;;WD)",
    "D:(OA;;CR;1131f6aa-9c07-11d1-f79f-00c04fc2dcd2;;ED)",
    f"D:(OA;CIIO;LCRPLORC;;{GUID};RU)",
    f"D:(OD;CIIO;RP;037088f8-0ae1-11d2-b422-00a0c968f939;{GUID};RU)",
    "D:(OA;;CR;;;WD)",
    "S:(AU;SA;CR;;;WD)(AU;SAFA;WPWDWO;;;WD)",
    f"S:(OU;CISA;WP;f30e3bbe-9ff0-11d1-b603-0000f80367c1;{GUID};WD)",
    "S:(AL;FA;GA;;;WD)(OL;FA;GA;;;WD)",
    "S:AI(ML;;NW;;;LW)(ML;OICI;NWNRNX;;;HI)",
    "S:(SP;;;;;S-1-17-1-2-3-4)",
    "S:(TL;;0x1fffff;;;S-1-19-512-8192)",
    "S:PARAI(AU;OICISAFA;0x1f0116;;;WD)",
    # What the File service answers for a directory and for a file that it has created.
    "O:SYG:SYD:(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;;0x1200a9;;;BU)(A;OICIIO;GXGR;;;BU)"
    "(A;OICI;0x1301bf;;;AU)(A;;FA;;;SY)(A;OICIIO;GA;;;CO)",
    "O:SYG:SYD:(A;;FA;;;BA)(A;;FA;;;SY)(A;;0x1200a9;;;BU)(A;;0x1301bf;;;AU)(A;;FA;;;SY)",
    # The permission in the tests of the public SDKs.
    "O:S-1-5-21-2127521184-1604012920-1887927527-21560751"
    "G:S-1-5-21-2127521184-1604012920-1887927527-513"
    "D:AI(A;;FA;;;SY)(A;;FA;;;BA)"
    "(A;;0x1200a9;;;S-1-5-21-397955417-626881126-188441444-3053964)S:NO_ACCESS_CONTROL",
    # Owner and group end in hexadecimal digits in front of a D.
    "O:S-1-5-21-1225132014-296224811-2507946102-512"
    "G:S-1-5-21-1225132014-296224811-2507946102-512D:P",
]


@pytest.mark.parametrize("text", CANONICAL)
def test_canonical_text_comes_back(text: str) -> None:
    descriptor = parse_sddl(text)
    assert format_sddl(descriptor) == text
    assert decode_descriptor(encode_descriptor(descriptor)) == descriptor


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        # An answer of the File service for this request.
        (
            "O:S-1-5-32-548G:S-1-5-21-397955417-626881126-188441444-512"
            "D:(A;;RPWPCCDCLCSWRCWDWOGA;;;S-1-0-0)",
            "O:AOG:S-1-5-21-397955417-626881126-188441444-512D:(A;;CCDCLCSWRPWPRCWDWOGA;;;S-1-0-0)",
        ),
        ("S:D:P", "D:PS:"),
        ("S:D:", "D:S:"),
        ("D:G:BAO:SY", "O:SYG:BAD:"),
        ("D:ARPAI(A;;GA;;;SY)", "D:PARAI(A;;GA;;;SY)"),
        ("D:PARP(A;;GA;;;SY)", "D:PAR(A;;GA;;;SY)"),
        ("D:PPPPPPPPPPPP(A;;GA;;;SY)", "D:P(A;;GA;;;SY)"),
        ("D:NO_ACCESS_CONTROLP", "D:PNO_ACCESS_CONTROL"),
        # The D is the tag of the list, not a digit of the SID.
        ("O:S-1-2-0x200D:", "O:S-1-2-512D:"),
        ("O:S-1-2-0x2D:(A;;GA;;;SY)", "O:S-1-2-2D:(A;;GA;;;SY)"),
        ("D:(A;CIOIIO;GA;;;SY)", "D:(A;OICIIO;GA;;;SY)"),
        (f"D:(OA;;CR;{GUID.upper()};;ED)", f"D:(OA;;CR;{GUID};;ED)"),
        ("S:(ML;;0x1;;;LW)", "S:(ML;;NW;;;LW)"),
        ("S:(ML;;0x9;;;LW)", "S:(ML;;0x9;;;LW)"),
        # Upper and lower case, and spaces
        ("D:(a;oici;ga;;;wd)", "D:(A;OICI;GA;;;WD)"),
        ("  O:AA G:WD ", "O:AAG:WD"),
        ("D: (A;;GA;;;SY)", "D:(A;;GA;;;SY)"),
        ("D: P (A;;GA;;;SY)\r\n (A;;GX;;;AA) ", "D:P(A;;GA;;;SY)(A;;GX;;;AA)"),
        ("D: S:", "D:S:"),
        ("D:(A; ;GA; ; ;SY)", "D:(A;;GA;;;SY)"),
        ("D:(A;; GA;;; S-1-3-4)", "D:(A;;GA;;;OW)"),
        ("D:(A;;GA;;;WD )", "D:(A;;GA;;;WD)"),
    ],
)
def test_other_texts_become_canonical(text: str, canonical: str) -> None:
    assert format_sddl(parse_sddl(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "X",
        "invalid",
        "O",
        "O:",
        "O:G:SY",
        "O:ZZ",
        "O:SYSY",
        "O:SYX:SY",
        "O:SY:",
        "::",
        "O::",
        "o:SY",
        "d:(A;;GA;;;WD)",
        "Z:(A;;GA;;;SY)",
        "D :S:",
        "D:P:S:",
        "O:SYO:SY",
        "D:D:",
        "S:D:S:",
        "D:p",
        "D:X",
        "D:A",
        "D:no_access_control",
        "D:NO_ACCESS_CONTROL(A;;GA;;;WD)",
        "D:(A;;GA;;;WD)P",
        "D:(A;;GA;;;WD",
        "D:A;;GA;;;WD)",
        "D:()",
        "D:(;;;;;)",
        "D:((A;;GA;;;WD))",
        "D:(A;;GA;;)",
        "D:(A;;GA;;;)",
        "D:(A;;GA;;;WD;)",
        "D:(A;;GA;;;WD;WD)",
        "D:(Antlers;;GA;;;SY)",
        "D:(Ā;;GA;;;WD)",
        "D:(A;XX;GA;;;WD)",
        "D:(A;O;GA;;;WD)",
        "D:(A;TP;GA;;;WD)",
        f"D:(A;{'OI' * 1000};GA;;;WD)",
        "D:(A;;GA ;;;WD)",
        "D:(A;;GA;;;DA)",
        "D:(A;;GA;a;;WD)",
        f"D:(OA;;GA; {GUID};;WD)",
        f"D:(OA;;GA;;{GUID} ;WD)",
        f"D:(OA;;GA;{{{GUID}}};;WD)",
        f"D:(OA;;GA;{GUID.replace('-', '')};;WD)",
        f"D:(OA;;GA;{GUID[:-1]}g;;WD)",
        # Only object entries have GUIDs.
        f"D:(A;;GA;{GUID};;WD)",
        # Each list has its own types.
        "D:(AU;SA;CR;;;BA)",
        "D:(ML;;NW;;;LW)",
        "S:(A;;GA;;;WD)",
        "S:(OA;;GA;;;WD)",
        # Conditions and attributes are accepted in binary form only.
        'D:(XA;;FX;;;WD;(@User.Title=="PM"))',
        "D:(XA;;FX;;;WD)",
        "D:(XD;;FX;;;WD;(Member_of {SID(BA)}))",
        'S:(RA;;;;;WD;("Secrecy",TU,0,3))',
        "O:SY\0",
        "O:\u017fy",
        "S:(\ufb02;;;;;WD)",
        "D:(A;\u0131d;GA;;;WD)",
        "(" * 5000,
        "D:" + "(" * 5000,
        "O:" * 5000,
        "D:" + "P" * 5000,
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidDescriptorError):
        parse_sddl(text)


def test_parts_of_a_text() -> None:
    assert parse_sddl("O:BAG:SYD:P(A;OICI;0x1301bf;;;WD)S:AI(AU;SAFA;SD;;;WD)") == (
        SecurityDescriptor(
            owner=SID_ALIASES["BA"],
            group=SID_ALIASES["SY"],
            dacl=Acl((Ace(AceType.ALLOWED, 3, 0x1301BF, EVERYONE),)),
            sacl=Acl((Ace(AceType.AUDIT, 0xC0, 0x10000, EVERYONE),)),
            control=Control.DACL_PROTECTED | Control.SACL_AUTO_INHERITED,
        )
    )
    assert parse_sddl("D:") == SecurityDescriptor(dacl=Acl(()))
    assert parse_sddl("D:NO_ACCESS_CONTROL") == SecurityDescriptor(dacl=NULL_ACL)
    assert parse_sddl("O:SY") == SecurityDescriptor(owner=SID_ALIASES["SY"])


def test_domain_applies_to_every_part() -> None:
    text = "O:LAG:DUD:(A;;FA;;;DA)S:(AU;SA;FA;;;EA)"
    descriptor = parse_sddl(text, DOMAIN)
    assert format_sddl(descriptor, DOMAIN) == text
    prefix = format_sid_numbers(DOMAIN)
    assert format_sddl(descriptor) == (
        f"O:{prefix}-500G:{prefix}-513D:(A;;FA;;;{prefix}-512)S:(AU;SA;FA;;;{prefix}-519)"
    )


def test_object_entries_raise_the_revision_of_their_list() -> None:
    descriptor = parse_sddl("D:(A;;GA;;;WD)(OA;;GA;;;WD)S:(AU;SA;GA;;;WD)")
    assert descriptor.dacl is not None
    assert descriptor.dacl.revision == 4
    assert descriptor.sacl is not None
    assert descriptor.sacl.revision == 2


@pytest.mark.parametrize(
    "descriptor",
    [
        SecurityDescriptor(dacl=Acl((CustomAce(0x99, 0, b""),))),
        SecurityDescriptor(sacl=Acl((CustomAce(4, 0, b""),))),
        SecurityDescriptor(dacl=Acl((Ace(AceType.AUDIT, 0, 1, EVERYONE),))),
        SecurityDescriptor(sacl=Acl((Ace(AceType.ALLOWED, 0, 1, EVERYONE),))),
        SecurityDescriptor(dacl=Acl((Ace(AceType.DENIED_CALLBACK_OBJECT, 0, 1, EVERYONE),))),
        SecurityDescriptor(dacl=Acl((Ace(AceType.ALLOWED_CALLBACK, 0, 1, EVERYONE),))),
        SecurityDescriptor(sacl=Acl((Ace(AceType.RESOURCE_ATTRIBUTE, 0, 1, EVERYONE),))),
    ],
)
def test_entries_without_a_text(descriptor: SecurityDescriptor) -> None:
    assert decode_descriptor(encode_descriptor(descriptor)) == descriptor
    with pytest.raises(NoSddlFormError):
        format_sddl(descriptor)


@pytest.mark.parametrize("flag", list(AceFlag))
def test_every_flag_of_an_entry_has_a_name(flag: AceFlag) -> None:
    descriptor = SecurityDescriptor(dacl=Acl((Ace(AceType.ALLOWED, flag, 1, EVERYONE),)))
    text = format_sddl(descriptor)
    assert ";;CC" not in text
    assert parse_sddl(text) == descriptor


@given(text_descriptors)
def test_every_descriptor_survives_its_text(descriptor: SecurityDescriptor) -> None:
    text = format_sddl(descriptor)
    assert parse_sddl(text) == descriptor
    assert format_sddl(parse_sddl(text)) == text
    assert parse_sddl(format_sddl(descriptor, DOMAIN), DOMAIN) == descriptor
    assert decode_descriptor(encode_descriptor(descriptor)) == descriptor


@given(st.text(max_size=60) | st.text("OGDS:;()PAIR-1 0xWDNO_ACCESS_CONTROL", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    parse_or_refuse(text)


@given(st.sampled_from(CANONICAL[1:]), st.data())
def test_damaged_text_is_parsed_or_refused(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    with_what = data.draw(st.sampled_from(["", ":", ";", "(", ")", "A", "-", "0", " ", "\0", "é"]))
    parse_or_refuse(text[:at] + with_what + text[at + data.draw(st.integers(0, 3)) :])


def parse_or_refuse(text: str) -> None:
    try:
        descriptor = parse_sddl(text)
    except InvalidDescriptorError:
        return
    assert parse_sddl(format_sddl(descriptor)) == descriptor


# Sizes


def test_list_that_does_not_fit_its_binary_form_is_refused() -> None:
    entry = "(A;;FA;;;WD)"
    assert len(encode_descriptor(parse_sddl("D:" + entry * 3275))) == 65_528
    for count in (3277, 20_000):
        with pytest.raises(InvalidDescriptorError):
            parse_sddl("D:" + entry * count)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("D:" + "(A;;CCDCLCSWRPWPDTLOCRSD;;;WD)" * 3275, id="most entries"),
        pytest.param("D:" + " " * (SDDL_LENGTH_MAX - 2), id="spaces"),
        pytest.param("D:" + "P" * (SDDL_LENGTH_MAX - 2), id="flags"),
        pytest.param("D:" + "P " * (SDDL_LENGTH_MAX // 2 - 1), id="flags and spaces"),
        pytest.param("D:(A;;" + "GA" * 100_000 + ";;;WD)", id="rights"),
        pytest.param("D:(A;;" + "0" * 200_000 + ";;;WD)", id="digits"),
        pytest.param("D:(A;" + "OI" * 100_000 + ";GA;;;WD)", id="flags of an entry"),
        pytest.param("D:(" * 80_000, id="open parentheses"),
        pytest.param("D:" + "(A" * 100_000, id="open entries"),
        pytest.param("O:S-1" + "-1" * 120_000, id="SID"),
        pytest.param("D:(" + ";" * 200_000 + ")", id="fields"),
        pytest.param("O:SY" + " " * 200_000 + "G:SY", id="spaces after a SID"),
        pytest.param("A" * (SDDL_LENGTH_MAX * 4), id="too long"),
    ],
)
def test_hostile_text_takes_little_time(text: str) -> None:
    started = time.process_time()
    parse_or_refuse(text)
    assert time.process_time() - started < 1

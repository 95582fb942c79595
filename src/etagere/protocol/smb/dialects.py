"""The dialects that the server speaks ([MS-SMB2] 2.2.3)."""

from __future__ import annotations

from typing import Final

DIALECT_2_1: Final = 0x0210
DIALECT_3_0: Final = 0x0300
DIALECT_3_0_2: Final = 0x0302
DIALECT_3_1_1: Final = 0x0311
DIALECTS: Final = (DIALECT_3_1_1, DIALECT_3_0_2, DIALECT_3_0, DIALECT_2_1)
"""The best first."""
DIALECT_2_WILDCARD: Final = 0x02FF
"""Answers an SMB1 request: the client negotiates again, with SMB2."""

"""The kinds of information that QUERY_INFO and SET_INFO name ([MS-SMB2] 2.2.37, 2.2.39)."""

from __future__ import annotations

from typing import Final

FILE: Final = 1
FILE_SYSTEM: Final = 2
SECURITY: Final = 3
QUOTA: Final = 4

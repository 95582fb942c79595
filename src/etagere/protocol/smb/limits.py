"""Limits on what SMB clients may use."""

from __future__ import annotations

from typing import Final

# A request

IO_BYTES_MAX: Final = 1 << 20
"""The longest read, write or other payload. Larger ones were slower."""
OFFSET_MAX: Final = (1 << 63) - 1
"""The highest offset in a file: clients treat offsets as signed numbers."""

# A connection

FRAME_BYTES_MAX: Final = 2 * IO_BYTES_MAX
"""The longest frame: a write of the maximum length, and what it is compounded with."""
PREAUTH_FRAME_BYTES_MAX: Final = 80 * 1024
"""The longest frame of a client that is not authenticated: a SESSION_SETUP request, whose token can
have 64 KiB."""
PREAUTH_BYTES_MAX: Final = 16 * IO_BYTES_MAX
"""Long frames of all clients that are not authenticated together. Few clients send any."""
PREAUTH_SECONDS_MAX: Final = 30.0
"""How long a connection may be without an authenticated session."""
SILENT_SECONDS_MAX: Final = 60.0
"""How long a client may pause within a frame, or leave responses unread."""
IDLE_SECONDS_MAX: Final = 15 * 60.0
"""How long a connection without open files may be silent."""
OUTSTANDING_BYTES_MAX: Final = 8 * IO_BYTES_MAX
"""Requests in progress and their responses. The next request is read when there are fewer."""
PREAUTH_OUTSTANDING_BYTES_MAX: Final = PREAUTH_FRAME_BYTES_MAX
"""The same, for a client that is not authenticated."""
OUTSTANDING_REQUESTS_MAX: Final = 512
"""Requests in progress, besides those that the client knows to be pending."""
PENDING_REQUESTS_MAX: Final = 4_096
"""Requests that wait for something that may never happen: locks, notifications of changes."""
UNSENT_BYTES_MAX: Final = 4 * IO_BYTES_MAX
"""Responses that the client has not read. No request is read while there are more."""
FRAME_COST_MAX: Final = OUTSTANDING_BYTES_MAX
"""A frame and what its responses may have."""
COMPOUND_MESSAGES_MAX: Final = 64
PENDING_BYTES_MAX: Final = 4 * IO_BYTES_MAX
"""The frames of requests that wait. A frame is kept until its last request has ended."""
FRAME_SECONDS_MAX: Final = 5 * 60.0
"""How long a frame may take to arrive."""
SCARCE_SECONDS_MAX: Final = 5.0
"""How long a client may pause within a large frame, or leave responses unread, while memory is
scarce."""
ACKNOWLEDGEMENT_SECONDS_MAX: Final = 90.0
"""How long what was sent may stay without an acknowledgement by the client's machine."""

# Sessions

SESSIONS_PER_CONNECTION_MAX: Final = 256
TREES_PER_SESSION_MAX: Final = 1_024
TREES_PER_CONNECTION_MAX: Final = 4_096
PIPES_PER_SESSION_MAX: Final = 256
"""Each may keep a request of 64 KiB and unread responses."""
WATCHES_PER_SESSION_MAX: Final = 1_024
"""Directories that are watched for changes: each change is kept for all of them."""
OPENS_PER_SESSION_MAX: Final = 65_536
OPENS_PER_ADDRESS_MAX: Final = 100_000
"""Half of those of the server: one client must not take all of them."""

# Logons

FAILED_LOGONS_MAX: Final = 8
"""After this many, a connection without an authenticated session is closed, and logons of the same
user from the same address take turns, which last as long as the longest delay."""
LOGON_DELAY_SECONDS: Final = 0.25
"""The delay of the response to the first failed logon from an address. It doubles with each."""
LOGON_DELAY_SECONDS_MAX: Final = 4.0
LOGON_WAIT_SECONDS_MAX: Final = 8.0
"""How long a logon may wait for its turn after others of the same user and address have failed."""
LOGON_MEMORY_SECONDS: Final = 60.0
"""How long after its last failure an address is treated like any other again."""
LOGON_ADDRESSES_MAX: Final = 4_096
"""Addresses, and pairs of an address and a user, that are remembered."""

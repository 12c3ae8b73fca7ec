"""Close frames: codes and reasons, RFC 6455 sections 5.5.1 and 7.4. Knows nothing of who closes, or when."""

from __future__ import annotations

from ..errors import LocalProtocolError, RemoteProtocolError
from .frames import CONTROL_SIZE, INVALID_DATA, PROTOCOL_ERROR

NORMAL, INTERNAL_ERROR, RESTART = 1000, 1011, 1012
NO_CODE = 1005
"""What a close frame without a code stands for; never on the wire."""
LOST = 1006
"""The end of a connection without a close frame; never on the wire."""

REASON_SIZE = CONTROL_SIZE - 2
"""Octets of UTF-8 that a reason may have."""

_REGISTERED = frozenset((1000, 1001, 1002, 1003, *range(1007, 1015)))
"""What stands in the IANA registry and may be sent; 3000 to 4999 belong to libraries and applications."""


def may_be_sent(code: int) -> bool:
    """Whether a close frame may hold `code`."""
    return code in _REGISTERED or 3000 <= code <= 4999


def close_payload(code: int, reason: str) -> bytes:
    """The content of a close frame of ours. Raises `LocalProtocolError`."""
    if not isinstance(code, int) or not may_be_sent(code):
        raise LocalProtocolError(
            f"close code {code!r} must not be sent (RFC 6455 section 7.4): "
            "use 1000 to 1003, 1007 to 1014 or 3000 to 4999"
        )
    if not isinstance(reason, str):
        raise LocalProtocolError(f"the reason of a close must be text, not {type(reason).__name__}")
    try:
        octets = reason.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError("the reason of a close has characters that UTF-8 cannot encode") from None
    if len(octets) > REASON_SIZE:
        raise LocalProtocolError(
            f"the reason of a close is {len(octets)} octets in UTF-8, and may have {REASON_SIZE}"
        )
    return code.to_bytes(2, "big") + octets


def read_close(payload: bytes) -> tuple[int, str]:
    """Code and reason of a close frame of the peer's, `NO_CODE` if it is empty. Raises
    `RemoteProtocolError`."""
    if not payload:
        return NO_CODE, ""
    if len(payload) == 1:
        raise RemoteProtocolError(PROTOCOL_ERROR, "close frame of one octet")
    code = int.from_bytes(payload[:2], "big")
    if not may_be_sent(code):
        raise RemoteProtocolError(PROTOCOL_ERROR, "invalid close code")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError(INVALID_DATA, "reason of a close is not UTF-8") from None

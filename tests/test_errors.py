"""The exception tree: one root, and what each class carries."""

from __future__ import annotations

import pytest

from servery import errors


def test_there_is_one_tree() -> None:
    classes = [item for item in vars(errors).values() if isinstance(item, type)]
    assert len(classes) > 5
    assert all(issubclass(item, errors.ServeryError) for item in classes)


def test_refusal_carries_its_status_and_says_it() -> None:
    for kind in (errors.RemoteProtocolError, errors.LimitExceeded):
        error = kind(431, "too many header fields")
        assert (error.status, error.reason) == (431, "too many header fields")
        assert str(error) == "431: too many header fields"


def test_lost_client_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="gone"):
        raise errors.ClientDisconnected("gone")


def test_a_fault_in_http2_carries_its_code_and_says_it() -> None:
    error = errors.Http2Error(11, "too many resets")
    assert (error.code, error.status, error.reason) == (11, 400, "too many resets")
    assert str(error) == "HTTP/2 error 11: too many resets"

"""The load generator's parsers, its hash and its reservoir, each alone."""

from __future__ import annotations

import ctypes
import hashlib
import random

import pytest
from bench_parts import BROKEN, COMPLETE, MORE, Seen, load_parts


@pytest.fixture(scope="module")
def parts():
    return load_parts()


def parse(parts, data: bytes, step: int, closes: bool) -> Seen:
    seen = Seen()
    parts.parts_response(
        data, ctypes.c_size_t(len(data)), ctypes.c_size_t(step), int(closes), ctypes.byref(seen)
    )
    return seen


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GOOD = {
    "length": (HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello", True),
    "no body": (HEAD + b"Content-Length: 0\r\n\r\n", b"", True),
    "spaces": (HEAD + b"content-length: \t 5 \r\nX:\r\n\r\nhello", b"hello", True),
    "the same length twice": (HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", b"hi", True),
    "close": (HEAD + b"Connection: x, Close\r\nContent-Length: 2\r\n\r\nhi", b"hi", False),
    "old": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi", False),
    "old that keeps": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
        b"hi",
        True,
    ),
    "no reason": (b"HTTP/1.1 404\r\nContent-Length: 2\r\n\r\nhi", b"hi", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"", True),
    "101": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", b"", True),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nhi", b"hi", True),
    "chunks": (CHUNKED + b"5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", b"hello0123456789", True),
    "trailers": (CHUNKED + b"1\r\n!\r\n0\r\nX: y\r\nZ: w\r\n\r\n", b"!", True),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("step", [1, 7, 1_000_000])
@pytest.mark.parametrize("rest", [b"", b"HTTP/1.1 200 OK\r\n"], ids=["alone", "with more after it"])
def test_responses_are_framed_whatever_they_are_cut_into(parts, name, step, rest):
    data, body, keeps = GOOD[name]
    seen = parse(parts, data + rest, step, closes=False)
    assert (seen.result, seen.reason) == (COMPLETE, b"")
    assert seen.used == len(data)
    assert (seen.length, bytes(seen.digest)) == (len(body), hashlib.sha256(body).digest())
    assert bool(seen.keep_alive) == keeps


@pytest.mark.parametrize("name", GOOD)
def test_no_beginning_of_a_response_is_taken_for_the_whole(parts, name):
    data = GOOD[name][0]
    for size in range(len(data)):
        assert parse(parts, data[:size], 1_000, closes=False).result == MORE


def test_a_body_without_a_length_ends_with_the_connection(parts):
    data = HEAD + b"\r\nall of it"
    assert parse(parts, data, 3, closes=False).result == MORE
    seen = parse(parts, data, 3, closes=True)
    assert (seen.result, seen.length, seen.keep_alive) == (COMPLETE, 9, 0)


def test_a_close_within_a_response_is_told_from_one_before_it(parts):
    assert parse(parts, b"", 1, closes=True).result == MORE
    for data in (b"HTTP/1", HEAD + b"Content-Length: 5\r\n\r\nhell", CHUNKED + b"5\r\nhello\r\n"):
        seen = parse(parts, data, 100, closes=True)
        assert (seen.result, seen.reason) == (BROKEN, b"closed within a response")


BAD = {
    "no version": b"OK\r\n\r\n",
    "another protocol": b"HTTP/2.0 200 OK\r\n\r\n",
    "two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "below 100": b"HTTP/1.1 099 No\r\n\r\n",
    "a bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
    "no colon": HEAD + b"Content-Length 5\r\n\r\n",
    "a folded field": HEAD + b"X: y\r\n z\r\n\r\n",
    "a blank before the colon": HEAD + b"Content-Length : 5\r\n\r\n",
    "no name": HEAD + b": x\r\n\r\n",
    "a sign": HEAD + b"Content-Length: +5\r\n\r\n",
    "an empty length": HEAD + b"Content-Length:\r\n\r\n",
    "a length that is too long": HEAD + b"Content-Length: 1234567890123456789\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "another coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "no size": CHUNKED + b"\r\n",
    "a size that is no number": CHUNKED + b"x\r\n",
    "a chunk beyond its size": CHUNKED + b"2\r\nhello\r\n",
    "a size of 16 digits": CHUNKED + b"1234567890123456\r\n",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("step", [1, 1_000_000])
def test_what_is_malformed_or_ambiguous_is_broken(parts, name, step):
    seen = parse(parts, BAD[name], step, closes=False)
    assert seen.result == BROKEN
    assert seen.reason


@pytest.mark.parametrize(("size", "result"), [(65536, COMPLETE), (65537, BROKEN)])
@pytest.mark.parametrize("step", [1000, 1_000_000])
def test_a_head_has_a_limit(parts, size, result, step):
    rest = HEAD + b"Content-Length: 0\r\nX: \r\n\r\n"
    data = rest.replace(b"X: ", b"X: " + b"x" * (size - len(rest)))
    assert parse(parts, data, step, closes=False).result == result


def test_random_octets_never_break_the_parser(parts):
    draw = random.Random(1)
    for _ in range(800):
        data = bytearray(draw.choice(list(GOOD.values()))[0])
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        whole = parse(parts, bytes(data), 1_000, closes=True)
        apart = parse(parts, bytes(data), 1, closes=True)
        assert (whole.result, whole.used, whole.length) == (apart.result, apart.used, apart.length)


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 128, 100_000])
def test_the_hash_is_sha_256(parts, size):
    body = random.Random(size).randbytes(size)
    seen = parse(parts, HEAD + b"Content-Length: %d\r\n\r\n" % size + body, 977, closes=False)
    assert bytes(seen.digest) == hashlib.sha256(body).digest()


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_frames_are_masked_and_read_back(parts, size):
    payload = random.Random(size).randbytes(size)
    written = ctypes.create_string_buffer(size + 14)
    whole = parts.frame_write(written, 2, payload, size)
    header = whole - size - 4
    mask = written.raw[header : header + 4]
    unmasked = bytes(octet ^ mask[place % 4] for place, octet in enumerate(written.raw[header + 4 : whole]))
    assert (written.raw[0], written.raw[1] >> 7, unmasked) == (0x82, 1, payload)
    frame = bytes([written.raw[0], written.raw[1] & 0x7F]) + written.raw[2:header] + payload
    opcode, length = ctypes.c_uint64(), ctypes.c_uint64()

    def read(data: bytes) -> int:
        return parts.parts_frame(data, ctypes.c_size_t(len(data)), ctypes.byref(opcode), ctypes.byref(length))

    assert (read(frame + b"more"), opcode.value, length.value) == (len(frame), 2, size)
    assert read(frame[:-1]) == 0
    assert read(written.raw[:whole]) == -1, "a masked frame from a server"


class Samples:
    """The reservoir, or all values with `limit` 0."""

    def __init__(self, parts, limit: int, room: int = 100_000, seed: int = 1) -> None:
        self.parts = parts
        self.memory = parts.parts_samples(limit, room, seed)

    def add(self, values) -> Samples:
        for number, value in enumerate(values):
            self.parts.samples_add(self.memory, number / len(values), value)
        return self

    def values(self) -> list[int]:
        room = (ctypes.c_uint64 * 100_000)()
        return list(room[: self.parts.parts_values(self.memory, room)])

    def quantile(self, quantile: float) -> int:
        return self.parts.parts_quantile(self.memory, quantile)

    def __del__(self) -> None:
        self.parts.parts_free(self.memory)


def test_without_a_bound_every_value_is_kept(parts):
    values = random.Random(1).sample(range(1000), 1000)
    samples = Samples(parts, 0).add(values)
    assert samples.values() == values
    assert [samples.quantile(q) for q in (0.001, 0.5, 0.9, 0.999, 1)] == [0, 499, 899, 998, 999]


def test_values_without_room_are_counted(parts):
    samples = Samples(parts, 0, room=10).add(range(11))
    assert samples.values() == list(range(10))
    assert parts.parts_lost(samples.memory) == 1


def test_the_reservoir_is_bounded_and_the_same_each_time(parts):
    draw = random.Random(2)
    values = [draw.randrange(10**6) for _ in range(50_000)]
    samples = Samples(parts, 3200).add(values)
    assert len(samples.values()) == 3200
    assert samples.values() == Samples(parts, 3200).add(values).values()
    assert samples.values() != Samples(parts, 3200, seed=2).add(values).values()
    assert set(samples.values()) <= set(values)


def test_below_the_bound_nothing_is_left_out(parts):
    assert sorted(Samples(parts, 3200).add(range(3200)).values()) == list(range(3200))


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9, 0.99])
def test_the_reservoir_tells_the_quantiles_of_a_known_distribution(parts, quantile):
    draw = random.Random(3)
    values = [round(draw.expovariate(1) * 1000) for _ in range(60_000)]
    exact = sorted(values)[round(quantile * len(values)) - 1]
    assert Samples(parts, 6400).add(values).quantile(quantile) == pytest.approx(exact, rel=0.08)


def test_a_slow_part_of_the_interval_weighs_what_it_was(parts):
    """The first half has 99 of 100 values: each stratum keeps as many, and their weights set that right."""
    samples = Samples(parts, 640)
    for number in range(99_000):
        parts.samples_add(samples.memory, number / 99_000 / 2, 1)
    for number in range(1000):
        parts.samples_add(samples.memory, 0.5 + number / 1000 / 2, 1000)
    kept = samples.values()
    assert kept.count(1) == kept.count(1000)
    assert samples.quantile(0.98) == 1
    assert samples.quantile(0.995) == 1000

"""The rules of the supervisor, without processes: time is an argument, files are in a folder."""

from __future__ import annotations

import logging
import os
import socket

import pytest

from servery.config import Config
from servery.errors import BindError, ConfigError
from servery.inherited import passed_sockets
from servery.logs import reopen
from servery.logs.handlers import LogHandler
from servery.logs.pipes import Full, open_pipe
from servery.supervisor.channel import Channel, open_channel
from servery.supervisor.cpus import cgroup_quota, usable_cpus
from servery.supervisor.handle import how_ended
from servery.supervisor.listening import Sockets
from servery.supervisor.policy import FIRST_DELAY, LONGEST_DELAY, STEADY, BackOff, Lifetime
from servery.supervisor.systemd import Notifier

# --- back-off and lifetime --------------------------------------------------------------------------------


def test_the_first_start_is_made_at_once_and_later_ones_after_growing_delays():
    back_off = BackOff()
    now, delays = 100.0, []
    for _ in range(10):
        delays.append(back_off.died(now))
        now = back_off.until + 0.1  # it dies again at once
    assert delays[:4] == [0.0, FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert delays[-1] == LONGEST_DELAY


@pytest.mark.parametrize(("quiet", "delay"), ((STEADY, 0.0), (STEADY - 0.1, FIRST_DELAY)))
def test_a_slot_is_healthy_again_after_a_quiet_time(quiet, delay):
    back_off = BackOff()
    back_off.died(100.0)
    assert back_off.died(100.0 + quiet) == delay


@pytest.mark.parametrize(
    ("name", "lifetime"),
    (
        ("requests", Lifetime(10, None, None)),
        ("age", Lifetime(None, 10.0, None)),
        ("memory", Lifetime(None, None, 10)),
    ),
)
def test_a_worker_is_due_at_its_limit_and_not_before(name, lifetime):
    for value, due in ((9, False), (10, True), (11, True)):
        counts = {"requests": 0, "memory": 0, name: value}
        assert bool(lifetime.exceeded(counts, float(counts.pop("age", 0)))) is due


def test_without_limits_no_worker_is_ever_due():
    assert Lifetime(None, None, None).exceeded({"requests": 10**9, "memory": 10**12}, 1e9) is None


def test_each_worker_draws_its_own_share_of_the_jitter():
    drawn = {Lifetime.drawn(Config(limit_max_requests=1000)).requests for _ in range(200)}
    assert 1000 <= min(drawn) < max(drawn) <= 1100
    given = Config(limit_max_requests=1000, limit_max_requests_jitter=0)
    assert {Lifetime.drawn(given).requests for _ in range(20)} == {1000}


# --- processors -------------------------------------------------------------------------------------------


def groups(folder, own, files):
    """What `cgroup_quota` finds where the kernel's files say this."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "own").write_text(own)
    return cgroup_quota(folder, folder / "own")


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    (
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2.0),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/not/mounted/here\n", {"cpu.max": "300000 100000\n"}, 3.0),
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "nonsense\n"}, None),
        (
            "4:cpu,cpuacct:/a\n3:memory:/b\n",
            {"cpu/a/cpu.cfs_quota_us": "250000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            2.5,
        ),
        (
            "4:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            None,
        ),
    ),
)
def test_quotas_of_control_groups(tmp_path, own, files, quota):
    assert groups(tmp_path, own, files) == quota


def test_a_system_without_control_groups(tmp_path):
    assert cgroup_quota(tmp_path, tmp_path / "missing") is None


@pytest.mark.parametrize(("quota", "count"), ((0.1, 1), (1.0, 1), (1.5, 2), (None, 8), (64.0, 8)))
def test_a_quota_is_rounded_up_and_never_more_than_the_processors(monkeypatch, quota, count):
    monkeypatch.setattr("servery.supervisor.cpus.cgroup_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert usable_cpus() == count


# --- the channel ------------------------------------------------------------------------------------------


def test_messages_cross_whole_however_they_are_cut():
    ours, theirs = open_channel()
    assert ours.receive() == []
    data = b'{"ready": true}\n{"counts": {"requests": 1}}\n'
    for cut in range(1, len(data)):
        theirs.sock.sendall(data[:cut])
        first = ours.receive()
        theirs.sock.sendall(data[cut:])
        assert [*first, *ours.receive()] == [{"ready": True}, {"counts": {"requests": 1}}]
    theirs.sock.sendall(b'{"rea')
    theirs.close()
    assert ours.receive() == []
    successor = Channel(ours.sock, ours.unread)
    assert successor.unread == b'{"rea'
    assert successor.receive() is None
    successor.close()


def test_a_peer_that_is_gone_or_does_not_read_is_no_error():
    ours, theirs = open_channel()
    for _ in range(5000):
        ours.send({"do": "snapshot", "filling": "x" * 500})
    theirs.close()
    ours.send({"do": "stop"})
    assert ours.receive() is None
    ours.close()


@pytest.mark.parametrize(
    ("code", "words"),
    (
        *((0, "exited with code 0"), (3, "exited with code 3"), (-9, "was killed by SIGKILL")),
        (-99, "was killed by signal 99"),
    ),
)
def test_how_a_process_ended(code, words):
    assert how_ended(code) == words


# --- listening sockets ------------------------------------------------------------------------------------


def test_sockets_stay_while_their_address_is_named_and_go_after_that(tmp_path):
    one, two = Config(bind=("127.0.0.1:0", f"unix:{tmp_path}/a")), Config(bind=("127.0.0.1:0",))
    sockets = Sockets()
    sockets.bind(one)
    state = sockets.state()
    sockets.bind(two)
    assert sockets.state() == state
    assert sockets.for_slot(0, two) == sockets.for_slot(1, two)
    sockets.prune(two)
    assert sockets.state() == state[:1]
    assert not (tmp_path / "a").exists()
    sockets.close()


def test_an_address_that_cannot_be_bound_changes_nothing(tmp_path):
    sockets = Sockets()
    sockets.bind(Config(bind=("127.0.0.1:0",)))
    state = sockets.state()
    with pytest.raises(BindError):
        sockets.bind(Config(bind=(f"unix:{tmp_path}/a", f"unix:{tmp_path}/missing/b")))
    assert sockets.state() == state
    assert not (tmp_path / "a").exists()
    sockets.close()


def test_each_slot_has_a_socket_of_its_own_where_that_is_asked_for(tmp_path):
    config = Config(bind=("127.0.0.1:0", f"unix:{tmp_path}/a"), reuse_port=True)
    sockets = Sockets()
    sockets.bind(config)
    first, second = sockets.for_slot(0, config)[0], sockets.for_slot(1, config)[0]
    assert [each.url for each in first] == [each.url for each in second]
    assert first[0].sock is not second[0].sock
    assert sockets.for_slot(1, config)[0][0] is second[0]
    assert [entry["slot"] for entry in sockets.state()] == [0, 0, 1]
    sockets.give_up(1)
    assert second[0].sock.fileno() == -1
    assert first[0].sock.fileno() != -1
    sockets.close()


# --- systemd ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pid", ("1", "", None))
def test_variables_for_another_process_are_not_believed(monkeypatch, pid):
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.delenv("LISTEN_PID", raising=False)
    if pid is not None:
        monkeypatch.setenv("LISTEN_PID", pid)
    assert passed_sockets() == []


@pytest.mark.parametrize(
    ("count", "names", "passed"),
    (
        ("2", "a:b", [(3, "a"), (4, "b")]),
        ("2", "a", [(3, "a"), (4, "unknown")]),
        ("1", None, [(3, "unknown")]),
        ("0", None, []),
        ("x", None, []),
    ),
)
def test_what_systemd_says(monkeypatch, count, names, passed):
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", count)
    monkeypatch.delenv("LISTEN_FDNAMES", raising=False)
    if names is not None:
        monkeypatch.setenv("LISTEN_FDNAMES", names)
    assert passed_sockets() == passed


def test_a_manager_that_is_not_there_or_cannot_be_reached_is_no_error(tmp_path):
    for environ in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}, {"NOTIFY_SOCKET": "@servery-nobody"}):
        Notifier(environ).stopping()


@pytest.mark.parametrize(
    ("environ", "interval"),
    (
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
        ({}, None),
    ),
)
def test_signs_of_life_come_twice_as_often_as_needed(environ, interval):
    assert Notifier({"NOTIFY_SOCKET": "/nowhere", **environ}).watchdog_interval == interval
    assert Notifier(environ).watchdog_interval is None


# --- the configuration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", (1, 2, "auto"))
def test_numbers_of_workers(value):
    assert Config(workers=value).supervised is (value != 1)


@pytest.mark.parametrize("value", (0, -1, "many", 1.5, True))
def test_numbers_of_workers_that_are_none(value):
    with pytest.raises(ConfigError, match="workers: .* is not 'auto', or a whole number, 1 or more"):
        Config(workers=value)


@pytest.mark.parametrize(
    "settings",
    (
        {"limit_max_requests": 1},
        {"worker_max_age": 1.0},
        {"worker_max_memory": 1},
        {"preload": True},
        {"reuse_port": True},
    ),
)
def test_what_needs_a_supervisor_has_one_and_does_not_go_with_the_reloader(settings):
    assert Config(**settings).supervised
    with pytest.raises(ConfigError, match="reload serves with one process"):
        Config(app="a:b", reload=True, **settings)


def test_a_jitter_needs_a_limit():
    with pytest.raises(ConfigError, match="does nothing without limit_max_requests"):
        Config(limit_max_requests_jitter=3)


# --- logs -------------------------------------------------------------------------------------------------


def test_a_log_file_that_was_renamed_is_opened_anew(tmp_path):
    logger = logging.getLogger("test of reopening")
    handler = logging.FileHandler(tmp_path / "log")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.error("one")
        (tmp_path / "log").rename(tmp_path / "old")
        logger.error("two")
        reopen()
        reopen()
        logger.error("three")
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert (tmp_path / "old").read_text() == "one\ntwo\n"
    assert (tmp_path / "log").read_text() == "three\n"


@pytest.mark.parametrize("kind", ("pipe", "pipe, older kernel", "socket"))
def test_lines_for_a_reader_that_does_not_read_are_lost_whole(kind, monkeypatch):
    if kind == "socket":
        reader, writer = socket.socketpair()
        reading, writing = reader.detach(), writer.detach()
    else:
        reading, writing = os.pipe()
    if kind == "pipe, older kernel":
        monkeypatch.delattr(os, "RWF_NOWAIT")
    with open(writing, "w") as stream, open(reading, "rb", buffering=0) as back:
        handler = LogHandler(stream)
        line = "x" * 700
        for number in range(1000):
            handler.emit(logging.LogRecord("", 20, "", 0, f"{number:04d} {line}", (), None))
        assert handler.lost > 100
        got = back.read(1 << 20)
        handler.emit(logging.LogRecord("", 20, "", 0, "it reads again", (), None))
        got += back.read(1 << 20)
        *lines, end = got.split(b"\n")
        assert lines[-1] == b"it reads again"
        assert end == b""
        assert {len(each) for each in lines[:-1]} == {705}
        assert [int(each[:4]) for each in lines[:-1]] == list(range(len(lines) - 1))


def test_a_reader_that_has_gone_is_an_error_and_files_are_no_pipes(tmp_path):
    reading, writing = os.pipe()
    with open(writing, "w") as stream:
        pipe = open_pipe(stream)
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            pipe.write("x\n")
    with open(tmp_path / "log", "w") as file:
        assert open_pipe(file) is None
    assert issubclass(Full, OSError)

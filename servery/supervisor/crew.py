"""The workers of a master: started, watched, replaced by overlap, and made to end.

There are as many slots as workers are wanted. A slot's worker may be replaced by one of a newer
configuration, or because it is due; the new one serves before the old one is asked to leave. Decides nothing
about signals.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

from .. import logs
from ..apps import LoadedApp
from ..config import Config
from ..failures import EXIT_STARTUP
from ..metrics.counting import Snapshot, lasting, merge
from .board import Board
from .channel import open_channel
from .handle import Stage, State, Worker, how_ended
from .listening import Sockets
from .policy import LAST_FAILURE, BackOff, Lifetime
from .runners import Job, Starter

MARGIN = 1.0
"""Seconds that a worker may take to exit beyond the sum of its own time-outs."""
STACKS_WAIT = 2.0
"""Seconds that a stuck worker gets to log its stacks."""
STUCK_WAIT = 5.0
"""Seconds that a stuck worker then gets to come back by itself and end in order."""
ABORT_WAIT = 1.0
"""Seconds for the interpreter's own dump after SIGABRT."""

log = logging.getLogger(logs.ERROR_LOGGER)


def grace(config: Config) -> float:
    """Seconds after which a worker that was asked to stop has broken its own promises."""
    limits = config.limits
    lifespan = config.timeout_lifespan_shutdown
    if lifespan is None:
        return float("inf")
    return limits.graceful_timeout + 2 * limits.cancel_timeout + lifespan + MARGIN


class Crew:
    """All workers. `config` is what new ones run, `target` how many are wanted."""

    def __init__(
        self,
        config: Config,
        target: int,
        sockets: Sockets,
        selector: selectors.BaseSelector,
        starter: Starter,
        board: Board | None,
    ) -> None:
        self.config, self.target, self.generation = config, target, 1
        self.loaded: LoadedApp | None = None
        """The application, if it is imported before the workers start."""
        self.before: tuple[int, Config, int] | None = None
        """Generation, configuration and number of workers to go back to if the present ones do not start."""
        self.reverted = False
        """The last replacement has failed."""
        self.workers: list[Worker] = []
        self.failure: tuple[str, int] | None = None
        """Why there is no hope: a text and an exit code."""
        self.ending = False
        """All were asked to end, and no worker is to be started any more."""
        self.unclean = False
        """Some worker did not end then as it should have."""
        self.had_served = False
        """All wanted workers have served at some time."""
        self.left_behind: list[Worker] = []
        """Threads that did not end when they should have."""
        self.in_child: Callable[[], None] = lambda: None
        """Called in each new worker process, to let go of what is the master's alone."""
        self.gone: Snapshot = {}
        """What workers have counted that have ended since."""
        self.restarts: Counter[str] = Counter()
        """Workers that were replaced, by reason: see `servery.metrics.counting.RESTARTS`."""
        self.why = "reload"
        """Why workers of an older generation are replaced."""
        self._starter, self._board = starter, board
        self._sockets, self._selector = sockets, selector
        self._back_offs: defaultdict[int, BackOff] = defaultdict(BackOff)
        self._failures = 0

    @property
    def complete(self) -> bool:
        """Whether every slot has a worker that serves and stays."""
        return all(any(w.state is State.SERVING for w in self._good(slot)) for slot in range(self.target))

    def adopt(self, worker: Worker) -> None:
        """Take over a worker, from the program that ran in this process before."""
        self.workers.append(worker)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)

    # --- starting ------------------------------------------------------------------------------------

    def replace(self, config: Config, target: int, why: str) -> None:
        """Let new workers with `config` take over from all there are; `why` is one of `RESTARTS`."""
        if self.before is None:
            self.before = (self.generation, self.config, self.target)
        self.reverted = False
        self.generation = 1 + max((self.generation, *(worker.generation for worker in self.workers)))
        self.config, self.target, self.why = config, target, why
        self._back_offs.clear()

    def fill(self, now: float) -> Job | None:
        """Start what is lacking, retire what is replaced. In a new worker process: what it has to do."""
        for worker in self.workers:
            if worker.slot >= self.target and worker.state is not State.LEAVING:
                self.retire(worker, now, "fewer workers are wanted")
        starting = sum(worker.state is State.STARTING for worker in self.workers)
        for is_replacement, slot in sorted(self._lacking(now)):
            if is_replacement and starting >= max(1, self.target // 4):
                break
            if now < self._back_offs[slot].until:
                continue
            job = self._start(slot, now)
            if job is not None:
                return job
            starting += 1
        return None

    def _good(self, slot: int) -> list[Worker]:
        return [
            worker for worker in self._here(slot) if worker.generation == self.generation and not worker.due
        ]

    def _here(self, slot: int) -> list[Worker]:
        return [w for w in self.workers if w.slot == slot and w.state is not State.LEAVING]

    def _lacking(self, now: float) -> list[tuple[bool, int]]:
        """Slots without a worker that stays, and whether another one serves there meanwhile."""
        lacking = []
        for slot in range(self.target):
            here, good = self._here(slot), self._good(slot)
            if any(worker.state is State.SERVING for worker in good):
                for worker in here:
                    if worker not in good:
                        self.retire(worker, now, *self._why(worker))
            elif not good:
                lacking.append((bool(here), slot))
        return lacking

    def _why(self, worker: Worker) -> tuple[str, str | None]:
        """Why `worker` is replaced: for the log, and for who counts."""
        if worker.due is not None:
            return worker.due.text, worker.due.reason
        if worker.generation > self.generation:
            return "there are older ones to go back to", None
        return "there is a newer one", self.why

    def _start(self, slot: int, now: float) -> Job | None:
        bound = self._sockets.for_slot(slot, self.config)
        with contextlib.ExitStack() as undo:
            try:
                ours, theirs = open_channel()
                undo.callback(ours.close)
                undo.callback(theirs.close)
                # The drain delay is for the whole server: the master has waited for it.
                config = self.config.replace(drain_delay=0.0)
                board = None if config.reuse_port else self._board
                if board is not None:
                    board.widen(slot)
                job = Job(config, bound, self.loaded, theirs, slot, board)
                runner = self._starter.start(job)
            except OSError as error:
                delay = self._back_offs[slot].died(now)
                log.error("cannot start a worker: %s; trying again in %g s", error.strerror, delay)
                return None
            undo.pop_all()
        if runner is None:  # this is its process
            ours.close()
            self._selector.close()
            for worker in self.workers:
                worker.channel.close()
            self.in_child()
            return replace(job, bound=self._sockets.hand_to_worker(bound))
        self.adopt(Worker(runner, slot, self.generation, ours, now, Lifetime.drawn(self.config)))
        return None

    # --- watching ------------------------------------------------------------------------------------

    def hear(self, worker: Worker, now: float) -> None:
        """Read what a worker reports."""
        messages = worker.hear(now)
        if messages is None:
            self._selector.unregister(worker.channel)
            return
        for message in messages:
            if "ready" in message and worker.state is State.STARTING:
                worker.state = State.SERVING
                self._failures = 0
                log.info("worker %d serves", worker.pid)
            elif "stopping" in message and worker.state is State.SERVING:
                log.info("worker %d was told to stop; starting another", worker.pid)
                self._let_leave(worker, now + grace(self.config), "terminated")
        self.had_served = self.had_served or self.complete

    def watch(self, now: float, elapsed: float) -> None:
        """Look for workers that are stuck, due or late. `elapsed` are seconds since the last look."""
        timeout = self.config.worker_timeout
        for worker in list(self.workers):
            worker.channel.flush()
            if worker.state is State.SERVING:
                worker.silent += elapsed
                if timeout is not None and worker.silent >= timeout:
                    self._stuck(worker, now)
                elif worker.due is None:
                    worker.due = worker.lifetime.exceeded(worker.counts, now - worker.started)
            elif worker.state is State.LEAVING:
                self._hasten(worker, now)

    def _stuck(self, worker: Worker, now: float) -> None:
        requests = worker.counts.get("in_progress", 0)
        log.error(
            "worker %d has not reported for %.0f s (%d requests in progress when it did); replacing it",
            *(worker.pid, worker.silent, requests),
        )
        self._let_leave(worker, now + self._at_most(STACKS_WAIT), "stuck")
        worker.stage = Stage.STUCK
        worker.ask("stacks", silent=worker.silent)

    def _at_most(self, seconds: float) -> float:
        """Who is impatient with a worker that is stuck shall not wait longer for what it does then."""
        return min(seconds, self.config.worker_timeout or seconds)

    def _hasten(self, worker: Worker, now: float) -> None:
        """Go on to what ends a worker that does not end."""
        if worker.stage is Stage.STUCK and worker.stacks_logged:
            worker.stage, worker.deadline = Stage.ASKED_STUCK, now + self._at_most(STUCK_WAIT)
            worker.silent = 1.0
            worker.ask("retire")
        elif worker.stage is Stage.ASKED_STUCK and worker.silent == 0.0:  # it has reported since
            log.warning("the event loop of worker %d turns again; it ends in order", worker.pid)
            worker.stage, worker.deadline = Stage.ASKED, now + grace(self.config)
        elif now >= worker.deadline and worker.stage is Stage.STUCK:
            worker.stage, worker.deadline = Stage.ABORTED, now + ABORT_WAIT
            if not worker.runner.abort():
                self._leave_behind(worker)
                return
            log.error(
                "worker %d cannot log its stacks: something holds the interpreter; aborting it", worker.pid
            )
        elif now >= worker.deadline:
            worker.deadline = float("inf")
            if not worker.runner.kill():
                self._leave_behind(worker)
                return
            log.error("worker %d did not end in time; killing it", worker.pid)

    def _leave_behind(self, worker: Worker) -> None:
        """Go on without it."""
        log.error(
            "worker %d did not end in time, and is a thread, which cannot be killed: it is left behind, and "
            "its connections with it, until the process ends",
            worker.pid,
        )
        self.workers.remove(worker)
        self.gone = merge((self.gone, lasting(worker.metrics)))
        self.left_behind.append(worker)
        if worker.channel in self._selector.get_map():
            self._selector.unregister(worker.channel)
        self.unclean = self.unclean or self.ending

    # --- ending --------------------------------------------------------------------------------------

    def retire(self, worker: Worker, now: float, why: str, reason: str | None = None) -> None:
        """Let a worker end because others go on; `reason` counts it as one that is replaced."""
        log.info("worker %d is asked to end: %s", worker.pid, why)
        self._ask_to_end(worker, "retire", now, reason)

    def end_all(self, how: str, now: float) -> None:
        """Let every worker end: ``stop``, ``hurry`` or ``force``; also those that are about to."""
        self.ending = True
        for worker in self.workers:
            self._ask_to_end(worker, how, now)

    def kill_all(self) -> None:
        """End every worker at once."""
        for worker in list(self.workers):
            if not worker.runner.kill():
                self._leave_behind(worker)

    def _ask_to_end(self, worker: Worker, how: str, now: float, reason: str | None = None) -> None:
        worker.ask(how)
        if worker.state is not State.LEAVING:
            self._let_leave(worker, now + grace(self.config), reason)

    def _let_leave(self, worker: Worker, deadline: float, reason: str | None) -> None:
        worker.state, worker.deadline = State.LEAVING, deadline
        if reason is not None:
            self.restarts[reason] += 1

    def reap(self, now: float) -> None:
        """Take note of workers that have ended."""
        for worker in list(self.workers):
            code = worker.runner.poll()
            if code is not None:
                self._ended(worker, code, now)
        for worker in list(self.left_behind):
            if worker.runner.poll() is not None:
                self.left_behind.remove(worker)
                worker.channel.close()
                log.warning("worker %d, which was left behind, has ended", worker.pid)

    def _ended(self, worker: Worker, code: int, now: float) -> None:
        if worker.channel in self._selector.get_map():
            worker.hear_the_rest(now)
            self._selector.unregister(worker.channel)
        worker.channel.close()
        self.workers.remove(worker)
        if self._board is not None and not self._here(worker.slot):
            self._board.clear(worker.slot)
        self.gone = merge((self.gone, lasting(worker.metrics)))
        if worker.slot >= self.target:
            self._sockets.give_up(worker.slot)
        how = how_ended(code)
        if worker.state is State.LEAVING:
            clean = code == 0
            self.unclean = self.unclean or (self.ending and not clean)
            (log.info if clean else log.warning)("worker %d %s", worker.pid, how)
        elif worker.state is State.SERVING:
            self.restarts["died"] += 1
            delay = self._back_offs[worker.slot].died(now)
            log.error(
                "worker %d %s; starting another%s", worker.pid, how, f" in {delay:g} s" if delay else ""
            )
        else:
            self._failed_to_start(worker, how, now)

    def _failed_to_start(self, worker: Worker, how: str, now: float) -> None:
        text, exit_code = worker.failure or (
            f"servery: error: worker {worker.pid} {how} before it served",
            EXIT_STARTUP,
        )
        self._failures += 1
        serving = any(w.state is State.SERVING for w in self.workers)
        if not self.had_served or (not serving and self._failures >= LAST_FAILURE):
            self.failure = self.failure or (text, exit_code)
        elif self.before is not None and worker.generation == self.generation:
            log.error("%s\nnew workers do not start; going on as before", text)
            self.generation, self.config, self.target = self.before
            self.before, self.reverted = None, True
        else:
            self.restarts["failed_start"] += 1
            delay = self._back_offs[worker.slot].died(now)
            log.error("%s\nworker %d did not start; starting another in %g s", text, worker.pid, delay)

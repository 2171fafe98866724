"""The decision process once more, in plain Python, one iteration at a time.

Written from the rules in words: all decisions precede the batch, at a frozen clock; a ledger of
blocks, seats and tokens tells what fits when all prefill is allowed. Nothing of the compiled core
is used. Actions are tuples: ("proceed", level), ("admit", slot), ("preempt", slot).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

LEVELS = (0.0, 0.25, 0.5, 1.0)
FULL = 3
Action = tuple[str, int]


@dataclass(eq=False)
class Job:
    """One request."""

    row: int
    arrival_s: float
    prompt: int
    length: int  # output tokens at which it ends
    weight: float
    ttft_slo_s: float
    tpot_slo_s: float
    lone_prefill_s: float
    predicted: float
    reason: str = "stop"
    computed: int = 0
    outputs: int = 0
    blocks: int = 0
    status: str = "waiting"
    end_reason: str = ""
    moved: bool = False
    missed: bool = False
    met: bool = False
    preemptions: int = 0
    lost_tokens: int = 0
    first_scheduled_s: float = math.nan
    first_token_s: float = math.nan
    finish_s: float = math.nan

    @property
    def tokens(self) -> int:
        return self.prompt + self.outputs

    @property
    def left(self) -> int:
        return self.tokens - self.computed

    @property
    def decodes(self) -> bool:
        return self.outputs > 0 and self.left == 1

    @property
    def deadline_s(self) -> float:
        return self.arrival_s + self.ttft_slo_s


@dataclass
class Settings:
    budget: int
    seats: int
    blocks: int
    block_size: int
    waiting_slots: int
    running_slots: int
    reserve_full: bool
    base_s: float
    per_decode_s: float
    per_prefill_token_s: float
    shed: bool = True
    timeout_s: float = math.inf
    horizon_s: float = math.inf
    max_model_len: float = math.inf
    screen: str = "fcfs"
    tau_s: float = 8.0
    goodput: float = 0.5
    miss: float = 0.5
    waiting: float = 0.0
    recompute: float = 0.0

    @property
    def token_time_s(self) -> float:
        sequences = max(self.seats // 2, 1)
        return self.base_s / sequences + self.per_decode_s


@dataclass
class PlainDecisions:
    """A server and its decisions; ``jobs`` are all requests in order of arrival."""

    settings: Settings
    jobs: list[Job]
    clock_s: float = 0.0
    iteration: int = 0
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    admitted: list[Job] = field(default_factory=list)
    num_arrived: int = 0
    news: bool = False
    is_open: bool = False
    terminated: bool = False
    truncated: bool = False
    reward: float = 0.0
    step_start_s: float = 0.0
    invalid: bool = False

    # --- the face: reset, legal, step

    def reset(self) -> None:
        self.settle()
        self.reward = 0.0

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated

    def step(self, action: Action | None) -> None:
        """Take a decision; ``None`` is an action outside the action space."""
        self.reward, self.step_start_s, self.invalid = 0.0, self.clock_s, False
        legal = self.legal()
        if action is None or action not in legal:
            self.invalid = True
            full = ("proceed", FULL)
            action = full if full in legal else legal[0]
        if self.is_over:
            return
        self.apply(action)
        self.settle()

    def settle(self) -> None:
        """Go on until there is a choice between two actions or more."""
        while True:
            if not self.is_open:
                self.open()
            legal = self.legal()
            if self.is_over or len(legal) > 1:
                return
            self.apply(legal[0])

    # --- the clock

    def open(self) -> None:
        """Go to the next point of decision."""
        while True:
            if self.clock_s >= self.settings.horizon_s:
                self.truncated = True
                self.put_decodes_first()
                return
            self.receive()
            self.pass_deadlines()
            if not self.waiting and not self.running:
                if self.num_arrived == len(self.jobs):
                    self.terminated = True
                    return
                next_s = self.jobs[self.num_arrived].arrival_s
                self.clock_s = min(next_s, self.settings.horizon_s)
                continue
            self.put_decodes_first()
            if not self.end_the_stuck():
                break
        self.is_open = True

    def put_decodes_first(self) -> None:
        prefilling = [job for job in self.running if not job.decodes]
        self.running = [job for job in self.running if job.decodes] + prefilling

    def receive(self) -> None:
        for job in self.jobs[self.num_arrived :]:
            if job.arrival_s > self.clock_s:
                break
            self.num_arrived += 1
            self.news = True
            self.charge_waiting([job], job.arrival_s)
            never = self.blocks_for(job.prompt) > self.settings.blocks
            if never or job.prompt >= self.settings.max_model_len:
                self.end(job, "rejected", "too_large")
            else:
                self.waiting.append(job)
        self.sort_waiting()

    def pass_deadlines(self) -> None:
        for job in [*self.waiting, *self.running]:
            timeout_s = job.arrival_s + self.settings.timeout_s
            has_token = not math.isnan(job.first_token_s)
            hopeless_s = job.deadline_s - job.lone_prefill_s
            may_shed = self.settings.shed and job in self.waiting and not has_token
            if may_shed and hopeless_s < self.clock_s and hopeless_s <= timeout_s:
                self.end(job, "rejected", "shed")
                continue
            if not has_token and job.deadline_s < self.clock_s and job.deadline_s <= timeout_s:
                self.count_miss(job, job.deadline_s)
            if timeout_s < self.clock_s:
                self.end(job, "timed_out", "timeout")

    # --- what is legal

    def blocks_for(self, tokens: int) -> int:
        return math.ceil(tokens / self.settings.block_size)

    @property
    def free(self) -> int:
        return self.settings.blocks - sum(job.blocks for job in self.running)

    def batch(self, prefill_cap: int) -> dict[Job, int]:
        """Return the tokens of each job, those that run before those that are admitted."""
        budget, taken = self.settings.budget, {}
        for job in [*self.running, *self.admitted]:
            n = min(job.left, budget)
            if not job.decodes:
                n = min(n, prefill_cap)
                prefill_cap -= n
            budget -= n
            taken[job] = n
        return taken

    def ledger(self) -> tuple[int, int, int]:
        """Return the blocks, tokens and seats that are left at full prefill."""
        batch = self.batch(self.settings.budget)
        blocks = self.free
        for job, n in batch.items():
            blocks -= max(self.blocks_for(job.computed + n) - job.blocks, 0)
        seats = self.settings.seats - len(self.running) - len(self.admitted)
        return blocks, self.settings.budget - sum(batch.values()), seats

    def fits(self, job: Job) -> bool:
        """Tell whether blocks and a seat are there."""
        blocks, tokens, seats = self.ledger()
        chunk = min(job.left, max(tokens, 1))
        need = self.blocks_for(job.tokens if self.settings.reserve_full else chunk)
        return seats > 0 and need <= blocks

    def legal(self) -> list[Action]:
        if self.is_over:
            return [("proceed", FULL)]
        shown = self.running[::-1][: self.settings.running_slots]
        blocks, tokens, _ = self.ledger()
        if blocks < 0:
            return [("preempt", j) for j in range(len(shown))]
        queue = self.waiting[: self.settings.waiting_slots]
        admits = [
            ("admit", k)
            for k, job in enumerate(queue)
            if tokens > 0 and not job.moved and self.fits(job)
        ]
        lacking = any(not job.moved and not self.fits(job) for job in queue)
        preempts = []
        if lacking and self.news:
            preempts = [("preempt", j) for j, job in enumerate(shown) if not job.moved]
        return [*self.legal_levels(bool(admits)), *admits, *preempts]

    def cap(self, level: int) -> int:
        return math.ceil(LEVELS[level] * self.settings.budget)

    def legal_levels(self, something_fits: bool) -> list[Action]:
        if not self.running and not self.admitted:
            return [] if something_fits else [("proceed", FULL)]
        batches = [self.batch(self.cap(level)) for level in range(len(LEVELS))]
        levels = []
        for level, batch in enumerate(batches):
            is_highest = all(batch != other for other in batches[level + 1 :])
            if is_highest and (level == FULL or sum(batch.values()) > 0):
                levels.append(("proceed", level))
        return levels

    # --- what an action does

    def apply(self, action: Action) -> None:
        kind, number = action
        if kind == "admit":
            job = self.waiting.pop(number)
            job.moved = True
            self.admitted.append(job)
        elif kind == "preempt":
            self.preempt(self.running[-1 - number])
            self.end_the_stuck()
        else:
            self.proceed(number)

    def preempt(self, job: Job) -> None:
        self.running.remove(job)
        self.reward -= self.settings.recompute * job.computed * 1e-3 * self.at(self.clock_s)
        job.lost_tokens += job.computed
        job.computed = job.blocks = 0
        job.preemptions += 1
        job.moved = True
        job.status = "preempted"
        self.waiting.append(job)
        self.sort_waiting()

    def end_the_stuck(self) -> bool:
        """End a request that is alone and cannot grow."""
        if len(self.running) == 1 and not self.admitted and self.ledger()[0] < 0:
            self.end(self.running[0], "finished", "kv_capacity")
            return True
        return False

    def proceed(self, level: int) -> None:
        batch = self.batch(self.cap(level))
        started_s = self.clock_s
        for job in self.admitted:
            if batch[job] == 0:
                self.waiting.append(job)
                continue
            job.status = "running"
            if math.isnan(job.first_scheduled_s):
                job.first_scheduled_s = self.clock_s
            self.running.append(job)
        self.admitted = []
        self.sort_waiting()
        self.run({job: n for job, n in batch.items() if n > 0}, started_s)
        for job in self.jobs:
            job.moved = False
        self.is_open = False

    def run(self, batch: dict[Job, int], started_s: float) -> None:
        self.news = False
        self.iteration += 1
        if not batch:
            return
        decodes = sum(job.decodes for job in batch)
        prefill = sum(n for job, n in batch.items() if not job.decodes)
        s = self.settings
        self.clock_s += s.base_s + s.per_decode_s * decodes + s.per_prefill_token_s * prefill
        self.charge_waiting(self.waiting, started_s)
        for job, n in batch.items():
            job.computed += n
            job.blocks = self.blocks_for(job.computed)
        for job in batch:
            if job.left == 0:
                self.put_out(job)

    def put_out(self, job: Job) -> None:
        job.outputs += 1
        if job.outputs == 1:
            job.first_token_s = self.clock_s
            self.news = True
            if self.clock_s - job.arrival_s > job.ttft_slo_s:
                self.count_miss(job, job.deadline_s)
        if job.outputs == job.length:
            self.end(job, "finished", job.reason)

    # --- ends and rewards

    def end(self, job: Job, status: str, reason: str) -> None:
        for place in (self.waiting, self.running):
            if job in place:
                place.remove(job)
        job.status, job.end_reason, job.finish_s, job.blocks = status, reason, self.clock_s, 0
        self.news = True
        is_complete = status == "finished" and reason != "kv_capacity"
        if is_complete and not job.missed and self.meets_slo(job):
            job.met = True
            self.reward += self.settings.goodput * job.weight * self.at(self.clock_s)
        else:
            self.count_miss(job, self.clock_s)

    def meets_slo(self, job: Job) -> bool:
        if job.first_token_s - job.arrival_s > job.ttft_slo_s:
            return False
        gaps = job.outputs - 1
        return job.finish_s - job.first_token_s <= job.tpot_slo_s * gaps

    def count_miss(self, job: Job, time_s: float) -> None:
        if not job.missed:
            job.missed = True
            self.reward -= self.settings.miss * job.weight * self.at(time_s)

    def charge_waiting(self, jobs: list[Job], since_s: float) -> None:
        span = self.at(since_s) - self.at(self.clock_s)
        weight = sum(job.weight for job in jobs)
        self.reward -= self.settings.waiting * weight * self.settings.tau_s * span

    def at(self, time_s: float) -> float:
        return math.exp(-(time_s - self.step_start_s) / self.settings.tau_s)

    def sort_waiting(self) -> None:
        self.waiting.sort(key=self.order)

    def order(self, job: Job) -> tuple[float, float, int]:
        if self.settings.screen == "fcfs":
            return job.row, 0.0, job.row
        left = max(job.predicted - job.outputs, 1.0)
        work_s = job.lone_prefill_s + left * self.settings.token_time_s
        return -job.weight / work_s, job.arrival_s, job.row

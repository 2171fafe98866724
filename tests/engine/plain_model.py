"""The scheduler's rules once more, in plain Python, written from the documents.

P07 (the plain one of the five worked examples), vLLM 0.33.0's rules with every switch of its
scheduler, and the switches beyond them. Nothing of the compiled core is used, so that the two can
be compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.engine.plain_pool import PlainBlock, PlainPool


@dataclass(eq=False)
class PlainRequest:
    request_id: int
    prompt: int
    max_tokens: int
    eos_at: int = 0
    priority: float = 0.0  # larger first
    arrival: float = 0.0
    hash_ids: tuple[int, ...] = ()
    computed: int = 0
    table: list[PlainBlock] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    status: str = "waiting"
    preemptions: int = 0
    reason: str = ""
    expected: int = 0  # output tokens in flight
    in_flight: int = 0  # batches in flight that hold it
    is_chunk: bool = False
    passed: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + len(self.output)

    @property
    def left(self) -> int:
        return self.tokens + self.expected - self.computed

    @property
    def blocks(self) -> int:
        return len(self.table)


@dataclass
class PlainRules:
    budget: int
    seats: int
    blocks: int
    block_size: int
    policy: str = "fcfs"
    max_model_len: float = math.inf
    reserve_full: bool = True  # P07: no
    readmit: bool = False  # P07: yes
    watermark: float = 0.0
    long_prefill: int = 0
    adaptive: bool = False
    chunked: bool = True
    active: int | None = None
    interval: int = 1
    async_scheduling: bool = False
    caching: bool = False
    hash_tokens: int = 1
    preemptive: bool = False
    resume_first: bool = False
    victim: str | None = None
    tie: str = "first"
    swap: bool = False
    no_evict: bool = False
    skip_ahead: int = 0


LOOKED_AT = 32
"""Waiting requests among which one is looked for that may pass another."""


@dataclass
class PlainBatch:
    """What a batch holds: request, its tokens, and whether they bring an output token."""

    shares: list[tuple[PlainRequest, int, bool]]


class PlainScheduler:
    def __init__(self, rules: PlainRules) -> None:
        self.rules = rules
        self.pool = PlainPool(rules.blocks, rules.caching)
        self.requests: dict[int, PlainRequest] = {}
        self.waiting: list[PlainRequest] = []
        self.running: list[PlainRequest] = []
        self.finished: list[int] = []
        self.rejected: list[int] = []
        self.preempted: list[int] = []
        self.flights: list[PlainBatch] = []
        self.scheduled: dict[PlainRequest, int] = {}
        self.had_prefill = False
        self.executed = 0
        self.last_prefill = -rules.interval
        self.is_bound = False
        self.held = False
        self.cap = math.inf

    @property
    def free(self) -> int:
        return len(self.pool.free)

    @property
    def budget_left(self) -> int:
        return self.rules.budget - sum(self.scheduled.values())

    def blocks_for(self, tokens: float) -> int:
        return math.ceil(tokens / self.rules.block_size)

    # Arrivals and ends

    def add(self, request: PlainRequest) -> None:
        self.requests[request.request_id] = request
        rules = self.rules
        never = self.blocks_for(request.prompt) > rules.blocks
        never |= request.prompt >= rules.max_model_len
        never |= self.is_too_long_for_a_batch(request.prompt)
        if never:
            self.end(request, "rejected", "too_large")
            self.rejected.append(request.request_id)
            return
        self.waiting.append(request)
        self.sort_waiting()

    def is_too_long_for_a_batch(self, tokens: int) -> bool:
        rules = self.rules
        whole = not (rules.chunked or rules.caching)
        whole &= rules.long_prefill == 0 or rules.long_prefill > rules.budget
        return whole and tokens > rules.budget

    def sort_waiting(self) -> None:
        rules = self.rules
        order = list(self.requests.values()).index
        if rules.policy == "priority":
            self.waiting.sort(key=lambda one: (-one.priority, one.arrival, one.request_id))
        else:
            self.waiting.sort(key=order)
        if rules.resume_first:
            self.waiting.sort(key=lambda one: one.preemptions == 0)

    def end(self, request: PlainRequest, status: str, reason: str) -> None:
        request.status, request.reason = status, reason
        self.pool.give_back(request.table)
        request.table = []
        if status == "finished":
            self.finished.append(request.request_id)

    # One step

    def schedule(self) -> dict[int, int]:
        self.scheduled, self.preempted = {}, []
        self.had_prefill = False
        self.cap, self.held = self.long_prefill_cap(), self.holds_prefill()
        self.serve_running()
        if self.rules.readmit or not self.preempted:
            self.serve_waiting()
        if self.scheduled:
            self.executed += 1
        if self.had_prefill:
            self.last_prefill = self.executed
        self.launch()
        self.drop_stuck_head()
        return {one.request_id: n for one, n in self.scheduled.items()}

    def long_prefill_cap(self) -> float:
        rules, live = self.rules, len(self.running) + len(self.waiting)
        if rules.long_prefill == 0 or live <= 1:
            return math.inf
        return max(rules.long_prefill, rules.budget // live if rules.adaptive else 0)

    def holds_prefill(self) -> bool:
        since = self.executed + 1 - self.last_prefill
        decodes = any(not one.is_chunk for one in self.running)
        return not self.is_bound and since < self.rules.interval and decodes

    def serve_running(self) -> None:
        position = 0
        while position < len(self.running) and self.budget_left > 0:
            request = self.running[position]
            # Settled before anyone makes room: a victim's tokens that come back are for later ones.
            n = self.wanted(request)
            need = max(self.blocks_for(request.computed + n) - request.blocks, 0)
            while n and need > self.free and len(self.running) > 1 and request in self.running:
                victim = self.choose_victim()
                position -= self.running.index(victim) < position
                self.preempt(victim)
            if request not in self.running:
                continue
            if n and need > self.free:
                if request.expected:
                    return
                self.running.remove(request)
                self.end(request, "finished", "kv_capacity")
                return
            if n:
                self.serve(request, n, need)
            position += 1

    def wanted(self, request: PlainRequest) -> int:
        longest = min(request.prompt + request.max_tokens, self.rules.max_model_len)
        if request.expected and request.tokens + request.expected >= longest:
            return 0
        if self.held and request.is_chunk:
            return 0
        return int(min(request.left, self.cap, self.budget_left))

    def serve(self, request: PlainRequest, n: int, need: int) -> None:
        request.table += self.pool.take(need)
        self.had_prefill |= request.is_chunk
        self.scheduled[request] = n
        request.computed += n
        request.is_chunk = request.left > 0
        if self.rules.async_scheduling and not request.is_chunk:
            request.expected += 1
        self.learn(request, min(request.computed, request.tokens))

    def choose_victim(self) -> PlainRequest:
        rule = self.rules.victim
        if rule is None:
            rule = "tail" if self.rules.policy == "fcfs" else "priority"
        if rule == "tail":
            return self.running[-1]
        ranks = {
            "priority": lambda one: (-one.priority, one.arrival),
            "least_computed": lambda one: -one.computed,
            "most_blocks_per_token": lambda one: one.blocks / max(one.computed, 1),
        }
        # max() returns the first of equals, as vLLM's does.
        order = self.running if self.rules.tie == "first" else self.running[::-1]
        return max(order, key=ranks[rule])

    def preempt(self, victim: PlainRequest) -> None:
        n = self.scheduled.pop(victim, 0)
        victim.computed = victim.computed - n if self.rules.swap else 0
        self.running.remove(victim)
        self.pool.give_back(victim.table)
        victim.table, victim.expected = [], 0
        victim.preemptions += 1
        self.preempted.append(victim.request_id)
        if self.blocks_for(victim.tokens) > self.rules.blocks:
            self.end(victim, "finished", "kv_capacity")
        elif self.is_too_long_for_a_batch(victim.tokens - victim.computed):
            self.end(victim, "finished", "no_progress")
        else:
            victim.status = "preempted"
            victim.passed = 0
            self.waiting.insert(0, victim)
            self.sort_waiting()

    # Admission

    def serve_waiting(self) -> None:
        index, held_back, last = 0, 0, LOOKED_AT
        while index < min(len(self.waiting), last):
            head = self.waiting[index]
            if head.in_flight:
                index, held_back = index + 1, held_back + 1
                continue
            found = self.find_cached(head)
            n = self.first_chunk(head, found)
            if n and self.has_room(head, n, found):
                for one in self.waiting[:index]:
                    one.passed += 1
                self.admit(head, n, found)
            elif self.rules.preemptive and self.evict_for(head):
                index = self.waiting.index(head)
                last += 1
            elif n == 0 or head.passed >= self.rules.skip_ahead:
                break
            else:
                index += 1
        if not self.held:
            self.is_bound = len(self.waiting) > held_back

    def find_cached(self, request: PlainRequest) -> list[PlainBlock]:
        if not self.rules.caching or request.computed:
            return []
        last = (request.tokens - 1) // self.rules.block_size
        return self.pool.lookup([self.content(request, i) for i in range(last)])

    def content(self, request: PlainRequest, index: int) -> tuple[object, ...]:
        """Return all that block ``index`` depends on: the ids of its tokens and of those before."""
        size, per_id = self.rules.block_size, self.rules.hash_tokens
        names: list[object] = []
        for token in range((index + 1) * size):
            block_end = (token // size + 1) * size
            has_id = block_end <= min(request.prompt, len(request.hash_ids) * per_id)
            own = ("own", request.request_id, token)
            names.append((request.hash_ids[token // per_id], token % per_id) if has_id else own)
        return tuple(names)

    def learn(self, request: PlainRequest, tokens: int) -> None:
        for index in range(tokens // self.rules.block_size if self.rules.caching else 0):
            if request.table[index].content is None:
                self.pool.learn(request.table[index], self.content(request, index))

    def first_chunk(self, request: PlainRequest, found: list[PlainBlock]) -> int:
        left = request.left - len(found) * self.rules.block_size
        if self.held and left > 1:
            return 0
        n = int(min(left, self.cap))
        if n > self.budget_left and not self.rules.chunked:
            return 0
        return min(n, self.budget_left)

    def has_room(self, head: PlainRequest, n: int, found: list[PlainBlock]) -> bool:
        rules = self.rules
        if len(self.running) >= (rules.active or rules.seats):
            return False
        computed = head.computed + len(found) * rules.block_size
        tokens = max(computed + n, head.tokens if rules.reserve_full else 0)
        need = self.blocks_for(tokens) - sum(block.users > 0 for block in found)
        if self.running:
            need += int(rules.watermark * (rules.blocks + 1))
        if self.running and rules.no_evict:
            need += self.most(head) - self.blocks_for(head.tokens)
            need += sum(self.most(one) - one.blocks for one in self.running)
        return need <= self.free

    def most(self, request: PlainRequest) -> int:
        """Return the blocks that a request can come to hold."""
        tokens = min(request.prompt + request.max_tokens, self.rules.max_model_len) - 1
        return max(self.blocks_for(tokens), self.blocks_for(request.tokens), request.blocks)

    def admit(self, head: PlainRequest, n: int, found: list[PlainBlock]) -> None:
        self.waiting.remove(head)
        self.running.append(head)
        head.status = "running"
        self.pool.share(found)
        head.table = list(found)
        head.computed += len(found) * self.rules.block_size
        head.is_chunk = head.left > 1
        self.serve(head, n, max(self.blocks_for(head.computed + n) - head.blocks, 0))

    def evict_for(self, head: PlainRequest) -> bool:
        lower = [one for one in self.running if one.priority < head.priority]
        if not lower or head.request_id in self.preempted:
            return False
        tokens = self.budget_left + sum(self.scheduled.get(one, 0) for one in lower)
        blocks = self.free + sum(one.blocks for one in lower)
        found = len(self.find_cached(head)) * self.rules.block_size
        needed = 1 if self.rules.chunked else head.left - found
        if tokens < needed or self.blocks_for(head.tokens) > blocks:
            return False
        lowest = min(one.priority for one in lower)
        candidates = [one for one in lower if one.priority == lowest]
        latest = max(one.arrival for one in candidates)
        self.preempt([one for one in candidates if one.arrival == latest][-1])
        return True

    # Outputs

    def launch(self) -> None:
        shares = [(one, n, not one.is_chunk) for one, n in self.scheduled.items()]
        for request, _, _ in shares:
            request.in_flight += 1
        self.flights.append(PlainBatch(shares))

    def drop_stuck_head(self) -> None:
        flying = any(batch.shares for batch in self.flights[:-1])
        is_busy = self.running or self.scheduled or self.preempted or flying
        if is_busy or not self.waiting:
            return
        head = self.waiting.pop(0)
        self.end(head, "finished" if head.output else "rejected", "no_progress")
        if not head.output:
            self.rejected.append(head.request_id)

    def update(self) -> list[int]:
        batch = self.flights.pop(0)
        done: list[int] = []
        for request, _, brings_token in batch.shares:
            request.in_flight -= 1
            if not brings_token or request.status in ("finished", "rejected"):
                continue
            if request.status == "running":
                request.expected -= self.rules.async_scheduling
            request.output.append(len(request.output))
            if request in self.running:
                shares = [share for later in self.flights for share in later.shares]
                ahead = sum(n for one, n, _ in shares if one is request)
                self.learn(request, request.computed - ahead)
            reason = self.reason_to_stop(request)
            if reason:
                (self.running if request in self.running else self.waiting).remove(request)
                self.end(request, "finished", reason)
                done.append(request.request_id)
        return done

    def reason_to_stop(self, request: PlainRequest) -> str:
        if len(request.output) == request.eos_at:
            return "stop"
        if len(request.output) >= request.max_tokens:
            return "length"
        return "max_model_len" if request.tokens >= self.rules.max_model_len else ""

"""The scheduler's rules once more, in plain Python, written from the documents.

Two rule sets: P07 (the plain one of the five worked examples) and vLLM 0.33.0's with the policies
fcfs and priority. Nothing of the compiled core is used, so that the two can be compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class PlainRequest:
    request_id: int
    prompt: int
    max_tokens: int
    eos_at: int = 0
    priority: float = 0.0  # larger first
    arrival: float = 0.0
    computed: int = 0
    blocks: int = 0
    output: list[int] = field(default_factory=list)
    status: str = "waiting"
    preemptions: int = 0
    reason: str = ""

    @property
    def tokens(self) -> int:
        return self.prompt + len(self.output)


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


class PlainScheduler:
    def __init__(self, rules: PlainRules) -> None:
        self.rules = rules
        self.requests: dict[int, PlainRequest] = {}
        self.waiting: list[PlainRequest] = []
        self.running: list[PlainRequest] = []
        self.finished: list[int] = []
        self.rejected: list[int] = []
        self.preempted: list[int] = []
        self.scheduled: dict[int, int] = {}

    @property
    def free(self) -> int:
        return self.rules.blocks - sum(one.blocks for one in self.running)

    def blocks_for(self, tokens: int) -> int:
        return math.ceil(tokens / self.rules.block_size)

    def add(self, request: PlainRequest) -> None:
        self.requests[request.request_id] = request
        never = self.blocks_for(request.prompt) > self.rules.blocks
        if never or request.prompt >= self.rules.max_model_len:
            self.end(request, "rejected", "too_large")
            self.rejected.append(request.request_id)
            return
        self.waiting.append(request)
        self.sort_waiting()

    def sort_waiting(self) -> None:
        if self.rules.policy == "priority":
            self.waiting.sort(key=lambda one: (-one.priority, one.arrival, one.request_id))

    def end(self, request: PlainRequest, status: str, reason: str) -> None:
        request.status, request.reason = status, reason
        request.blocks = 0
        if status == "finished":
            self.finished.append(request.request_id)

    def schedule(self) -> dict[int, int]:
        self.scheduled, self.preempted = {}, []
        self.serve_running()
        if self.rules.readmit or not self.preempted:
            self.serve_waiting()
        return dict(self.scheduled)

    @property
    def budget_left(self) -> int:
        return self.rules.budget - sum(self.scheduled.values())

    def serve_running(self) -> None:
        position = 0
        while position < len(self.running) and self.budget_left > 0:
            request = self.running[position]
            # Settled before anyone makes room: a victim's tokens that come back are for later ones.
            n = min(request.tokens - request.computed, self.budget_left)
            need = max(self.blocks_for(request.computed + n) - request.blocks, 0)
            while need > self.free and len(self.running) > 1 and request in self.running:
                victim = self.choose_victim()
                position -= self.running.index(victim) < position
                self.preempt(victim)
            if request not in self.running:
                continue
            if need > self.free:
                self.running.remove(request)
                self.end(request, "finished", "kv_capacity")
                return
            request.blocks += need
            self.scheduled[request.request_id] = n
            position += 1

    def choose_victim(self) -> PlainRequest:
        if self.rules.policy == "fcfs":
            return self.running[-1]
        # max() returns the first of equals, as vLLM's does.
        return max(self.running, key=lambda one: (-one.priority, one.arrival))

    def preempt(self, victim: PlainRequest) -> None:
        self.scheduled.pop(victim.request_id, None)
        self.running.remove(victim)
        victim.status = "preempted"
        victim.computed = victim.blocks = 0
        victim.preemptions += 1
        self.preempted.append(victim.request_id)
        self.waiting.insert(0, victim)
        self.sort_waiting()

    def serve_waiting(self) -> None:
        while self.waiting and self.budget_left > 0 and len(self.running) < self.rules.seats:
            head = self.waiting[0]
            n = min(head.tokens, self.budget_left)
            if self.blocks_for(head.tokens if self.rules.reserve_full else n) > self.free:
                return
            self.waiting.pop(0)
            self.running.append(head)
            head.status = "running"
            head.blocks = self.blocks_for(n)
            self.scheduled[head.request_id] = n

    def update(self) -> list[int]:
        done: list[int] = []
        for request_id, n in self.scheduled.items():
            request = self.requests[request_id]
            request.computed += n
            if request.computed < request.tokens:
                continue
            request.output.append(len(request.output))
            reason = self.reason_to_stop(request)
            if reason:
                self.running.remove(request)
                self.end(request, "finished", reason)
                done.append(request_id)
        self.scheduled = {}
        return done

    def reason_to_stop(self, request: PlainRequest) -> str:
        if len(request.output) == request.eos_at:
            return "stop"
        if len(request.output) >= request.max_tokens:
            return "length"
        return "max_model_len" if request.tokens >= self.rules.max_model_len else ""

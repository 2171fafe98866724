"""The rules of the teaching machine once more, in plain Python over dicts, for comparison."""

from __future__ import annotations

from typing import Any

Request = dict[str, Any]


class PlainMachine:
    def __init__(self, policy: str, free_kv_blocks: int, aging_interval: int) -> None:
        self.policy = policy
        self.free = free_kv_blocks
        self.interval = aging_interval
        self.clock = 0
        self.requests: list[Request] = []

    def add(self, **values: Any) -> None:
        fresh = {"made": 0, "prefilled": False, "waited": 0, "holds": False, "evicted": 0}
        self.requests.append({**values, **fresh, "status": "waiting"})

    def live(self) -> list[Request]:
        return [one for one in self.requests if one["made"] < one["max_new_tokens"]]

    def urgency(self, one: Request) -> int:
        gained = one["waited"] // self.interval if self.policy == "aging" else 0
        return one["priority"] + gained

    def left(self, one: Request) -> int:
        return one["max_new_tokens"] - one["made"] + (not one["prefilled"])

    def place(self, one: Request) -> tuple[int, ...]:
        slack = 10**9
        if self.policy == "deadline" and one["deadline_step"] is not None:
            slack = one["deadline_step"] - self.clock - self.left(one)
        length = one["prompt_len"] + one["made"]
        flags = (int(one["prefilled"]), int(not one["cache_hit"]))
        return (slack, *flags, -self.urgency(one), length, one["request_id"])

    def make_room(self, one: Request) -> Request | None:
        """Return whom to evict so that ``one`` fits."""
        able = [
            other
            for other in self.requests
            if other["holds"]
            and other["preemptible"]
            and self.urgency(other) < self.urgency(one)
            and self.free + other["required_blocks"] >= one["required_blocks"]
        ]
        return min(
            able,
            key=lambda other: (
                self.urgency(other),
                -other["required_blocks"],
                other["request_id"],
            ),
            default=None,
        )

    def step(self) -> tuple[int, int | None, str] | None:
        """Return who was served, who was evicted, and what happened."""
        for one in sorted(self.live(), key=self.place):
            evicted = None
            if not one["holds"] and one["required_blocks"] > self.free:
                evicted = self.make_room(one)
                if evicted is None:
                    continue
                evicted.update(holds=False, status="preempted", evicted=evicted["evicted"] + 1)
                self.free += evicted["required_blocks"]
            if not one["holds"]:
                self.free -= one["required_blocks"]
                one["holds"] = True
            one["status"] = "running"
            action = self.serve(one)
            return one["request_id"], evicted and evicted["request_id"], action
        return None

    def serve(self, one: Request) -> str:
        for other in self.live():
            other["waited"] += other is not one
        self.clock += 1
        if not one["prefilled"]:
            one["prefilled"] = True
            return "prefill_to_decode"
        one["made"] += 1
        if one["made"] < one["max_new_tokens"]:
            return "decode_one_step"
        one.update(holds=False, status="finished")
        self.free += one["required_blocks"]
        return "finish"

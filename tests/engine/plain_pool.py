"""KV blocks once more, in plain Python: a list of free ones, and what is known of their content."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class PlainBlock:
    users: int = 0
    content: tuple[object, ...] | None = None
    learnt: int = 0  # when its content became known


@dataclass
class PlainPool:
    """Blocks in the order of their next use; with caching, known content is found again."""

    size: int
    caching: bool = False
    free: list[PlainBlock] = field(default_factory=list)
    known: list[PlainBlock] = field(default_factory=list)
    clock: int = 0

    def __post_init__(self) -> None:
        self.free = [PlainBlock() for _ in range(self.size)]

    def take(self, count: int) -> list[PlainBlock]:
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            block.users = 1
            if block.content is not None:
                self.known.remove(block)
                block.content = None
        return taken

    def share(self, blocks: list[PlainBlock]) -> None:
        for block in blocks:
            if block.users == 0:
                self.free = [one for one in self.free if one is not block]
            block.users += 1

    def give_back(self, blocks: list[PlainBlock]) -> None:
        unknown, kept = [], []
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                (unknown if block.content is None else kept).append(block)
        self.free = [*unknown, *self.free, *kept]

    def learn(self, block: PlainBlock, content: tuple[object, ...]) -> None:
        if self.caching and block.content is None:
            self.clock += 1
            block.content, block.learnt = content, self.clock
            self.known.append(block)

    def lookup(self, contents: list[tuple[object, ...]]) -> list[PlainBlock]:
        found: list[PlainBlock] = []
        for content in contents:
            same = [block for block in self.known if block.content == content]
            if not same:
                break
            found.append(min(same, key=lambda block: block.learnt))
        return found

"""Why tokens were computed that the server could have had."""

from collections import Counter
from typing import Optional

from ..scenario_checks import GRID_TOKENS

# Of the header of an answer with what a template prints behind it.
_HEADER_TOKENS = 32


def cause(reread: int, *, source: str, anchor: str, grid: bool, title: bool,
          restarted: Optional[str]) -> str:
    """Of one request that computed `reread` tokens again. `restarted`: the
    signal of the last restart, if it is the first request of its session since."""
    if reread <= _HEADER_TOKENS and anchor:
        return "the header of the answer where the prompt parts"
    if grid and reread < GRID_TOKENS:
        return "grid: back to the line below where the prompt parts"
    if restarted:
        return f"the first of its session after SIG{restarted}: {source}, {anchor or 'no anchor'}"
    if title:
        return "a title: no anchor behind its instructions"
    return f"no anchor where the prompt parts: {source}, {anchor or 'no anchor'}"


class Causes:
    """Tokens and requests by cause."""

    def __init__(self) -> None:
        self.tokens: Counter = Counter()
        self.requests: Counter = Counter()

    def add(self, name: str, reread: int) -> None:
        self.tokens[name] += reread
        self.requests[name] += 1

    @property
    def total(self) -> int:
        return sum(self.tokens.values())

    def rows(self) -> list[dict]:
        """Largest first."""
        return [{"cause": name, "requests": self.requests[name], "tokens": tokens}
                for name, tokens in self.tokens.most_common()]

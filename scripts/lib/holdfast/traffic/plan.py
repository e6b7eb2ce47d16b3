"""A day of an agent's traffic, from a seed: which session asks what, what the
model is made to answer, and when the daemons are restarted. A plan is the same
on every machine."""

from dataclasses import dataclass, field
from typing import Optional, Union

from ..textgen import Random, prose

TITLE_SYSTEM_WORDS = 350
TOOLS = ["bash", "edit", "glob", "grep", "read", "write"]


@dataclass(frozen=True)
class Shape:
    """How much of everything; tokens are about twice the words."""
    sessions: int = 3
    turns: int = 200
    head_words: int = 2300  # above the disk tier's least prompt of 4,096 tokens
    terms: int = 2  # SIGTERM of all daemons at once
    kills: int = 2  # SIGKILL of all


@dataclass(frozen=True)
class Turn:
    """One request of a session; what precedes it is the session's history."""
    session: int
    messages: list[dict]  # what the client adds
    answer: dict  # what the model is made to say
    title: Optional[list[dict]] = None  # the title request sent at the same time


@dataclass(frozen=True)
class Restart:
    signal: str


Step = Union[Turn, Restart]


@dataclass
class Plan:
    heads: list[str] = field(default_factory=list)  # system text by session
    salts: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def tools() -> list[dict]:
    """As a client declares them, the same in every request."""
    return [{"type": "function", "function": {
        "name": name, "description": prose(1000 + i, 40),
        "parameters": {"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string", "description": prose(2000 + i, 12)},
            "limit": {"type": "integer"}}}}} for i, name in enumerate(TOOLS)]


def make(seed: int, shape: Shape) -> Plan:
    return _Maker(seed, shape).plan()


class _Maker:
    def __init__(self, seed: int, shape: Shape):
        self._random = Random(seed)
        self._shape = shape
        self._texts = seed << 24
        self._started: set[int] = set()
        self._plan = Plan()

    def plan(self) -> Plan:
        shape, plan = self._shape, self._plan
        folder = self._prose(shape.head_words)
        for session in range(shape.sessions):
            # The last one is another tenant's, in another folder.
            other = session == shape.sessions - 1 and shape.sessions > 1
            plan.heads.append(self._prose(shape.head_words) if other else folder)
            plan.salts.append("another-tenant" if other else "")
        turns = 0
        while turns < shape.turns:
            turns += self._burst(shape.turns - turns)
        self._add_restarts()
        return plan

    def _burst(self, left: int) -> int:
        """One user message and its tool loop, in a session that exists or, as
        the day goes on, a new one."""
        made = 1.0 - left / self._shape.turns
        opened = len(self._started)
        if opened < self._shape.sessions and made >= opened / self._shape.sessions * 0.6:
            session = opened
        else:
            session = self._random.below(opened)
        steps = min(left, 1 + self._random.below(6))
        for step in range(steps):
            self._plan.steps.append(self._turn(session, step, last=step == steps - 1))
        return steps

    def _turn(self, session: int, step: int, last: bool) -> Turn:
        title = None
        if step > 0:
            # As many results as the answer before had calls.
            messages = [{"role": "tool", "content": self._prose(20 + self._random.below(180))}
                        for _ in range(self._calls)]
        else:
            messages = [{"role": "user", "content": self._prose(10 + self._random.below(60))}]
            if session not in self._started:
                self._started.add(session)
                title = [{"role": "system", "content": prose(3, TITLE_SYSTEM_WORDS)},
                         {"role": "user", "content": "Generate a title for this conversation:\n"},
                         {"role": "user", "content": messages[0]["content"]}]
        return Turn(session, messages, self._answer(last), title)

    def _answer(self, last: bool) -> dict:
        answer: dict = {"reasoning": self._prose(5 + self._random.below(40))}
        if last:
            answer["text"] = self._prose(10 + self._random.below(60))
            return answer
        self._calls = 1 + (self._random.below(6) == 0)
        answer["tool_calls"] = [
            {"name": TOOLS[self._random.below(len(TOOLS))],
             "arguments": {"path": f"src/{self._prose(2).lower()}", "limit": self._random.below(99)}}
            for _ in range(self._calls)]
        return answer

    def _add_restarts(self) -> None:
        """Spread over the day, each ahead of some turn; never the first one."""
        signals = [s for pair in zip(["TERM"] * self._shape.terms, ["KILL"] * self._shape.kills)
                   for s in pair]
        signals += ["TERM"] * (self._shape.terms - self._shape.kills)
        signals += ["KILL"] * (self._shape.kills - self._shape.terms)
        steps = self._plan.steps
        part = len(steps) // (len(signals) + 1) if signals else 0
        for i in reversed(range(len(signals))):
            at = part * (i + 1) + self._random.below(max(1, part // 2))
            steps.insert(max(1, at), Restart(signals[i]))

    def _prose(self, words: int) -> str:
        self._texts += 1
        return prose(self._texts, words)

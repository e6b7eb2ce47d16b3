"""Plays a plan against daemons and adds up what was computed."""

import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Optional

from .. import cache_files
from .. import scenario_checks as checks
from ..client import Answer
from ..daemons import Daemons
from ..textgen import Random
from . import plan as plans
from .causes import Causes, cause
from .floor import Floor, Part

MAX_TOKENS = 2000
WRITER_DEADLINE_S = 60
UNDER_WAY = ("holdfast_leases", "holdfast_records_under_way")
PARAMS = {"temperature": 0, "max_tokens": MAX_TOKENS,
          "chat_template_kwargs": {"enable_thinking": True}}


@dataclass
class Served:
    """One answer, as the sums need it."""
    label: str
    salt: str
    answer: Answer
    part: Part  # of the floor

    @property
    def computed(self) -> int:
        return self.answer.holdfast.get("computed_tokens", 0)

    @property
    def reread(self) -> int:
        """Tokens computed that the server could have had."""
        return self.part.held - (self.answer.prompt_tokens - self.computed)


@dataclass
class Result:
    floor: Floor = field(default_factory=Floor)
    served: list[Served] = field(default_factory=list)
    causes: Causes = field(default_factory=Causes)
    problems: list[str] = field(default_factory=list)
    kept: list[tuple[Served, dict]] = field(default_factory=list)  # to compare, and as sent

    @property
    def computed(self) -> int:
        return sum(s.computed for s in self.served)

    @property
    def prompt_tokens(self) -> int:
        return sum(s.answer.prompt_tokens for s in self.served)

    def ratio(self) -> float:
        return self.computed / self.floor.tokens

    def by_source(self) -> dict[str, int]:
        out: Counter = Counter()
        for served in self.served:
            out.update(served.answer.holdfast.get("cached_by_source") or {})
        return dict(out)


class Player:
    def __init__(self, plan: plans.Plan, daemons: Daemons, seed: int, compared: int, grid: bool,
                 say: Callable[[str], None]):
        self._plan = plan
        self._daemons = daemons
        self._say = say
        self._model = daemons.client.model_id()
        self._histories = [[{"role": "system", "content": head}] for head in plan.heads]
        self._tools = plans.tools()
        self._grid = grid
        self._restarted: dict[int, str] = {}  # by session, until its next request
        self._compared = _drawn(seed, compared, [i for i, step in enumerate(plan.steps)
                                                 if isinstance(step, plans.Turn)])
        self.result = Result()

    def play(self) -> Result:
        for i, step in enumerate(self._plan.steps):
            if isinstance(step, plans.Restart):
                self._restart(step)
            else:
                self._turn(i, step)
            ended = self._daemons.ended()
            if ended:
                raise RuntimeError(f"ended by themselves: {ended}")
        return self.result

    def compare_with_cold(self) -> None:
        """Each answer drawn by the seed against a run of its ids from nothing."""
        for served, body in self.result.kept:
            request = checks.cold_request(self._model, served.answer, body, forced=True)
            cold = self._daemons.client.generate("/v1/completions", request)
            found = checks.cold_problems(served.answer, cold)
            self._say(f"  {'FAIL' if found else 'same'} as cold: {served.label}, "
                      f"{served.answer.prompt_tokens} tokens")
            self.result.problems += [f"{served.label}: {p}" for p in found]

    def _turn(self, number: int, turn: plans.Turn) -> None:
        history = self._histories[turn.session]
        history += _as_results(turn.messages, history[-1])
        label = f"turn {number} of session {turn.session}"
        title: Optional[threading.Thread] = None
        if turn.title:
            title = threading.Thread(target=self._send, args=(
                f"title of session {turn.session}", turn.session, turn.title, "A title", False))
            title.start()
        answer = self._send(label, turn.session, history, turn.answer, number in self._compared)
        if title:
            title.join()
        history.append(answer.message())

    def _send(self, label: str, session: int, messages: list[dict], force, compared: bool) -> Answer:
        salt = self._plan.salts[session]
        extra = {"force": force, **({"digest": True} if compared else {})}
        body = {"model": self._model, "messages": messages, "stream": True,
                "stream_options": {"include_usage": True}, "holdfast": extra, **PARAMS}
        if not label.startswith("title"):
            body["tools"] = self._tools
        if salt:
            body["cache_salt"] = salt
        answer = self._daemons.client.generate("/v1/chat/completions", body,
                                               {"X-Session-Id": f"ses_{session}"})
        result = self.result
        if answer.status != 200 or not answer.complete or answer.error:
            raise RuntimeError(f"{label}: {answer.status} {answer.error}")
        result.problems += [f"{label}: {p}" for p in checks.conservation_problems(answer)]
        served = Served(label, salt, answer, result.floor.note(
            salt, answer.holdfast["prompt_ids"], answer.holdfast["output_ids"]))
        result.served.append(served)
        self._note_cause(served, session, title=label.startswith("title"))
        if compared:
            result.kept.append((served, body))
        return answer

    def _note_cause(self, served: Served, session: int, title: bool) -> None:
        restarted = self._restarted.get(session) if title else self._restarted.pop(session, None)
        if served.reread <= 0:
            return
        report = served.answer.holdfast
        self.result.causes.add(
            cause(served.reread, source=report.get("cache_source") or "none",
                  anchor=report.get("anchor") or "", grid=self._grid, title=title,
                  restarted=restarted), served.reread)

    def _restart(self, step: plans.Restart) -> None:
        which = signal.Signals[f"SIG{step.signal}"]
        # What a tier holds is counted; a store cut off in the middle would
        # make the count depend on the moment.
        self._wait_writer_idle()
        self._daemons.restart("all", which)
        if which == signal.SIGKILL:
            self.result.floor.killed(cache_files.resume_points(self._daemons.cache_dir))
        self._restarted = dict.fromkeys(range(len(self._plan.heads)), step.signal)
        self._say(f"  {which.name} of all daemons")

    def _wait_writer_idle(self) -> None:
        end = time.monotonic() + WRITER_DEADLINE_S
        while any(self._daemons.client.metrics().value(name) > 0 for name in UNDER_WAY):
            if time.monotonic() > end:
                raise RuntimeError(f"stores were not done within {WRITER_DEADLINE_S} s")
            time.sleep(0.02)


def _as_results(messages: list[dict], before: dict) -> list[dict]:
    """Tool results name the calls of the answer before them."""
    calls = before.get("tool_calls") or []
    return [{**m, "tool_call_id": calls[i]["id"]} if m["role"] == "tool" else dict(m)
            for i, m in enumerate(messages)]


def _drawn(seed: int, count: int, numbers: list[int]) -> set[int]:
    random, left = Random(seed + 1), list(numbers)
    return {left.pop(random.below(len(left))) for _ in range(min(count, len(left)))}

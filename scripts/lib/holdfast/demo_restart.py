"""What survives restarts, on the real daemons: see `scripts/demo --help`."""

import signal
import time
from pathlib import Path
from typing import Callable

from . import textgen
from .client import Answer, Client
from .daemons import CACHESVC, ENGINE, GATEWAY, Daemons
from .demo_chat import NEXT_QUESTION, QUESTION, chat, compare_with_cold_runs

HEAD_TOKENS = 5000
MESSAGE_TOKENS = 950  # with the template and the question about 6,000
# The demo needs about a gigabyte of disk, not fifty.
LOWERED = ["--disk-free-gb=1", "--allow-small-free-space"]
LEASES = "holdfast_leases"
WRITER_DEADLINE_S = 60
POLL_S = 0.05

Say = Callable[[str], None]


def run(model: Path, *, bin_dir: Path, say: Say, head_tokens: int = HEAD_TOKENS,
        message_tokens: int = MESSAGE_TOKENS, flags: tuple[str, ...] = (),
        engine_flags: tuple[str, ...] = ()) -> tuple[dict, list[str]]:
    """Does the job; returns the result and what is wrong with it."""
    lowered = [*LOWERED, *flags]
    say(f"lowered for this demo: {' '.join(lowered)}")
    with Daemons(model, bin_dir=bin_dir,
                 flags={ENGINE: ["--debug", *engine_flags], CACHESVC: lowered,
                        GATEWAY: []}) as daemons:
        daemons.wait_attached()
        return _Job(daemons, say, head_tokens, message_tokens).run()


class _Job:
    def __init__(self, daemons: Daemons, say: Say, head_tokens: int, message_tokens: int):
        self._daemons = daemons
        self._client: Client = daemons.client
        self._say = say
        self._model = self._client.model_id()
        self._head = self._text(1, head_tokens)
        self._message_tokens = message_tokens
        self._steps: list[dict] = []
        self._problems: list[str] = []

    def run(self) -> tuple[dict, list[str]]:
        self._say(f"{'request':<22}{'prompt':>8}{'cached':>8}  {'source':<10}{'first token':>12}")
        self._step("cold", "none", self._conversation(2), "a")
        self._wait_writer_idle()
        self._say("kill -9 of all three, restart")
        self._daemons.restart("all", signal.SIGKILL)
        messages = self._conversation(3)
        answer = self._step("new_session", "disk", messages, "b")
        self._say("SIGTERM of all three at once, restart")
        self._daemons.restart("all", signal.SIGTERM)
        messages += [answer.message(), {"role": "user", "content": NEXT_QUESTION}]
        self._step("next_turn", "spill", messages, "b")
        return ({"identical": not self._problems, "steps": self._steps}, self._problems)

    def _text(self, seed: int, tokens: int) -> str:
        return textgen.exact(seed, tokens, self._client.tokenize, self._client.detokenize)

    def _conversation(self, seed: int) -> list[dict]:
        return [{"role": "system", "content": self._head},
                {"role": "user", "content": f"{self._text(seed, self._message_tokens)}\n{QUESTION}"}]

    def _step(self, name: str, source: str, messages: list[dict], session: str) -> Answer:
        answer = chat(self._client, self._model, messages, name, self._say, session)
        problems = compare_with_cold_runs(self._client, self._model, {name: answer}, self._say)
        got = answer.holdfast.get("cache_source")
        if got != source:
            problems.append(f"{name}: cache source {got}, not {source}")
        self._steps.append({"name": name, "ttft_ms": round(answer.ttft_ms, 2),
                            "cached_tokens": answer.cached_tokens,
                            "computed_tokens": answer.holdfast.get("computed_tokens"),
                            "cache_source": got, "identical": not problems})
        self._problems += problems
        return answer

    def _wait_writer_idle(self) -> None:
        """Until no block of the pool is lent for a store any more."""
        end = time.monotonic() + WRITER_DEADLINE_S
        while self._client.metrics().value(LEASES) > 0:
            if time.monotonic() > end:
                raise ValueError(f"stores were not done within {WRITER_DEADLINE_S} s")
            time.sleep(POLL_S)

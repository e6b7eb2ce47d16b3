"""What the demos share: a request with its printed line, and the comparison of
answers with cold runs of the same ids."""

import sys
import threading
import time
from typing import Callable

from . import scenario_checks as checks
from .client import Answer, Client

PARAMS = {"max_tokens": 32, "temperature": 0}
QUESTION = "Which places does the text speak of? Answer in one sentence."
NEXT_QUESTION = "And which of them is mentioned last?"
PROGRESS_S = 0.2


class Progress:
    """One line that says what runs and for how long; only on a terminal."""

    def __init__(self, what: str):
        self._what = what
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Progress":
        if sys.stdout.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
            print("\r\x1b[K", end="", flush=True)

    def _run(self) -> None:
        start = time.monotonic()
        while not self._done.wait(PROGRESS_S):
            print(f"\r  {self._what} ... {time.monotonic() - start:.1f} s", end="", flush=True)


def chat(client: Client, model_id: str, messages: list[dict], what: str,
         say: Callable[[str], None], session: str = "demo") -> Answer:
    body = {"model": model_id, "messages": messages, "stream": True,
            "stream_options": {"include_usage": True}, **PARAMS}
    with Progress(what):
        answer = client.generate("/v1/chat/completions", body, {"X-Session-Id": session})
    wrong = checks.answer_problems(answer, {}) + checks.conservation_problems(answer)
    if answer.ttft_ms is None:
        wrong.append("no token came")
    if wrong:
        raise ValueError(f"{what}: {'; '.join(wrong)}")
    say(f"{what:<22}{answer.prompt_tokens:>8}{answer.cached_tokens:>8}  "
        f"{answer.holdfast.get('cache_source', ''):<10}{answer.ttft_ms:>9.1f} ms")
    return answer


def compare_with_cold_runs(client: Client, model_id: str, answers: dict[str, Answer],
                           say: Callable[[str], None]) -> list[str]:
    """The ids that each answer was served from, run again past all caches;
    and resumed once more, now with digests of logits and state. (The timed
    requests carry none: taking one reads every row.)"""
    problems = []
    cold_runs: dict[tuple, Answer] = {}  # by prompt: cold and warm share one
    for name, served in answers.items():
        ids = tuple(served.holdfast.get("prompt_ids") or ())
        if not ids:
            return ["the server sent no prompt_ids"]
        if ids not in cold_runs:
            body = checks.cold_request(model_id, served, PARAMS, forced=False)
            cold = cold_runs[ids] = _check_run(client, body, "no cache", say)
            body["holdfast"]["cache"] = "read_only"
            resumed = _check_run(client, body, "resumed", say)
            problems += [f"{name}: {p}" for p in checks.cold_problems(resumed, cold)]
            if resumed.cached_tokens == 0:
                problems.append(f"{name}: nothing was resumed")
        cold = cold_runs[ids]
        if served.holdfast.get("output_ids") != cold.holdfast.get("output_ids"):
            problems.append(f"{name}: other ids than the cold run's")
        if served.content != cold.content:
            problems.append(f"{name}: another text than the cold run's")
    return problems


def _check_run(client: Client, body: dict, how: str, say: Callable[[str], None]) -> Answer:
    what = f"check: {len(body['prompt'])} ids, {how}"
    with Progress(what):
        answer = client.generate("/v1/completions", body)
    say(f"{what} ({answer.total_ms / 1e3:.1f} s)")
    return answer

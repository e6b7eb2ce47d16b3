"""The main job on the real daemons: see `scripts/demo --help`."""

import argparse
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Callable

from . import paths, textgen
from . import scenario_checks as checks
from .client import Answer, Client, ConnectionLost
from .daemons import CACHESVC, ENGINE, GATEWAY, DaemonError, Daemons

TEXT_TOKENS = 3950  # with the template and the question about 4,000
MIN_RATIO = 50
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


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--restart", action="store_true")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        model = paths.resolve_model(options.model, paths.RELEASE_BIN)
        print(f"Model: {model.name}", flush=True)
        if options.restart:
            from . import demo_restart  # which uses this module
            result, problems = demo_restart.run(
                model.path, bin_dir=paths.RELEASE_BIN,
                say=lambda line: print(line, flush=True))
        else:
            result, problems = run(model.path)
    except (DaemonError, ConnectionLost, paths.SetupError, ValueError) as e:
        print(f"holdfast: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    result = {"model": model.name, **result}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nidentical to cold runs of the same ids: {'yes' if result['identical'] else 'NO'}"
          + (f"   first token, cold / warm: {result['ratio']:.0f}" if "ratio" in result else ""))
    if model.is_demo and result.get("ratio", MIN_RATIO) < MIN_RATIO:
        problems.append(f"the ratio {result['ratio']:.1f} is below {MIN_RATIO}")
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


def run(model: Path, *, bin_dir: Path = paths.RELEASE_BIN, text_tokens: int = TEXT_TOKENS,
        say: Callable[[str], None] = lambda line: print(line, flush=True)
        ) -> tuple[dict, list[str]]:
    """Does the job; returns the result and what is wrong with it."""
    with Daemons(model, bin_dir=bin_dir,
                 flags={ENGINE: ["--debug"], CACHESVC: [], GATEWAY: []}) as daemons:
        return job(daemons.client, text_tokens, say)


def job(client: Client, text_tokens: int,
        say: Callable[[str], None]) -> tuple[dict, list[str]]:
    """The main job with a text of that many tokens, on servers with --debug."""
    model_id = client.model_id()
    text = textgen.exact(1, text_tokens, client.tokenize, client.detokenize)
    messages = [{"role": "system", "content": text}, {"role": "user", "content": QUESTION}]

    say(f"{'request':<22}{'prompt':>8}{'cached':>8}  {'source':<10}{'first token':>12}")
    answers = {"cold": chat(client, model_id, messages, "cold", say)}
    answers["warm"] = chat(client, model_id, messages, "warm (the same)", say)
    messages += [answers["warm"].message(), {"role": "user", "content": NEXT_QUESTION}]
    answers["next_turn"] = chat(client, model_id, messages, "next turn", say)

    problems = []
    if answers["warm"].content != answers["cold"].content:
        problems.append("the warm answer is another text than the cold one")
    for name, answer in answers.items():
        if answer.cached_tokens == 0 and name != "cold":
            problems.append(f"{name}: nothing was cached")
    different = compare_with_cold_runs(client, model_id, answers, say)
    result = {"prompt_tokens": answers["cold"].prompt_tokens,
              **{name: _report(answer) for name, answer in answers.items()},
              "identical": not different and not problems,
              "ratio": round(answers["cold"].ttft_ms / answers["warm"].ttft_ms, 2)}
    return result, problems + different


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


def _report(answer: Answer) -> dict:
    return {"ttft_ms": round(answer.ttft_ms, 2), "cached_tokens": answer.cached_tokens,
            "cache_source": answer.holdfast.get("cache_source")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

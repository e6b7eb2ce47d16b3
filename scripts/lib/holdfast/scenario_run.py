"""Plays the steps of a scenario against a server."""

import json
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from . import cache_files, textgen
from . import scenario_checks as checks
from .client import Answer, Call, Client, ConnectionLost, Metrics, Response
from .daemons import DaemonError, Daemons
from .prompt_trie import PromptTrie
from .scenario_schema import as_client_list

IDLE_DEADLINE_S = 60
SETTLE_DEADLINE_S = 60
UNTIL_DEADLINE_S = 60
PREFILL_DEADLINE_S = 120
POLL_S = 0.01
# Sent where a step says nothing: greedy, so that answers can be compared, and
# short, so that a model that never ends its turn does not fill the context.
DEFAULT_PARAMS = {"temperature": 0, "max_tokens": 16}
# How the generated models' templates open messages; those of the second list
# begin like one of the first.
ANCHORED = ("<|im_start|>user", "<|im_start|>assistant")
NOT_ANCHORED = ("<|im_start|>user\n<tool_response>",)

RUNNING = "holdfast_num_requests_running"
WAITING = "holdfast_num_requests_waiting"
PREFILLED = "holdfast_prefill_tokens_total"
# Of an engine with a cache service: what that has not taken yet.
UNDER_WAY = ("holdfast_leases", "holdfast_records_under_way")
CLOSED_BY_CLIENT = 'holdfast_http_requests_total{code="499"}'


@dataclass
class Outcome:
    step: dict
    label: str
    line: str = ""
    problems: list[str] = field(default_factory=list)
    answer: Optional[Answer] = None
    messages: list[dict] = field(default_factory=list)  # as sent
    params: dict = field(default_factory=dict)  # as sent
    path: str = ""


class Player:
    """Plays one scenario. `daemons` is None when a URL was given; then the
    servers cannot be restarted."""

    def __init__(self, client: Client, daemons: Optional[Daemons],
                 report: Callable[[str], None] = print):
        self._client = client
        self._daemons = daemons
        self._report = report
        self._lock = threading.Lock()  # of the report and of what follows
        self._by_id: dict[str, Outcome] = {}
        self._generations: list[Outcome] = []
        self._texts: dict[tuple[int, int], str] = {}
        self._model = ""
        self._params = DEFAULT_PARAMS
        self._headers = checks.Headers()
        self._served: dict[str, PromptTrie] = {}  # by salt: what was forwarded

    def play(self, scenario: dict) -> bool:
        self._params = {**DEFAULT_PARAMS, **scenario.get("params", {})}
        self._model = self._client.model_id()
        self._headers = checks.Headers(*([self._client.tokenize(text) for text in texts]
                                         for texts in (ANCHORED, NOT_ANCHORED)))
        self._compared = _compared_ids(scenario["steps"])
        ok = self._play_steps(scenario["steps"], "")
        for outcome in self._generations:
            if outcome.step.get("expect", {}).get("same_as_cold"):
                ok &= self._compare_with_cold(outcome)
        return ok

    # Steps.

    def _play_steps(self, steps: list[dict], prefix: str) -> bool:
        ok = True
        for i, step in enumerate(steps):
            ok &= self._play_step(step, f"{prefix}{step.get('id', i + 1)}")
        return ok

    def _play_step(self, step: dict, label: str) -> bool:
        outcome = Outcome(step, label)
        metric = step.get("expect", {}).get("metric")
        try:
            before = self._client.metrics() if metric else None
            getattr(self, "_op_" + step["op"])(outcome)
            if before is not None:
                after = self._settled_metrics()
                outcome.problems += checks.metric_problems(before, after, metric)
        except (ConnectionLost, DaemonError, OSError, KeyError, ValueError) as e:
            outcome.problems.append(f"{type(e).__name__}: {e}")
        with self._lock:
            if "id" in step:
                self._by_id[step["id"]] = outcome
        self._say(outcome.problems, f"{label:8} {step['op']:8} {outcome.line}")
        return not outcome.problems

    def _op_chat(self, outcome: Outcome) -> None:
        self._generate(outcome, outcome.step, "/v1/chat/completions")

    def _op_complete(self, outcome: Outcome) -> None:
        self._generate(outcome, outcome.step, "/v1/completions")

    def _generate(self, outcome: Outcome, request: dict, path: str, **hooks) -> None:
        body = self._body(outcome, request)
        headers = dict(request.get("headers", {}))
        if request.get("session") is not None:
            headers["X-Session-Id"] = request["session"]
        answer = self._client.generate(path, body, headers, **hooks)
        outcome.answer, outcome.path = answer, path
        outcome.line = _describe(answer)
        if answer.cancelled:
            return
        expect = outcome.step.get("expect", {})
        outcome.problems += checks.answer_problems(answer, expect)
        if request.get("cache") != "bypass" and answer.holdfast.get("prompt_ids"):
            reread = self._note_served(request.get("salt", ""), answer)
            outcome.line += f", read again {reread}"
            if "reread" in expect:
                outcome.problems += checks.range_problems("reread", reread, expect["reread"])
        if "reused" in expect:
            named = next((v for v in expect["reused"].values() if isinstance(v, str)), None)
            outcome.problems += checks.reused_problems(
                expect["reused"], answer, self._answer_of(named) if named else None,
                self._headers)
        outcome.problems += checks.conservation_problems(answer)
        if "same_as" in expect:
            other = self._answer_of(expect["same_as"])
            outcome.problems += checks.same_problems(expect["same_as"], answer, other)
        with self._lock:
            self._generations.append(outcome)

    def _note_served(self, salt: str, answer: Answer) -> int:
        """How many tokens that had been forwarded before were computed again."""
        ids = answer.holdfast["prompt_ids"]
        with self._lock:
            trie = self._served.setdefault(salt, PromptTrie())
            known = trie.known(ids)
            trie.add(ids + answer.holdfast["output_ids"][:-1])
        return max(0, known - answer.cached_tokens)

    def _op_raw(self, outcome: Outcome) -> None:
        step, expect = outcome.step, outcome.step.get("expect", {})
        response = self._client.request(step.get("method", "POST"), step["path"],
                                        step.get("body"), step.get("headers"))
        outcome.line = f"{response.status}"
        if response.status != expect.get("status", 200):
            outcome.problems.append(f"status {response.status}, not {expect.get('status', 200)}: "
                                    f"{response.body[:300]!r}")
        wanted = expect.get("error_contains")
        if wanted is not None and wanted not in response.body.decode(errors="replace"):
            outcome.problems.append(f"{response.body[:300]!r} lacks {wanted!r}")
        if "json" in expect:
            outcome.problems += _json_problems(response, expect["json"])

    def _op_cancel(self, outcome: Outcome) -> None:
        step, request = outcome.step, dict(outcome.step["request"])
        leave = (lambda call: call.reset()) if step.get("reset") else (lambda call: call.abort())
        ended = threading.Event()
        hooks: dict[str, Any] = {}
        held: list[int] = []
        if "after_tokens" in step:
            hooks["on_piece"] = lambda answer, call: (
                leave(call) if answer.pieces >= step["after_tokens"] else None)
        elif "when_held" in step:
            text = request["answer"]["text"]
            held = self._client.tokenize(text)
            request["answer"] = {"ids": held, "hold": True}
            hooks["on_piece"] = lambda answer, call: leave(call) if answer.content == text else None
        elif "at_metric" in step:
            hooks["on_sent"] = lambda call: self._abort_at(
                call, step["at_metric"]["metric"], step["at_metric"]["min"], ended)
        else:
            metrics = self._client.metrics()
            if PREFILLED not in metrics.names():
                raise ValueError(f"metric {PREFILLED} does not exist")
            target = metrics.value(PREFILLED) + step["at_prefill_tokens"]
            hooks["on_sent"] = lambda call: self._abort_at(call, PREFILLED, target, ended)
        before = self._client.metrics().value(CLOSED_BY_CLIENT)
        try:
            self._generate(outcome, request, "/v1/chat/completions", **hooks)
        finally:
            ended.set()
        if not outcome.answer.cancelled:
            outcome.problems.append("the answer ended before it was cancelled")
            return
        outcome.line = f"cancelled after {outcome.answer.total_ms:.0f} ms, " \
                       f"{outcome.answer.pieces} pieces"
        # Until then the engine may not know what was sent.
        self._until(CLOSED_BY_CLIENT, before + 1)
        if held:
            self._note_held(outcome, request, held)

    def _abort_at(self, call: Call, metric: str, target: float, ended: threading.Event) -> None:
        def watch() -> None:
            deadline = time.monotonic() + PREFILL_DEADLINE_S
            while not ended.wait(POLL_S) and time.monotonic() < deadline:
                if self._client.metrics().value(metric) >= target:
                    call.abort()
                    return
        threading.Thread(target=watch, daemon=True).start()

    def _note_held(self, outcome: Outcome, request: dict, held: list[int]) -> None:
        """The ids of an answer that was cut, for the rules of later steps: its
        client got no report. A request that leaves no trace says the prompt's."""
        asked = {k: v for k, v in request.items() if k not in ("answer", "session")}
        asked |= {"cache": "bypass", "stream": False, "params": {**request.get("params", {}),
                                                                 "max_tokens": 1}}
        body = self._body(Outcome({"op": "chat"}, ""), asked)
        told = self._client.generate("/v1/chat/completions", body)
        if "prompt_ids" not in told.holdfast:
            outcome.problems.append(f"no prompt_ids: {told.status} {told.error}")
            return
        answer = outcome.answer
        answer.holdfast = {"prompt_ids": told.holdfast["prompt_ids"], "output_ids": held}
        self._note_served(request.get("salt", ""), answer)

    def _op_parallel(self, outcome: Outcome) -> None:
        branches = outcome.step["steps"]
        results = [False] * len(branches)

        def run(i: int) -> None:
            results[i] = self._play_steps(branches[i], f"{outcome.label}.{i + 1}.")

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(branches))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        failed = results.count(False)
        outcome.line = f"{len(branches)} at once"
        if failed:
            outcome.problems.append(f"{failed} of {len(branches)} branches failed")

    def _op_restart(self, outcome: Outcome) -> None:
        who, name = outcome.step["who"], outcome.step.get("signal", "TERM")
        daemons = self._own_daemons()
        outcome.line = f"{who} {name}"
        which = signal.Signals[f"SIG{name}"]
        if name == "KILL" and who != "gateway":
            self._settle()
        if name in ("TERM", "KILL"):
            daemons.restart(who, which)
            return
        for one in daemons.processes if who == "all" else [who]:
            daemons.send(one, which)

    def _op_idle(self, outcome: Outcome) -> None:
        start = time.monotonic()
        while True:
            metrics = self._client.metrics()
            if RUNNING not in metrics.names():
                raise ValueError(f"metric {RUNNING} does not exist")
            if metrics.value(RUNNING) + metrics.value(WAITING) == 0:
                break
            if time.monotonic() - start > IDLE_DEADLINE_S:
                raise ValueError(f"not idle within {IDLE_DEADLINE_S} s")
            time.sleep(POLL_S)
        outcome.line = f"after {(time.monotonic() - start) * 1e3:.0f} ms"

    def _op_settle(self, outcome: Outcome) -> None:
        outcome.line = f"after {self._settle():.0f} ms"

    def _settle(self) -> float:
        """Until the cache service has taken and written what it was given, which
        so that what is there later does not depend on the moment. In ms."""
        start = time.monotonic()
        while True:
            metrics = self._client.metrics()
            if all(metrics.value(name) == 0 for name in UNDER_WAY):
                return (time.monotonic() - start) * 1e3
            if time.monotonic() - start > SETTLE_DEADLINE_S:
                raise ValueError(f"stores were not done within {SETTLE_DEADLINE_S} s")
            time.sleep(POLL_S)

    def _op_until(self, outcome: Outcome) -> None:
        """Until a metric is that large."""
        outcome.line = self._until(outcome.step["metric"], outcome.step["min"])

    def _until(self, name: str, wanted: float) -> str:
        start = time.monotonic()
        while (value := self._client.metrics().value(name)) < wanted:
            if time.monotonic() - start > UNTIL_DEADLINE_S:
                raise ValueError(f"{name} is {value:g}, not {wanted:g}, after {UNTIL_DEADLINE_S} s")
            time.sleep(POLL_S)
        return f"{name} {value:g} after {(time.monotonic() - start) * 1e3:.0f} ms"

    def _op_clear(self, outcome: Outcome) -> None:
        tier = outcome.step.get("tier")
        response = self._client.request("POST", "/v1/cache/clear" + (f"?tier={tier}" if tier else ""))
        if response.status != 200:
            raise ValueError(f"status {response.status}: {response.body[:300]!r}")
        cleared = response.json()["cleared"]
        outcome.line = json.dumps(cleared)
        outcome.problems += [f"{name} was not cleared: {part['reason']}"
                             for name, part in cleared.items() if not part["available"]]

    def _op_evict(self, outcome: Outcome) -> None:
        outcome.line = self._cachectl("evict", "--tier", outcome.step["tier"],
                                      "--bytes", "1000000TB").strip()

    def _op_corrupt(self, outcome: Outcome) -> None:
        step = outcome.step
        file = cache_files.corrupt(self._own_daemons().cache_dir, step["kind"], step["region"],
                                   step.get("nth", 0))
        outcome.line = f"{step['region']} of {file.name[:20]}.."

    def _op_fill_disk(self, outcome: Outcome) -> None:
        """The file system of its own that the scenario's server.disk_mb gave."""
        disk = self._own_daemons().small_disk
        if disk is None:
            raise DaemonError("the cache folder has no file system of its own")
        outcome.line = f"{disk.fill(outcome.step['leave_bytes'])} bytes are free"

    def _own_daemons(self) -> Daemons:
        if self._daemons is None:
            raise DaemonError("this needs daemons that the runner started (no --url)")
        return self._daemons

    def _cachectl(self, *arguments: str) -> str:
        ran = self._own_daemons().cachectl(*arguments)
        if ran.returncode != 0:
            raise DaemonError(f"cachectl {' '.join(arguments)}: {ran.stderr.strip()}")
        return ran.stdout

    # Requests.

    def _body(self, outcome: Outcome, request: dict) -> dict:
        outcome.params = {**self._params, **request.get("params", {})}
        if "max_completion_tokens" in outcome.params and "max_tokens" not in request.get("params", {}):
            del outcome.params["max_tokens"]
        body: dict[str, Any] = {"model": self._model, **outcome.params,
                                "stream": request.get("stream", True)}
        if body["stream"]:
            body["stream_options"] = {"include_usage": True}
        if "salt" in request:
            body["cache_salt"] = request["salt"]
        extra: dict[str, Any] = {k: request[k] for k in ("cache", "align") if k in request}
        if "answer" in request:
            extra["force"] = request["answer"]
        expect = outcome.step.get("expect", {})
        if (outcome.step.get("id") in self._compared or "same_as" in expect
                or expect.get("same_as_cold")):
            extra["digest"] = True
        if extra:
            body["holdfast"] = extra
        if "messages" in request:
            body["messages"] = outcome.messages = self._messages(request)
        else:
            body["prompt"] = request["prompt"] if "prompt" in request else self._text(request["text"])
        return body

    def _messages(self, request: dict) -> list[dict]:
        out: list[dict] = []
        if "continue" in request:
            with self._lock:
                earlier = self._by_id[request["continue"]]
            out += earlier.messages
            out.append(checks.as_client(earlier.answer.message(), as_client_list(request)))
        for message in request["messages"]:
            message = dict(message)
            if "text" in message:
                message["content"] = self._text(message.pop("text"))
            out.append(message)
        return out

    def _text(self, wanted: dict) -> str:
        key = (wanted["seed"], wanted["tokens"])
        with self._lock:
            if key not in self._texts:
                self._texts[key] = textgen.exact(*key, self._client.tokenize,
                                                 self._client.detokenize)
            return self._texts[key]

    # After the steps.

    def _compare_with_cold(self, outcome: Outcome) -> bool:
        served = outcome.answer
        if served.error or "prompt_ids" not in served.holdfast:
            problems = ["no prompt_ids: are the servers started with --debug?"]
            self._say(problems, f"{outcome.label:8} cold")
            return False
        body = checks.cold_request(self._model, served, outcome.params,
                                   forced="answer" in outcome.step)
        try:
            cold = self._client.generate("/v1/completions", body)
            problems = checks.cold_problems(served, cold)
            line = f"{len(served.holdfast['prompt_ids'])} ids again, {cold.total_ms:.0f} ms"
        except ConnectionLost as e:
            problems, line = [f"ConnectionLost: {e}"], ""
        self._say(problems, f"{outcome.label:8} cold     {line}")
        return not problems

    def _settled_metrics(self) -> Metrics:
        """Counters of a request may move just after its last byte."""
        idle = Outcome({"op": "idle"}, "")
        self._op_idle(idle)
        return self._client.metrics()

    def _answer_of(self, name: str) -> Answer:
        with self._lock:
            answer = self._by_id[name].answer
        if answer is None:
            raise ValueError(f"step {name} has no answer")
        return answer

    def _say(self, problems: list[str], line: str) -> None:
        with self._lock:
            self._report(("  FAIL " if problems else "  ok   ") + line)
            for problem in problems:
                self._report(f"         {problem}")


def _compared_ids(steps: list[dict]) -> set[str]:
    """Steps that another one is compared with."""
    out: set[str] = set()
    for step in steps:
        for branch in step["steps"] if step["op"] == "parallel" else []:
            out |= _compared_ids(branch)
        if "same_as" in step.get("expect", {}):
            out.add(step["expect"]["same_as"])
    return out


def _describe(answer: Answer) -> str:
    if answer.status != 200:
        return f"{answer.status} {answer.error}"
    report = answer.holdfast
    ttft = f"{answer.ttft_ms:.0f} ms" if answer.ttft_ms is not None else "none"
    return (f"{answer.status} prompt {answer.prompt_tokens}, cached {answer.cached_tokens} "
            f"({report.get('cache_source')}), computed {report.get('computed_tokens')}, "
            f"first token {ttft}, {answer.finish_reason}")


def _json_problems(response: Response, wanted: Any) -> list[str]:
    try:
        return checks.subset_problems(response.json(), wanted)
    except ValueError:
        return [f"the body is no JSON: {response.body[:300]!r}"]

"""Expectations of scenario steps: pure functions that return what is wrong,
as a list of sentences; an empty list is a pass."""

import json
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from .client import Answer, Metrics
from .prompt_trie import common_prefix

GRID_TOKENS = 1024  # of the generated models

DIGESTS = ("first_logits", "prompt_end", "end")
# What decides the sampled tokens, with the same name in both endpoints.
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty",
             "presence_penalty", "frequency_penalty", "logit_bias", "stop", "max_tokens",
             "ignore_eos")


def answer_problems(answer: Answer, expect: dict) -> list[str]:
    """All expectations that one answer can be held to by itself."""
    problems = []
    wanted_status = expect.get("status", 200)
    if answer.status != wanted_status:
        problems.append(f"status {answer.status}, not {wanted_status}: {answer.error}")
    if "error_contains" in expect:
        if answer.error is None:
            problems.append("no error came")
        elif expect["error_contains"] not in answer.error:
            problems.append(f"error {answer.error!r} lacks {expect['error_contains']!r}")
    elif wanted_status == 200 and answer.status == 200:
        if answer.error is not None:
            problems.append(f"error in the stream: {answer.error}")
        elif not answer.complete:
            problems.append("the stream ended before its end")
    if "cache_source" in expect:
        got = answer.holdfast.get("cache_source")
        if got != expect["cache_source"]:
            problems.append(f"cache_source {got}, not {expect['cache_source']}")
    if "aligned" in expect and answer.holdfast.get("aligned") != expect["aligned"]:
        problems.append(f"aligned by {answer.holdfast.get('aligned')}, not {expect['aligned']}")
    for name, got in (("cached_tokens", answer.cached_tokens),
                      ("computed_tokens", answer.holdfast.get("computed_tokens")),
                      ("ttft_ms", answer.ttft_ms)):
        if name in expect:
            problems += range_problems(name, got, expect[name])
    if "finish_reason" in expect and answer.finish_reason != expect["finish_reason"]:
        problems.append(f"finish_reason {answer.finish_reason}, not {expect['finish_reason']}")
    return problems


def conservation_problems(answer: Answer) -> list[str]:
    """Cached and computed tokens make up the prompt, in every answer."""
    if not answer.usage or "computed_tokens" not in answer.holdfast:
        return []
    report = answer.holdfast
    by_source = sum((report.get("cached_by_source") or {}).values())
    problems = []
    if report["computed_tokens"] + by_source != answer.prompt_tokens:
        problems.append(f"computed {report['computed_tokens']} + cached by source {by_source} "
                        f"are not the {answer.prompt_tokens} tokens of the prompt")
    if by_source != answer.cached_tokens:
        problems.append(f"cached by source {by_source}, cached_tokens {answer.cached_tokens}")
    return problems


@dataclass(frozen=True)
class Headers:
    """Token sequences that open messages, as the model's template writes them."""
    anchored: list[list[int]] = field(default_factory=list)  # of users and assistants
    plain: list[list[int]] = field(default_factory=list)  # longer ones, of others

    def at(self, ids: list[int], position: int) -> bool:
        def opens(header: list[int]) -> bool:
            return ids[position:position + len(header)] == header
        return any(map(opens, self.anchored)) and not any(map(opens, self.plain))


def reused_tokens(rule: dict, answer: Answer, other: Optional[Answer],
                  headers: Headers = Headers()) -> list[int]:
    """What a rule lets an answer reuse, ascending: one number, but where the
    rule says so.
    end_of: all that the other step forwarded: its prompt, and its answer but
      for the last token, which is sampled and never forwarded;
    line_below: up to the last grid line at or below the place where the prompt
      parts from what the other step was served and said;
    anchor_below: up to that line or, where they lie deeper, the last start of a
      user's or an assistant's message in the other step's prompt, or its end;
    some_line_below, some_anchor_below: up to one of these or a lower one, or
      nothing: of rows that may have gone, from the end on;
    common_with: up to that place, or short_by fewer (a message's header);
    tokens: the number itself."""
    if "tokens" in rule:
        return [rule["tokens"]]
    prompt = other.holdfast["prompt_ids"]
    ids = prompt + other.holdfast["output_ids"]
    if "end_of" in rule:
        return [len(ids) - 1]
    common = common_prefix(answer.holdfast["prompt_ids"], ids)
    lines = list(range(0, common + 1, GRID_TOKENS))
    if "line_below" in rule or "some_line_below" in rule:
        return lines if "some_line_below" in rule else lines[-1:]
    if "anchor_below" in rule or "some_anchor_below" in rule:
        anchors = sorted({*lines, *(at for at in range(1, min(common, len(prompt)) + 1)
                                    if at == len(prompt) or headers.at(prompt, at))})
        return anchors if "some_anchor_below" in rule else anchors[-1:]
    return list(range(common - rule["short_by"], common + 1))


def reused_problems(rule: dict, answer: Answer, other: Optional[Answer],
                    headers: Headers = Headers()) -> list[str]:
    if answer.status != 200:
        return []  # said already
    allowed = reused_tokens(rule, answer, other, headers)
    if answer.cached_tokens in allowed:
        return []
    wanted = " or ".join(map(str, allowed[-6:]))
    return [f"{answer.cached_tokens} tokens were reused, not {wanted} ({json.dumps(rule)})"]


def range_problems(name: str, got: Optional[float], wanted: Union[dict, int]) -> list[str]:
    """`wanted` is a range, or the number itself."""
    if got is None:
        return [f"{name} is missing in the answer"]
    if not isinstance(wanted, dict):
        return [] if got == wanted else [f"{name} {got:g} is not {wanted:g}"]
    if "min" in wanted and got < wanted["min"]:
        return [f"{name} {got:g} is below {wanted['min']:g}"]
    if "max" in wanted and got > wanted["max"]:
        return [f"{name} {got:g} is above {wanted['max']:g}"]
    return []


def metric_problems(before: Metrics, after: Metrics, wanted: dict) -> list[str]:
    problems = []
    for name, bounds in wanted.items():
        if name.split("{")[0] not in after.names():
            problems.append(f"metric {name} does not exist")
            continue
        delta = after.value(name) - before.value(name)
        if "delta" in bounds and delta != bounds["delta"]:
            problems.append(f"metric {name} moved by {delta:g}, not {bounds['delta']:g}")
        problems += range_problems(f"delta of metric {name}", delta, bounds)
    return problems


def same_problems(name: str, got: Answer, wanted: Answer) -> list[str]:
    """Two answers say the same; where they were served from the same ids, the
    state behind them is the same too."""
    problems = []
    for part in ("content", "reasoning", "finish_reason"):
        if getattr(got, part) != getattr(wanted, part):
            problems.append(f"{part} {getattr(got, part)!r} differs from {name}'s "
                            f"{getattr(wanted, part)!r}")
    ours, theirs = _functions(got), _functions(wanted)
    if ours != theirs:
        problems.append(f"tool calls {ours} differ from {name}'s {theirs}")
    ids = got.holdfast.get("prompt_ids")
    if ids is not None and ids == wanted.holdfast.get("prompt_ids"):
        problems += digest_problems(name, got, wanted)
    return problems


def cold_problems(served: Answer, cold: Answer) -> list[str]:
    """A resumed answer against a cold run of the ids it was served from."""
    if cold.error or cold.status != 200:
        return [f"the cold run failed: {cold.status} {cold.error}"]
    problems = []
    if cold.holdfast.get("cache_source") != "none" or cold.cached_tokens != 0:
        problems.append(f"the cold run was not cold: {cold.holdfast.get('cache_source')}, "
                        f"{cold.cached_tokens} tokens")
    return problems + digest_problems("the cold run", served, cold)


def digest_problems(name: str, got: Answer, wanted: Answer) -> list[str]:
    problems = []
    ours, theirs = got.holdfast.get("output_ids"), wanted.holdfast.get("output_ids")
    if ours is None or theirs is None:
        return ["output_ids are missing: are the servers started with --debug?"]
    if ours != theirs:
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b),
                  min(len(ours), len(theirs)))
        problems.append(f"output_ids differ from {name}'s at {at} of {len(ours)}, {len(theirs)}")
    if prompt_tainted(got) or prompt_tainted(wanted):
        return problems
    for part in DIGESTS:
        a = (got.holdfast.get("digests") or {}).get(part)
        b = (wanted.holdfast.get("digests") or {}).get(part)
        if not a or not b:
            problems.append(f"digest {part} is missing")
        elif a != b:
            problems.append(f"digest {part} {a[:12]}.. differs from {name}'s {b[:12]}..")
    return problems


def prompt_tainted(answer: Answer) -> bool:
    """On a grid engine: the answer was computed on top of rows that no cold run
    computes, so of those only the tokens are promised to be the same."""
    taint = (answer.holdfast.get("digests") or {}).get("taint")
    return taint is not None and taint < answer.prompt_tokens


def cold_request(model: str, served: Answer, params: dict, forced: bool) -> dict:
    """The completion that computes a served answer again, from nothing."""
    body: dict[str, Any] = {k: params[k] for k in _SAMPLING if k in params}
    if "max_completion_tokens" in params:
        body["max_tokens"] = params["max_completion_tokens"]
    extra: dict[str, Any] = {"cache": "bypass", "digest": True}
    # Words of a thinking budget's are not sampled either.
    if forced or "thinking_budget" in params:
        extra["force"] = {"ids": served.holdfast["output_ids"]}
    return {"model": model, "prompt": served.holdfast["prompt_ids"], "stream": False,
            "holdfast": extra, **body}


def subset_problems(got: Any, wanted: Any, place: str = "body") -> list[str]:
    """Objects may have more fields than wanted; all else must be equal."""
    if isinstance(wanted, dict):
        if not isinstance(got, dict):
            return [f"{place} is no object: {got!r}"]
        problems = []
        for name, item in wanted.items():
            if name in got:
                problems += subset_problems(got[name], item, f"{place}.{name}")
            else:
                problems.append(f"{place}.{name} is missing")
        return problems
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return [f"{place} is {got!r}, not a list of {len(wanted)}"]
        return [p for i, item in enumerate(wanted)
                for p in subset_problems(got[i], item, f"{place}[{i}]")]
    if got != wanted or isinstance(got, bool) != isinstance(wanted, bool):
        return [f"{place} is {got!r}, not {wanted!r}"]
    return []


def as_client(message: dict, names: list[str]) -> dict:
    """An answer as some client would keep it in its history."""
    out = json.loads(json.dumps(message))
    for name in names:
        text = out.get("content") or ""
        if name == "drop_reasoning":
            out.pop("reasoning_content", None)
        elif name == "reserialize_tools":
            for call in out.get("tool_calls", []):
                function = call["function"]
                try:
                    arguments = json.loads(function["arguments"])
                except ValueError:
                    continue  # a client cannot write again what is no JSON
                function["arguments"] = json.dumps(arguments, indent=1, sort_keys=True)
        elif name == "trim":
            out["content"] = text.strip()
        elif name == "crlf":
            out["content"] = text.replace("\r\n", "\n").replace("\n", "\r\n")
        elif name == "extra_newline":
            out["content"] = text + "\n"
    return out


def _functions(answer: Answer) -> list[tuple[str, str]]:
    return [(c["function"]["name"], c["function"]["arguments"]) for c in answer.tool_calls]

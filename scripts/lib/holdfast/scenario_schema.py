"""The schema of scenario files. Whatever it does not know is an error."""

from typing import Any

from . import cache_files

_NUMBER = (int, float)
_GENERATION = {
    "id": str, "session": (str, type(None)), "params": dict, "answer": (str, dict),
    "headers": dict, "salt": str, "cache": str, "stream": bool, "align": str,
}
_CHAT = {**_GENERATION, "messages": list, "continue": str, "as_client": (str, list)}
_COMPLETE = {**_GENERATION, "prompt": (str, list), "text": dict}
_STEPS: dict[str, dict[str, Any]] = {
    "chat": _CHAT,
    "complete": _COMPLETE,
    "raw": {"id": str, "method": str, "path": str, "headers": dict,
            "body": (str, dict, list, int, float, bool, type(None))},
    "cancel": {"id": str, "request": dict, "after_tokens": int, "at_prefill_tokens": int,
               "at_metric": dict, "when_held": bool, "reset": bool},
    "parallel": {"id": str, "steps": list},
    "restart": {"id": str, "who": str, "signal": str},
    "idle": {"id": str},
    "settle": {"id": str},
    "until": {"id": str, "metric": str, "min": _NUMBER},  # orders steps that run at once
    "clear": {"id": str, "tier": str},  # no tier: all but what is on disk
    "evict": {"id": str, "tier": str},
    "corrupt": {"id": str, "tier": str, "kind": str, "region": str, "nth": int},
    "fill_disk": {"id": str, "leave_bytes": int},
}
_NOT_BUILT = {"messages": "/v1/messages", "responses": "/v1/responses"}
_REQUIRED = {"chat": ("messages",), "complete": (), "raw": ("path",), "cancel": ("request",),
             "parallel": ("steps",), "restart": ("who",), "idle": (), "settle": (), "clear": (),
             "until": ("metric", "min"), "evict": ("tier",), "corrupt": ("kind", "region"), "fill_disk": ("leave_bytes",)}
_EXPECT = {
    "status": int, "error_contains": str, "cache_source": str, "cached_tokens": (dict, int),
    "computed_tokens": (dict, int), "ttft_ms": dict, "same_as_cold": bool, "same_as": str,
    "metric": dict, "finish_reason": str, "json": (dict, list), "reused": dict,
    "reread": (dict, int), "aligned": list,
}
# What a step must have reused, by the rule that gives the number
# (scenario_checks.reused_tokens); each names an earlier step, but `tokens`.
REUSED = {"end_of", "line_below", "anchor_below", "some_line_below", "some_anchor_below",
          "common_with", "tokens"}
_EXPECT_OF = {
    "chat": set(_EXPECT) - {"json"},
    "complete": set(_EXPECT) - {"json", "aligned"},
    "raw": {"status", "error_contains", "json", "metric"},
    "cancel": {"metric"},
    "parallel": {"metric"},
    "restart": {"metric"},
    "idle": {"metric"},
    "settle": {"metric"},
    "until": {"metric"},
    "clear": {"metric"},
    "evict": {"metric"},
    "corrupt": {"metric"},
    "fill_disk": {"metric"},
}
_MESSAGE = {"role": str, "content": (str, list, type(None)), "text": dict, "name": str,
            "tool_call_id": str, "tool_calls": list, "reasoning_content": str}
AS_CLIENT = {"verbatim", "drop_reasoning", "reserialize_tools", "trim", "crlf", "extra_newline"}
CLEARED = {"resident", "store", "response", "disk", "spill", "all"}
ON_DISK = {"disk", "spill"}
KINDS_OF = {"disk": {"chunk", "anchor"}, "spill": {"chunk", "session"}}
WHO = {"engine", "cachesvc", "gateway", "all"}
SIGNALS = {"TERM", "KILL", "STOP", "CONT"}
MIN_DISK_MB, MAX_DISK_MB = 16, 4096
CACHE_MODES = {"default", "bypass", "read_only"}
# When a client goes away: of an answer's pieces; of the engine's prefill; when a
# metric is so large; when it has all of an answer that stands still.
CANCEL_WHEN = ("after_tokens", "at_prefill_tokens", "at_metric", "when_held")


class SchemaError(Exception):
    """The file is not a scenario; the message names the place."""


def check(scenario: Any) -> None:
    """Raises SchemaError unless the whole scenario is understood."""
    _fields(scenario, {"name": str, "why": str, "server": dict, "params": dict, "steps": list},
            "scenario")
    _require(scenario, ("name", "steps"), "scenario")
    server = scenario.get("server", {})
    _fields(server, {"model": str, "engine": list, "cachesvc": list, "gateway": list,
                     "disk_mb": int}, "server")
    for who in ("engine", "cachesvc", "gateway"):
        _every(server.get(who, []), str, f"server.{who}")
    if "disk_mb" in server and not MIN_DISK_MB <= server["disk_mb"] <= MAX_DISK_MB:
        raise SchemaError(f"server.disk_mb: {MIN_DISK_MB} to {MAX_DISK_MB}")
    _check_steps(scenario["steps"], "steps", set())
    if "disk_mb" not in server and _has_op(scenario["steps"], "fill_disk"):
        raise SchemaError("fill_disk needs server.disk_mb: a file system of its own")


def _has_op(steps: list, op: str) -> bool:
    return any(step["op"] == op or any(_has_op(branch, op) for branch in step.get("steps", []))
               for step in steps)


def _check_steps(steps: list, place: str, ids: set[str]) -> None:
    for i, step in enumerate(steps):
        _check_step(step, f"{place}[{i}]", ids)


def _check_step(step: Any, place: str, ids: set[str]) -> None:
    if not isinstance(step, dict) or not isinstance(step.get("op"), str):
        raise SchemaError(f"{place}: a step is an object with an op")
    op = step["op"]
    if op in _NOT_BUILT:
        raise SchemaError(f"{place}: op {op} is not built yet: no server has {_NOT_BUILT[op]}")
    if op not in _STEPS:
        raise SchemaError(f"{place}: unknown op {op}")
    _fields(step, {"op": str, "expect": dict, "expect_grid": dict, **_STEPS[op]}, place)
    _require(step, _REQUIRED[op], place)
    for name in ("expect", "expect_grid"):
        if name in step:
            _check_expect(step[name], op, f"{place}.{name}", ids)
    if op in ("chat", "complete"):
        _check_generation(step, op, place, ids)
    elif op == "cancel":
        _check_cancel(step, place, ids)
    elif op == "parallel":
        _every(step["steps"], list, f"{place}.steps")
        for i, branch in enumerate(step["steps"]):
            _check_steps(branch, f"{place}.steps[{i}]", ids)
    elif op == "restart":
        _one_of(step["who"], WHO, f"{place}.who")
        _one_of(step.get("signal", "TERM"), SIGNALS, f"{place}.signal")
    elif op == "clear":
        _one_of(step.get("tier", "all"), CLEARED, f"{place}.tier")
    elif op == "evict":
        _one_of(step["tier"], ON_DISK, f"{place}.tier")
    elif op == "corrupt":
        _one_of(step["kind"], set(cache_files.KINDS), f"{place}.kind")
        if "tier" in step:
            _one_of(step["tier"], ON_DISK, f"{place}.tier")
            _one_of(step["kind"], KINDS_OF[step["tier"]], f"{place}.kind")
        _one_of(step["region"], set(cache_files.REGIONS), f"{place}.region")
    elif op == "fill_disk" and step["leave_bytes"] < 0:
        raise SchemaError(f"{place}.leave_bytes: not below 0")
    if "id" in step:
        if step["id"] in ids:
            raise SchemaError(f"{place}: id {step['id']} is taken")
        ids.add(step["id"])


def _check_generation(step: dict, op: str, place: str, ids: set[str]) -> None:
    _one_of(step.get("cache", "default"), CACHE_MODES, f"{place}.cache")
    if isinstance(step.get("answer"), dict):
        _fields(step["answer"], {"text": str, "reasoning": str, "tool_calls": list, "ids": list,
                                 "hold": bool},
                f"{place}.answer")
    cold = step.get("expect", {}).get("same_as_cold")
    if cold and step.get("params", {}).get("temperature", 0) and "seed" not in step["params"]:
        raise SchemaError(f"{place}: same_as_cold with a temperature needs params.seed")
    if op == "complete":
        if ("prompt" in step) == ("text" in step):
            raise SchemaError(f"{place}: complete takes one of prompt and text")
        if "text" in step:
            _check_text(step["text"], f"{place}.text")
        return
    for i, message in enumerate(step["messages"]):
        at = f"{place}.messages[{i}]"
        _fields(message, _MESSAGE, at)
        _require(message, ("role",), at)
        if "text" in message:
            if "content" in message:
                raise SchemaError(f"{at}: one of content and text")
            _check_text(message["text"], f"{at}.text")
    if "continue" in step and step["continue"] not in ids:
        raise SchemaError(f"{place}.continue: no earlier step {step['continue']}")
    if "as_client" in step:
        if "continue" not in step:
            raise SchemaError(f"{place}.as_client: only with continue")
        for name in as_client_list(step):
            _one_of(name, AS_CLIENT, f"{place}.as_client")


def for_grid(steps: list) -> list:
    """Steps of a checked scenario whose fields of expect_grid stand in expect."""
    out = []
    for step in steps:
        step = dict(step)
        step["expect"] = {**step.get("expect", {}), **step.pop("expect_grid", {})}
        if step["op"] == "parallel":
            step["steps"] = [for_grid(branch) for branch in step["steps"]]
        out.append(step)
    return out


def as_client_list(step: dict) -> list[str]:
    names = step.get("as_client", [])
    return [names] if isinstance(names, str) else names


def _check_cancel(step: dict, place: str, ids: set[str]) -> None:
    when = [k for k in CANCEL_WHEN if k in step]
    if len(when) != 1:
        raise SchemaError(f"{place}: cancel takes one of {', '.join(CANCEL_WHEN)}")
    if "at_metric" in step:
        _fields(step["at_metric"], {"metric": str, "min": _NUMBER}, f"{place}.at_metric")
        _require(step["at_metric"], ("metric", "min"), f"{place}.at_metric")
    if "reset" in step and not {"after_tokens", "when_held"} & set(step):
        raise SchemaError(f"{place}: reset goes with after_tokens and when_held")
    request = step["request"]
    _fields(request, _CHAT, f"{place}.request")
    _require(request, ("messages",), f"{place}.request")
    if request.get("stream") is False and when[0] in ("after_tokens", "when_held"):
        raise SchemaError(f"{place}: {when[0]} needs a stream")
    _check_generation(request, "chat", f"{place}.request", ids)
    answer = request.get("answer")
    if "when_held" in step and (not isinstance(answer, dict) or set(answer) != {"text", "hold"}):
        raise SchemaError(f"{place}: when_held needs a request with an answer of text and hold")


def _check_expect(expect: dict, op: str, place: str, ids: set[str]) -> None:
    _fields(expect, {k: v for k, v in _EXPECT.items() if k in _EXPECT_OF[op]}, place)
    for name in ("cached_tokens", "computed_tokens", "ttft_ms", "reread"):
        if name in expect:
            _check_range(expect[name], f"{place}.{name}")
    _every(expect.get("aligned", []), str, f"{place}.aligned")
    if "reused" in expect:
        _check_reused(expect["reused"], f"{place}.reused", ids)
    for name, wanted in expect.get("metric", {}).items():
        _fields(wanted, {"delta": _NUMBER, "min": _NUMBER, "max": _NUMBER}, f"{place}.metric.{name}")
        if not wanted:
            raise SchemaError(f"{place}.metric.{name}: expects nothing")
    if "same_as" in expect and expect["same_as"] not in ids:
        raise SchemaError(f"{place}.same_as: no earlier step {expect['same_as']}")


def _check_reused(rule: dict, place: str, ids: set[str]) -> None:
    _fields(rule, {name: int if name == "tokens" else str for name in REUSED} | {"short_by": int},
            place)
    named = REUSED & set(rule)
    if len(named) != 1 or ("short_by" in rule) != ("common_with" in rule):
        raise SchemaError(f"{place}: one of {', '.join(sorted(REUSED))}; short_by goes with "
                          "common_with, and with that alone")
    name = rule[named.pop()]
    if isinstance(name, str) and name not in ids:
        raise SchemaError(f"{place}: no earlier step {name}")


def _check_range(value: Any, place: str) -> None:
    if not isinstance(value, dict):
        return  # the number itself
    _fields(value, {"min": _NUMBER, "max": _NUMBER}, place)
    if not value:
        raise SchemaError(f"{place}: expects nothing")


def _check_text(value: dict, place: str) -> None:
    _fields(value, {"seed": int, "tokens": int}, place)
    _require(value, ("seed", "tokens"), place)
    if value["tokens"] < 1:
        raise SchemaError(f"{place}: at least one token")


def _fields(value: Any, known: dict[str, Any], place: str) -> None:
    if not isinstance(value, dict):
        raise SchemaError(f"{place}: an object is expected")
    for name, item in value.items():
        if name not in known:
            raise SchemaError(f"{place}: unknown field {name}")
        wanted = known[name]
        is_bool = isinstance(item, bool)
        accepts_bool = wanted is bool or (isinstance(wanted, tuple) and bool in wanted)
        if not isinstance(item, wanted) or (is_bool and not accepts_bool):
            raise SchemaError(f"{place}.{name}: wrong type {type(item).__name__}")


def _require(value: dict, names: tuple, place: str) -> None:
    for name in names:
        if name not in value:
            raise SchemaError(f"{place}: field {name} is missing")


def _every(values: list, wanted: Any, place: str) -> None:
    for i, value in enumerate(values):
        if not isinstance(value, wanted):
            raise SchemaError(f"{place}[{i}]: wrong type {type(value).__name__}")


def _one_of(value: str, known: set[str], place: str) -> None:
    if value not in known:
        raise SchemaError(f"{place}: {value} is none of {', '.join(sorted(known))}")

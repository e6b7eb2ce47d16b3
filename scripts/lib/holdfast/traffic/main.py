"""A day of an agent's traffic against its floor: see `scripts/bench-traffic --help`."""

import argparse
import json
import signal
import sys
import time
from pathlib import Path

from .. import paths
from ..client import ConnectionLost
from ..daemons import CACHESVC, ENGINE, DaemonError, Daemons, describe_exit
from . import plan, play

# Files of megabytes need no fifty gigabytes free.
LOWERED = ["--disk-free-gb=1", "--allow-small-free-space"]
# Computed tokens over the floor, at most.
WANTED_RATIO = 1.05


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    # So that a plain kill still stops the daemons.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shape = plan.Shape(options.sessions, options.turns, options.head_words, options.terms,
                       options.kills)
    say(f"traffic: seed {options.seed}, {shape.turns} turns of {shape.sessions} sessions, "
        f"{shape.terms} SIGTERM, {shape.kills} SIGKILL, {options.exactness}")
    try:
        result, seconds = _play(options, shape)
    except (ConnectionLost, DaemonError, RuntimeError, paths.SetupError) as e:
        say(f"FAIL {e}")
        return 1
    ratio = result.ratio()
    problems = result.problems
    if ratio > options.max_ratio:
        problems.append(f"{ratio:.4f} of the floor were computed, more than {options.max_ratio}")
    _print(result, seconds)
    for problem in problems:
        say(f"FAIL {problem}")
    if options.json:
        options.json.write_text(json.dumps({**_summary(result), "problems": problems}, indent=1))
    say(f"traffic: {'FAILED' if problems else 'ok'}")
    return 1 if problems else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    shape = plan.Shape()
    parser = argparse.ArgumentParser(
        prog="scripts/bench-traffic",
        description="A day of an agent's traffic, generated from a seed: sessions with tool loops, "
                    "thinking and titles, and restarts of all daemons. Prints the tokens that were "
                    "computed beside the floor: what was never sent before, and what no surviving "
                    "tier held after a SIGKILL.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=shape.sessions)
    parser.add_argument("--turns", type=int, default=shape.turns, help="requests, but for titles")
    parser.add_argument("--head-words", type=int, default=shape.head_words,
                        help="of each session's system text; about two tokens each")
    parser.add_argument("--terms", type=int, default=shape.terms, help="SIGTERM of all daemons")
    parser.add_argument("--kills", type=int, default=shape.kills, help="SIGKILL of all daemons")
    parser.add_argument("--compare", type=int, default=10,
                        help="answers, drawn by the seed, compared with cold runs")
    parser.add_argument("--max-ratio", type=float, default=WANTED_RATIO,
                        help="computed tokens over the floor, at most")
    parser.add_argument("--exactness", choices=["row_invariant", "grid"], default="row_invariant")
    parser.add_argument("--engine", default="", metavar="FLAGS", help="more flags for the engine")
    parser.add_argument("--model", default="tiny-hybrid")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bin-dir", type=Path, default=paths.RELEASE_BIN)
    return parser.parse_args(arguments)


def say(line: str) -> None:
    print(line, flush=True)


def _play(options: argparse.Namespace, shape: plan.Shape) -> tuple[play.Result, float]:
    model = paths.resolve_model(options.model, options.bin_dir)
    flags = {ENGINE: ["--debug", f"--exactness={options.exactness}", *options.engine.split()],
             CACHESVC: LOWERED}
    with Daemons(model.path, bin_dir=options.bin_dir, flags=flags) as daemons:
        daemons.wait_attached()
        player = play.Player(plan.make(options.seed, shape), daemons, options.seed,
                             options.compare, options.exactness == "grid", say)
        start = time.monotonic()
        result = player.play()
        seconds = time.monotonic() - start
        player.compare_with_cold()
        for who, code in daemons.stop().items():
            if code != 0:
                result.problems.append(f"{who} stopped with {describe_exit(code)}")
        return result, seconds


def _summary(result: play.Result) -> dict:
    floor = result.floor
    return {"requests": len(result.served), "prompt_tokens": result.prompt_tokens,
            "computed_tokens": result.computed, "floor_tokens": floor.tokens,
            "floor_new_tokens": floor.new, "floor_lost_tokens": floor.lost,
            "generated_before_tokens": floor.generated, "ratio": round(result.ratio(), 4),
            "cached_by_source": result.by_source(),
            "reread_tokens": result.causes.total, "reread_by_cause": result.causes.rows(),
            "requests_that_reread": [
                {"label": s.label, "computed": s.computed, "reread": s.reread,
                 "floor": s.part.tokens, "source": s.answer.holdfast.get("cache_source"),
                 "anchor": s.answer.holdfast.get("anchor")}
                for s in result.served if s.reread > 0]}


def _print(result: play.Result, seconds: float) -> None:
    found = _summary(result)
    for row in sorted(found["requests_that_reread"], key=lambda r: -r["reread"])[:10]:
        say(f"  {row['label']} computed {row['computed']}, {row['reread']} of them again "
            f"({row['source']}, {row['anchor'] or 'no anchor'})")
    say(f"  {found['reread_tokens']} of the tokens computed could have been had:")
    for row in found["reread_by_cause"]:
        say(f"    {row['tokens']:6} in {row['requests']:3} requests: {row['cause']}")
    sources = ", ".join(f"{k} {v}" for k, v in sorted(found["cached_by_source"].items()))
    say(f"  {found['requests']} requests in {seconds:.0f} s, {found['prompt_tokens']} prompt tokens; "
        f"from caches: {sources}")
    say(f"  floor {found['floor_tokens']}: {found['floor_new_tokens']} never sent before "
        f"(of which {found['generated_before_tokens']} had been generated), "
        f"{found['floor_lost_tokens']} lost in SIGKILLs")
    say(f"  computed {found['computed_tokens']}: {found['ratio']:.4f} of the floor; "
        f"{found['computed_tokens'] / (found['floor_tokens'] - found['generated_before_tokens']):.4f} "
        f"of the floor without what had been generated")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The main job on the real daemons: see `scripts/demo --help`."""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Callable

from . import demo_restart, paths, textgen
from .client import Answer, Client, ConnectionLost
from .daemons import CACHESVC, ENGINE, GATEWAY, DaemonError, Daemons
from .demo_chat import NEXT_QUESTION, QUESTION, chat, compare_with_cold_runs

TEXT_TOKENS = 3950  # with the template and the question about 4,000
MIN_RATIO = 50


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


def _report(answer: Answer) -> dict:
    return {"ttft_ms": round(answer.ttft_ms, 2), "cached_tokens": answer.cached_tokens,
            "cache_source": answer.holdfast.get("cache_source")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

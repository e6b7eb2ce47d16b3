"""What reading a long prompt adds to the time between the tokens of an answer:
one client streams an answer, then another sends a new prompt. Starts daemons of
its own and prints a table."""

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path

from . import paths, textgen
from .client import Answer, Call, Client
from .daemons import CACHESVC, ENGINE, GATEWAY, Daemons

PROMPT_TOKENS = 6000
ALONE_TOKENS = 60  # between tokens before the prompt comes
ANSWER_TOKENS = 2000
SHORT = "Count from one to a thousand, in words."
SMALL_DISK = ["--disk-free-gb=1", "--allow-small-free-space"]  # nothing is kept


class _Stream:
    """An answer on its way, with the time of each piece."""

    def __init__(self, client: Client, body: dict):
        self.times: list[float] = []
        self._call: Call | None = None
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(client, body), daemon=True)
        self._thread.start()

    def _run(self, client: Client, body: dict) -> None:
        client.generate("/v1/completions", body, on_piece=self._piece, on_sent=self._sent)
        self._enough.set()

    def _sent(self, call: Call) -> None:
        self._call = call

    def _piece(self, _answer: Answer, _call: Call) -> None:
        self.times.append(time.monotonic())
        if len(self.times) >= ALONE_TOKENS:
            self._enough.set()

    def wait_alone(self) -> None:
        if not self._enough.wait(120):
            raise TimeoutError("the answer gives no tokens")

    def stop(self) -> None:
        if self._call:
            self._call.abort()
        self._thread.join(30)

    def gaps_ms(self, start: float, end: float) -> list[float]:
        """Between tokens of which the second came within the time."""
        return [(b - a) * 1e3 for a, b in zip(self.times, self.times[1:]) if start < b <= end]


def measure(client: Client, prompt_tokens: int) -> dict:
    model = client.model_id()
    common = {"model": model, "stream": True, "stream_options": {"include_usage": True},
              "temperature": 0}
    stream = _Stream(client, {**common, "prompt": SHORT, "max_tokens": ANSWER_TOKENS,
                              "ignore_eos": True})
    stream.wait_alone()
    first = stream.times[0]
    text = textgen.exact(7, prompt_tokens, client.tokenize, client.detokenize)
    start = time.monotonic()
    answer = client.generate("/v1/completions", {**common, "prompt": text, "max_tokens": 1})
    end = start + (answer.ttft_ms or answer.total_ms) / 1e3
    stream.stop()
    alone, beside = stream.gaps_ms(first, start), stream.gaps_ms(start, end)
    if answer.status != 200 or not alone or not beside:
        raise RuntimeError(f"no figures: status {answer.status}, {answer.error}, "
                           f"{len(alone)} and {len(beside)} tokens")
    return {"prompt_tokens": answer.prompt_tokens, "first_token_ms": round(1e3 * (end - start), 1),
            "alone": _figures(alone), "while_reading": _figures(beside),
            "added_median_ms": round(statistics.median(beside) - statistics.median(alone), 1),
            "added_max_ms": round(max(beside) - statistics.median(alone), 1)}


def _figures(gaps: list[float]) -> dict:
    return {"tokens": len(gaps), "median_ms": round(statistics.median(gaps), 1),
            "max_ms": round(max(gaps), 1)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-latency", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--bin-dir", type=Path, default=paths.RELEASE_BIN)
    parser.add_argument("--tokens", type=int, default=PROMPT_TOKENS, help="of the long prompt")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    with Daemons(options.model, bin_dir=options.bin_dir,
                 flags={ENGINE: ["--parallel", "2"], CACHESVC: SMALL_DISK,
                        GATEWAY: []}) as daemons:
        result = measure(daemons.client, options.tokens)
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"a prompt of {result['prompt_tokens']} tokens, first token after "
          f"{result['first_token_ms']:.0f} ms")
    print(f"{'between two tokens':<22}{'tokens':>8}{'median ms':>12}{'longest ms':>12}")
    for name in ("alone", "while_reading"):
        row = result[name]
        print(f"{name.replace('_', ' '):<22}{row['tokens']:>8}{row['median_ms']:>12}"
              f"{row['max_ms']:>12}")
    print(f"added: {result['added_median_ms']} ms (median), {result['added_max_ms']} ms (longest)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

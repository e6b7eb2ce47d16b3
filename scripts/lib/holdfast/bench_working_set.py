"""Conversations that fit the pool and that do not: see
`scripts/bench-working-set --help`."""

import argparse
import json
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import paths, textgen
from .client import Client, ConnectionLost
from .daemons import ENGINE, DaemonError, Daemons
from .textgen import Random

SESSION_TOKENS = 4300  # of a conversation at its last turn, about
OPENING_TOKENS = 3800
MESSAGE_TOKENS = 60
ANSWER_TOKENS = 32
WANTED = ("bypass", "pool", "all tiers")
RATIOS = "0.5,0.8,1.2,2"


@dataclass
class Row:
    """One variant at one size of the working set."""
    ratio: float
    sessions: int
    caches: str
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    by_source: dict[str, int] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def rate(self) -> float:
        return self.output_tokens / self.seconds if self.seconds else 0.0


class Conversations:
    """`count` conversations of one server; ask() takes one a turn further."""

    def __init__(self, client: Client, count: int, mode: str):
        self._client = client
        self._model = client.model_id()
        self._mode = mode
        self._histories = [[{"role": "system", "content": textgen.exact(
            100 + i, OPENING_TOKENS, client.tokenize, client.detokenize)}] for i in range(count)]
        self._turns = [0] * count

    def ask(self, which: int, row: Row) -> None:
        history = self._histories[which]
        self._turns[which] += 1
        text = textgen.prose(1000 * which + self._turns[which], MESSAGE_TOKENS // 2)
        history.append({"role": "user", "content": text})
        start = time.monotonic()
        answer = self._client.generate(
            "/v1/chat/completions",
            {"model": self._model, "messages": history, "temperature": 0, "ignore_eos": True,
             "max_tokens": ANSWER_TOKENS, "stream": True,
             "stream_options": {"include_usage": True}, "holdfast": {"cache": self._mode}},
            {"X-Session-Id": f"session-{which}"})
        if answer.status != 200 or answer.error or not answer.complete:
            raise DaemonError(f"session {which}: {answer.status} {answer.error}")
        history.append({"role": "assistant", "content": answer.content})
        row.requests += 1
        row.seconds += time.monotonic() - start
        row.prompt_tokens += answer.prompt_tokens
        row.cached_tokens += answer.cached_tokens
        row.output_tokens += answer.usage.get("completion_tokens", 0)
        row.by_source = dict(Counter(row.by_source) + Counter(
            answer.holdfast.get("cached_by_source") or {}))


def measure(model: Path, bin_dir: Path, pool_tokens: int, ratio: float, caches: str,
            requests: int, seed: int) -> Row:
    """Every conversation is opened once, uncounted; then `requests` turns go to
    conversations drawn by the seed, the same ones for every variant."""
    count = max(1, round(ratio * pool_tokens / SESSION_TOKENS))
    flags = ["--pool-tokens", str(pool_tokens), "--max-context", str(2 * SESSION_TOKENS)]
    if caches != "all tiers":
        flags.append("--no-cache-service")
    with Daemons(model, bin_dir=bin_dir, flags={ENGINE: flags}) as daemons:
        if caches == "all tiers":
            daemons.wait_attached()
        mode = "bypass" if caches == "bypass" else "default"
        conversations = Conversations(daemons.client, count, mode)
        row, unused = Row(ratio, count, caches), Row(ratio, count, caches)
        if caches != "bypass":
            for which in range(count):
                conversations.ask(which, unused)
        random = Random(seed)
        for _ in range(requests):
            conversations.ask(random.below(count), row)
        return row


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-working-set",
        description="Conversations whose tokens together are a part or a multiple of the pool, "
                    "continued in random order: the share of prompt tokens that came from a "
                    "cache, and the tokens generated a second, without caches (bypass), with the "
                    "pool alone, and with all tiers.")
    parser.add_argument("--model", default="tiny-hybrid")
    parser.add_argument("--pool-tokens", type=int, default=32768)
    parser.add_argument("--ratios", default=RATIOS, help="working sets over the pool")
    parser.add_argument("--requests", type=int, default=24, help="measured, of each variant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bin-dir", type=Path, default=paths.RELEASE_BIN)
    options = parser.parse_args(arguments)
    # So that a plain kill still stops the daemons.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = []
    try:
        model = paths.resolve_model(options.model, options.bin_dir)
        print(f"{model.name}, pool of {options.pool_tokens} tokens, {options.requests} requests each")
        print(f"{'working set':>11} {'sessions':>8} {'caches':<10} {'hit rate':>8} {'tokens/s':>9}"
              "  from", flush=True)
        for ratio in map(float, options.ratios.split(",")):
            for caches in WANTED:
                row = measure(model.path, options.bin_dir, options.pool_tokens, ratio, caches,
                              options.requests, options.seed)
                sources = ", ".join(f"{k} {v}" for k, v in sorted(row.by_source.items()))
                print(f"{ratio:>11g} {row.sessions:>8} {caches:<10} {row.hit_rate:>8.2f} "
                      f"{row.rate:>9.1f}  {sources}", flush=True)
                rows.append({**asdict(row), "hit_rate": round(row.hit_rate, 4),
                             "tokens_per_s": round(row.rate, 2)})
    except (ConnectionLost, DaemonError, paths.SetupError) as e:
        print(f"working set: {e}")
        return 1
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

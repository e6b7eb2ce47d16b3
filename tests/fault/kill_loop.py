"""Engine and cache service killed at random under traffic, round after round.

Conversations run in turns while either daemon, or both, get SIGKILL at random
moments (now and then the engine a planned stop, so that there is a spill to
find). What each turn must answer is computed cold before the first kill and
kept here, outside the daemons: every answer that comes must be that one, ids
and digests of logits and rows alike. A request that the kill cut off may fail;
a daemon that ends by itself fails the run. At the end every file is verified
and every turn asked once more.

usage: kill_loop.py [--rounds N] [--seed N] [--model NAME] [--bin-dir DIR]
"""

import argparse
import random
import signal
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "scripts" / "lib"))

from holdfast import paths, textgen  # noqa: E402
from holdfast.client import Answer, ConnectionLost  # noqa: E402
from holdfast.daemons import CACHESVC, ENGINE, GATEWAY, SURE_OF_TIERS, Daemons  # noqa: E402
from holdfast.scenario_checks import conservation_problems  # noqa: E402

FLAGS = {ENGINE: ["--debug", *SURE_OF_TIERS],
         CACHESVC: ["--disk-free-gb=0", "--allow-small-free-space", "--disk-min-tokens=2048"],
         GATEWAY: ["--engine-wait-ms=500"]}
CONVERSATIONS, TURNS, HEAD_TOKENS, ANSWER_TOKENS = 3, 4, 2300, 8
# A round's kill comes within so long.
MOST_BEFORE_KILL_S = 1.2
DIGESTS = ("first_logits", "prompt_end", "end")
FROM_TIERS = ("store", "disk", "spill")


class Failed(Exception):
    pass


class Turn:
    """One request, and the only answer there is to it."""

    def __init__(self, name: str, session: str, ids: list[int]):
        self.name, self.session, self.ids = name, session, ids
        self.output_ids: list[int] = []
        self.digests: dict[str, str] = {}

    def ask(self, daemons: Daemons, model_id: str, cold: bool = False) -> Answer:
        body = {"model": model_id, "prompt": self.ids, "max_tokens": ANSWER_TOKENS,
                "temperature": 0, "ignore_eos": True, "stream": False,
                "holdfast": {"digest": True, **({"cache": "bypass"} if cold else {})}}
        return daemons.client.generate("/v1/completions", body, {"X-Session-Id": self.session})

    def learn(self, answer: Answer) -> None:
        if answer.status != 200:
            raise Failed(f"{self.name}: the cold run failed: {answer.status} {answer.error}")
        self.output_ids = answer.holdfast["output_ids"]
        self.digests = {part: answer.holdfast["digests"][part] for part in DIGESTS}

    def check(self, answer: Answer) -> None:
        problems = conservation_problems(answer)
        if answer.holdfast.get("output_ids") != self.output_ids:
            problems.append("other tokens than the cold run's")
        got = answer.holdfast.get("digests") or {}
        problems += [f"another {part} than the cold run's" for part in DIGESTS
                     if got.get(part) != self.digests[part]]
        if problems:
            raise Failed(f"{self.name} from {answer.holdfast.get('cache_source')} at "
                         f"{answer.cached_tokens}: {'; '.join(problems)}")


def conversations(daemons: Daemons, model_id: str) -> list[Turn]:
    """Turns of conversations that share a head, with their cold answers."""
    client = daemons.client
    head = client.tokenize(textgen.exact(1, HEAD_TOKENS, client.tokenize, client.detokenize))
    turns = []
    for number in range(CONVERSATIONS):
        ids = head + [(7 * number + i) % 200 + 5 for i in range(150)]
        for turn in range(TURNS):
            made = Turn(f"conversation {number} turn {turn}", f"session-{number}", list(ids))
            made.learn(made.ask(daemons, model_id, cold=True))
            turns.append(made)
            ids = ids + made.output_ids + [(11 * number + 3 * turn + i) % 200 + 5
                                           for i in range(200)]
    return turns


class Traffic:
    """Asks turns at random, on a thread of its own, until it is stopped."""

    def __init__(self, daemons: Daemons, model_id: str, turns: list[Turn], seed: int):
        self._daemons, self._model_id, self._turns = daemons, model_id, turns
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self.error: Exception | None = None
        self.sources: dict[str, int] = {}
        self.cut_off = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._one(self._random.choice(self._turns))
        except Exception as e:  # told by the main thread
            self.error = e

    def _one(self, turn: Turn) -> None:
        try:
            answer = turn.ask(self._daemons, self._model_id)
        except ConnectionLost:
            self.cut_off += 1
            return
        if answer.status != 200 or answer.error:
            self.cut_off += 1
            self._stop.wait(0.05)
            return
        turn.check(answer)
        source = answer.holdfast["cache_source"]
        self.sources[source] = self.sources.get(source, 0) + 1


def one_round(daemons: Daemons, choice: random.Random) -> str:
    """Ends daemons at a random moment and has them back."""
    time.sleep(choice.uniform(0, MOST_BEFORE_KILL_S))
    if ended := daemons.ended():
        raise Failed(f"ended by themselves: {ended}")
    if choice.random() < 0.2:
        daemons.restart(ENGINE, signal.SIGTERM)
        return "planned stop of the engine"
    victims = choice.choice([[ENGINE], [CACHESVC], [ENGINE, CACHESVC]])
    for who in victims:
        daemons.send(who, signal.SIGKILL)
    for who in victims:
        daemons.wait(who)
    # In any order: each finds the other.
    for who in choice.sample(victims, len(victims)):
        daemons.launch(who)
    daemons.wait_ready()
    daemons.wait_attached()
    return "killed " + " and ".join(victims)


def run(daemons: Daemons, rounds: int, seed: int) -> None:
    daemons.wait_attached()
    model_id = daemons.client.model_id()
    turns = conversations(daemons, model_id)
    traffic = Traffic(daemons, model_id, turns, seed)
    choice = random.Random(seed + 1)
    try:
        for number in range(rounds):
            what = one_round(daemons, choice)
            print(f"round {number + 1}: {what}", flush=True)
            if traffic.error:
                break
    finally:
        traffic.stop()
    if traffic.error:
        raise Failed(f"{type(traffic.error).__name__}: {traffic.error}")
    for turn in turns:
        turn.check(turn.ask(daemons, model_id))
    verified = daemons.cachectl("verify", "--all")
    if verified.returncode != 0:
        raise Failed(f"verify: {verified.stdout} {verified.stderr}")
    answered = sum(traffic.sources.values())
    print(f"{answered} answers, all as expected: {traffic.sources}; {traffic.cut_off} cut off; "
          f"{verified.stdout.strip()}")
    from_tiers = sum(traffic.sources.get(source, 0) for source in FROM_TIERS)
    if from_tiers < rounds // 4:
        raise Failed(f"only {from_tiers} answers from the tiers: the loop shows nothing")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--model", default="tiny-hybrid")
    parser.add_argument("--bin-dir", type=Path, default=paths.RELEASE_BIN)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    print(f"kill loop: {options.rounds} rounds, --seed {seed}", flush=True)
    model = paths.resolve_model(options.model, options.bin_dir)
    with Daemons(model.path, bin_dir=options.bin_dir, flags=FLAGS) as daemons:
        try:
            run(daemons, options.rounds, seed)
        except Failed as e:
            for who in (ENGINE, CACHESVC):
                print(f"{who}:\n{daemons.log_tail(who)}")
            print(f"FAILED (--seed {seed}): {e}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

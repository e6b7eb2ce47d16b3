"""Plays scenario files: see `scripts/scenario --help`."""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Optional

from . import paths, scenario_schema
from .client import Client, ConnectionLost
from .daemons import SURE_OF_TIERS, DaemonError, Daemons, describe_exit
from .scenario_run import DEFAULT_PARAMS, Player
from .small_disk import CannotMount

SKIPPED = 77  # as test drivers know it

_EPILOG = f"""One line of result a step; exit status 1 when an expectation is not met (all
steps are played and reported), 2 when a file is not a scenario, {SKIPPED} when this
machine cannot give one what it needs and all others were met. Requests send
{json.dumps(DEFAULT_PARAMS)} where a step's params say nothing else. Engines are
started with {" ".join(SURE_OF_TIERS)}."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/scenario", epilog=_EPILOG,
        description="Plays scenario files over HTTP, against daemons it starts itself.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--url", help="a server that runs already; the files' `server` is not used")
    parser.add_argument("--exactness", choices=["row_invariant", "grid"], default="row_invariant",
                        help="the engine's; steps are held to expect_grid's fields instead of "
                             "expect's where it has them")
    parser.add_argument("--bin-dir", type=Path, default=paths.RELEASE_BIN,
                        help="programs of another build than release")
    options = parser.parse_args(arguments)
    # So that a plain kill still stops the daemons.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    codes = {_play_file(file, options.url, options.bin_dir, options.exactness)
             for file in options.files}
    return max(codes - {SKIPPED}, default=0) or (SKIPPED if SKIPPED in codes else 0)


def _play_file(file: Path, url: Optional[str], bin_dir: Path, exactness: str) -> int:
    try:
        scenario = json.loads(file.read_text())
        scenario_schema.check(scenario)
        if exactness == "grid":
            scenario["steps"] = scenario_schema.for_grid(scenario["steps"])
    except (OSError, ValueError, scenario_schema.SchemaError) as e:
        print(f"scenario {file}: {e}")
        return 2
    print(f"scenario {scenario['name']}: {scenario.get('why', '')}".rstrip(": "), flush=True)
    try:
        ok = _play(scenario, url, bin_dir, exactness)
    except CannotMount as e:
        print(f"scenario {scenario['name']}: skipped: {e}")
        return SKIPPED
    except (ConnectionLost, DaemonError, paths.SetupError) as e:
        print(f"  FAIL {e}")
        ok = False
    print(f"scenario {scenario['name']}: {'ok' if ok else 'FAILED'}", flush=True)
    return 0 if ok else 1


def _play(scenario: dict, url: Optional[str], bin_dir: Path, exactness: str) -> bool:
    def say(line: str) -> None:
        print(line, flush=True)

    if url:
        return Player(Client(url), None, say).play(scenario)
    server = dict(scenario.get("server", {}))
    disk_mb = server.pop("disk_mb", None)
    server["engine"] = [*server.get("engine", []), *SURE_OF_TIERS, f"--exactness={exactness}"]
    model = paths.resolve_model(server.get("model", "tiny-llama"), bin_dir)
    with Daemons(model.path, bin_dir=bin_dir, flags=server, disk_mb=disk_mb) as daemons:
        if "--no-cache-service" not in server["engine"]:
            daemons.wait_attached()
        ok = Player(daemons.client, daemons, say).play(scenario)
        for who, code in daemons.ended().items():
            say(f"  FAIL {who} ended by itself ({describe_exit(code)}); its log:\n"
                f"{daemons.log_tail(who)}")
            ok = False
        for who, code in daemons.stop().items():
            if code != 0:
                say(f"  FAIL {who} stopped with {describe_exit(code)}; its log:\n"
                    f"{daemons.log_tail(who)}")
                ok = False
    return ok


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

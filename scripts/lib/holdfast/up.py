"""Starts the daemons and serves: see `scripts/up --help`."""

import argparse
import json
import shlex
import signal
import sys
import threading
from pathlib import Path

from . import paths, runs
from .client import ConnectionLost
from .daemons import CACHESVC, ENGINE, GATEWAY, PROGRAMS, DaemonError, Daemons, describe_exit

WATCH_S = 0.5
CACHESVC_DEADLINE_S = 10


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/up")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--engine", type=shlex.split, default=[])
    parser.add_argument("--cachesvc", type=shlex.split, default=[])
    parser.add_argument("--gateway", type=shlex.split, default=[])
    parser.add_argument("--run-dir", type=Path)
    options = parser.parse_args(arguments)

    stop = threading.Event()
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, lambda *_: stop.set())
    flags = {ENGINE: options.engine + (["--debug"] if options.debug else []),
             CACHESVC: options.cachesvc, GATEWAY: options.gateway}
    try:
        return _serve(options, flags, stop)
    except (DaemonError, ConnectionLost, paths.SetupError) as e:
        print(f"holdfast: {e}", file=sys.stderr)
        return 1


def _serve(options, flags: dict[str, list[str]], stop: threading.Event) -> int:
    model = paths.resolve_model(options.model, paths.RELEASE_BIN)
    print(f"holdfast: starting with model {model.name}", flush=True)
    run_dir = options.run_dir.resolve() if options.run_dir else None
    paths.data_dir().mkdir(parents=True, exist_ok=True)
    daemons = Daemons(model.path, run_dir=run_dir, flags=flags, port=options.port,
                      orphan_signal="TERM", cache_dir=paths.data_dir() / "cache")
    record = None
    try:
        for who in (CACHESVC, ENGINE, GATEWAY):
            daemons.launch(who)
        # Noted before they are ready, so that scripts/down finds them too
        # while a large model is being loaded.
        record = runs.record({who: p.pid for who, p in daemons.processes.items()},
                             daemons.run_dir, run_dir is None)
        daemons.wait_ready(stop=stop)
        if not stop.is_set():
            print(usage(daemons), flush=True)
        return _watch(daemons, stop)
    finally:
        print("holdfast: stopping", flush=True)
        daemons.close()
        if record:
            record.unlink(missing_ok=True)


def usage(daemons: Daemons) -> str:
    """What a user does with daemons that serve."""
    model_id = daemons.client.model_id()
    body = json.dumps({"model": model_id, "stream": True, "max_tokens": 100,
                       "messages": [{"role": "user", "content": "What is a harbour?"}]})
    cachectl = f"{daemons.bin_dir / 'cachectl'} --run-dir {daemons.run_dir} status"
    return f"""
Serving {model_id} at {daemons.url}
Logs and sockets: {daemons.run_dir}
{_disk(daemons)}
What the caches hold: {cachectl}

  curl -N {daemons.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'

Stop with Ctrl-C or scripts/down."""


def _disk(daemons: Daemons) -> str:
    try:
        # The engine and the gateway serve without it, and may be there first.
        status = daemons.wait_cachesvc(CACHESVC_DEADLINE_S)
    except DaemonError:
        return "Nothing is cached outside the engine: the cache service does not answer"
    for tier in status["tiers"]:
        if tier["name"] == "disk" and not tier["available"]:
            return f"Nothing is kept on disk: {tier['detail']}"
    return f"Cache on disk: {daemons.cache_dir}"


def _watch(daemons: Daemons, stop: threading.Event) -> int:
    """Serves until told to stop. A daemon that ends is reported; the others
    go on, since they do without it."""
    reported: set[str] = set()
    while not stop.wait(WATCH_S):
        ended = daemons.ended()
        for who, code in ended.items():
            if who not in reported:
                reported.add(who)
                print(f"holdfast: {PROGRAMS[who]} ended by itself ({describe_exit(code)}); "
                      f"its log:\n{daemons.log_tail(who)}", file=sys.stderr, flush=True)
        if len(ended) == len(daemons.processes):
            return 1
    return 1 if reported else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

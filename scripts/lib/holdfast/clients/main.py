"""Real clients through the gateway: see `scripts/test-clients --help`."""

import argparse
import fcntl
import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .. import paths
from ..daemons import CACHESVC, ENGINE, GATEWAY, DaemonError, Daemons, describe_exit
from . import answers, opencode, report
from .opencode_session import Session, rules
from .recorder import Recorder

MODEL = "tiny-hybrid"
OPENAI_DEADLINE_S = 300
WANTED_REQUESTS = 20
# What a next turn of a few words may compute: its message and the header ahead
# of the answer that was rendered again, or, where only grid lines are resumed,
# what follows the last line too.
NEXT_TURN_TOKENS = {"row_invariant": 64, "grid": 64 + 1024}
# Of the prompt tokens that were sent before.
WANTED_REUSE = 0.97
# The files take megabytes, not fifty gigabytes.
LOWERED = ["--disk-free-gb=1", "--allow-small-free-space"]


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    # So that a plain kill still stops the daemons.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell starts what it runs in the background with SIGINT ignored, and a
    # client that inherits that cannot be cancelled.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.offline:
        _raise_loopback()
    say(f"network: {'loopback only' if options.offline else 'not isolated'}")
    result, problems = {}, []
    try:
        for client, drive in (("openai", _openai), ("opencode", _opencode)):
            if options.only in (None, client):
                result[client], found = drive(options)
                problems += found
    except (DaemonError, paths.SetupError, TimeoutError, subprocess.TimeoutExpired) as e:
        problems.append(str(e))
    for problem in problems:
        say(f"FAIL {problem}")
    result["problems"] = problems
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    say("clients: " + ("ok" if not problems else "FAILED"))
    return 1 if problems else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/test-clients")
    parser.add_argument("--only", choices=["opencode", "openai"])
    parser.add_argument("--exactness", choices=["row_invariant", "grid"], default="row_invariant")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bin-dir", type=Path, default=paths.RELEASE_BIN)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--offline", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def say(line: str) -> None:
    print(line, flush=True)


class _Served:
    """The daemons with rules of answers, behind a recorder; as a context."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self._keep = options.keep
        self._answers = folder / "answers.jsonl"
        self.daemons = Daemons(
            paths.resolve_model(MODEL, options.bin_dir).path, bin_dir=options.bin_dir, flags={
                ENGINE: ["--debug", f"--exactness={options.exactness}"], CACHESVC: LOWERED,
                GATEWAY: ["--debug-answers", str(self._answers)]})
        self.recorder = Recorder(lambda: self.daemons.url)
        self.problems: list[str] = []

    def start(self, forced: list[dict]) -> None:
        answers.write(self._answers, forced)
        self.daemons.start()
        self.daemons.wait_attached()

    def __enter__(self) -> "_Served":
        return self

    def __exit__(self, *_) -> None:
        for who, code in self.daemons.ended().items():
            self.problems.append(f"{who} ended by itself ({describe_exit(code)})")
        self.recorder.close()
        self.daemons.stop()
        if self._keep:
            self._keep.mkdir(parents=True, exist_ok=True)
            for log in self.daemons.run_dir.glob("*.log"):
                shutil.copy(log, self._keep)
        self.daemons.close()


def _openai(options: argparse.Namespace) -> tuple[dict, list[str]]:
    python = paths.data_dir() / "clients" / "openai" / "venv" / "bin" / "python"
    program = Path(__file__).with_name("openai_session.py")
    with tempfile.TemporaryDirectory(prefix="holdfast-clients-") as folder, \
            _Served(options, Path(folder)) as served:
        served.start(answers.for_openai())
        ran = subprocess.run(
            [python, "-B", program, f"{served.recorder.url}/v1", MODEL,
             str(NEXT_TURN_TOKENS[options.exactness])], cwd=folder,
            env={"HOME": folder, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=OPENAI_DEADLINE_S)
        served.recorder.wait_idle()
        table = report.rows(served.recorder.exchanges(), [], served.daemons.client.detokenize)
    if ran.returncode != 0:
        return {}, [f"the openai program ended with {ran.returncode}: {ran.stderr[-2000:]}"]
    found = json.loads(ran.stdout)
    say(f"openai {found['version']}:")
    for name, wrong in found["checks"].items():
        say(f"  {'ok  ' if not wrong else 'FAIL'} {name}")
    for line in report.lines(table):
        say(line)
    problems = [f"openai {name}: {p}" for name, wrong in found["checks"].items() for p in wrong]
    return {**found, **report.summary(table)}, problems + served.problems


def _opencode(options: argparse.Namespace) -> tuple[dict, list[str]]:
    program = opencode.binary(paths.data_dir())
    with tempfile.TemporaryDirectory(prefix="holdfast-clients-") as folder, \
            _Served(options, Path(folder)) as served:
        user = opencode.Opencode(program, Path(folder), served.recorder.url, MODEL)
        session = Session(user, served.recorder, served.daemons, say)
        served.start(rules(session))
        say(f"opencode {opencode.OPENCODE_VERSION}:")
        start = time.monotonic()
        try:
            session.play()
        finally:
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / "opencode.log").write_text("\n".join(session.logs))
        table = report.rows(served.recorder.exchanges(), session.events,
                            served.daemons.client.detokenize)
    for line in report.lines(table):
        say(line)
    found = report.summary(table)
    say(f"{found['requests']} requests in {time.monotonic() - start:.0f} s: {found['prompt_tokens']} "
        f"prompt tokens, {found['sent_before_tokens']} of them sent before, "
        f"{found['reread_tokens']} read again: {found['reused_of_sent_before']:.4f} reused")
    problems = session.problems + served.problems + report.problems(table, WANTED_REUSE)
    if found["requests"] < WANTED_REQUESTS:
        problems.append(f"{found['requests']} requests, fewer than {WANTED_REQUESTS}")
    return {"version": opencode.OPENCODE_VERSION, **found}, problems


def _raise_loopback() -> None:
    """In a new network, where loopback is down."""
    name, up, get_flags, set_flags = b"lo", 1, 0x8913, 0x8914
    with socket.socket() as any_socket:
        request = struct.pack("16sH14x", name, 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, get_flags, request))[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH14x", name, flags | up))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

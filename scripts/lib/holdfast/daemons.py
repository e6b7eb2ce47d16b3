"""The three daemons of one run directory: started, watched, stopped."""

import concurrent.futures
import json
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Optional

from . import paths
from .client import Client, ConnectionLost
from .small_disk import CannotMount, SmallDisk

ENGINE, CACHESVC, GATEWAY = "engine", "cachesvc", "gateway"
START_ORDER = (CACHESVC, ENGINE, GATEWAY)
STOP_ORDER = (GATEWAY, ENGINE, CACHESVC)
PROGRAMS = {ENGINE: "holdfast-engine", CACHESVC: "holdfast-cached", GATEWAY: "holdfast-gateway"}

# Of an engine whose resumes are held to numbers: reading always costs less than
# computing, and is slow enough for a machine that does other things too.
SURE_OF_TIERS = ("--planner-costs=prefill=10,store=1,disk=1,spill=1", "--lookup-deadline-ms=2000")

START_DEADLINE_S = 120
STOP_DEADLINE_S = 75  # a drain may take a minute
POLL_S = 0.02

# A daemon is told when the thread that started it ends. So that a restart
# from a short-lived thread does not end it, one thread that lives as long as
# the process starts them all.
_spawner = concurrent.futures.ThreadPoolExecutor(1)


class DaemonError(Exception):
    """A daemon did not start, ended by itself or did not stop."""


class Daemons:
    """Owns the processes, and the run directory when it made it. Not
    thread-safe, but for restarts of different daemons."""

    def __init__(self, model: Path, *, bin_dir: Path = paths.RELEASE_BIN,
                 run_dir: Optional[Path] = None, flags: Optional[dict[str, list[str]]] = None,
                 port: int = 0, orphan_signal: str = "KILL", cache_dir: Optional[Path] = None,
                 disk_mb: Optional[int] = None):
        self.model = model
        self.bin_dir = bin_dir
        self.port = port
        self.flags = {who: list((flags or {}).get(who, [])) for who in START_ORDER}
        self.processes: dict[str, subprocess.Popen] = {}
        self.client = Client("http://127.0.0.1:0")
        self._orphan_signal = orphan_signal
        self._owns_run_dir = run_dir is None
        self.run_dir = run_dir or paths.private_run_dir()
        self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Of what is kept on disk; by default it goes with the run directory.
        self.cache_dir = cache_dir or self.run_dir / "cache"
        # The file system of the cache folder alone, when one was asked for.
        self.small_disk: Optional[SmallDisk] = None
        if disk_mb is not None:
            try:
                self.small_disk = SmallDisk(self.run_dir / "disk", disk_mb)
            except CannotMount:
                self.close()
                raise
            self.cache_dir = self.small_disk.folder / "cache"

    def __enter__(self) -> "Daemons":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self.client.url

    def log_path(self, who: str) -> Path:
        return self.run_dir / f"{who}.log"

    def log_tail(self, who: str, lines: int = 15) -> str:
        try:
            text = self.log_path(who).read_text(errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join("    " + line for line in text.splitlines()[-lines:])

    def start(self) -> None:
        for who in START_ORDER:
            self.launch(who)
        self.wait_ready()

    def launch(self, who: str) -> None:
        """Starts one daemon; does not wait until it serves."""
        command = [str(paths.program(self.bin_dir, PROGRAMS[who])), "--run-dir", str(self.run_dir)]
        if who == ENGINE:
            command += ["--model", str(self.model)]
        elif who == CACHESVC:
            command += ["--cache-dir", str(self.cache_dir)]
        elif who == GATEWAY:
            (self.run_dir / "gateway.port").unlink(missing_ok=True)
            command += ["--host", "127.0.0.1", "--port", str(self.port)]
        command = ["setpriv", "--pdeathsig", self._orphan_signal, *command, *self.flags[who]]
        with open(self.log_path(who), "ab") as log:
            # A session of its own: Ctrl-C is for the script, which then stops
            # the daemons in order.
            self.processes[who] = _spawner.submit(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True).result()

    def wait_ready(self, deadline_s: float = START_DEADLINE_S,
                   stop: Optional[threading.Event] = None) -> None:
        """Until the gateway says that it can serve, or `stop` is set."""
        end = time.monotonic() + deadline_s
        last = "no answer"
        while time.monotonic() < end:
            if stop and stop.is_set():
                return
            self._raise_if_ended()
            if self._find_url():
                try:
                    response = self.client.request("GET", "/health", timeout_s=5)
                    if response.status == 200:
                        return
                    last = f"{response.status} {response.body[:200]!r}"
                except ConnectionLost as e:
                    last = str(e)
            time.sleep(POLL_S)
        raise DaemonError(f"not ready within {deadline_s:.0f} s: {last}\n" + "\n".join(
            f"  {who} ({self.log_path(who)}):\n{self.log_tail(who)}" for who in self.processes))

    def wait_attached(self, deadline_s: float = 15) -> None:
        """Until this engine and this cache service both say that they are
        attached: the service may still hold an engine that was killed, and it
        takes an engine a moment before that one knows."""
        end = time.monotonic() + deadline_s
        last = None
        while time.monotonic() < end:
            self._raise_if_ended()
            last = self.cache_status()
            if last and are_attached(last, self.pid(ENGINE)):
                return
            time.sleep(POLL_S)
        raise DaemonError(f"no engine attached within {deadline_s:.0f} s: {last}")

    def wait_cachesvc(self, deadline_s: float = START_DEADLINE_S) -> dict:
        """Until the cache service answers; returns its status."""
        end = time.monotonic() + deadline_s
        while (status := self.cache_status()) is None:
            # The others, which are still to start, have ended.
            if self.processes[CACHESVC].poll() is not None or time.monotonic() > end:
                raise DaemonError(f"the cache service does not answer:\n{self.log_tail(CACHESVC)}")
            time.sleep(POLL_S)
        return status

    def cachectl(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [paths.program(self.bin_dir, "cachectl"), "--run-dir", self.run_dir, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)

    def cache_status(self) -> Optional[dict]:
        ran = self.cachectl("status", "--json")
        return json.loads(ran.stdout) if ran.returncode == 0 else None

    def cache_stats(self) -> dict:
        """The cache service's counters, by tier under `tiers`."""
        ran = self.cachectl("stats", "--json")
        if ran.returncode != 0:
            raise DaemonError(f"cachectl stats: {ran.stderr.strip()}")
        return json.loads(ran.stdout)

    def pid(self, who: str) -> int:
        return self.processes[who].pid

    def send(self, who: str, which: signal.Signals) -> None:
        self.processes[who].send_signal(which)

    def end(self, who: str, which: signal.Signals = signal.SIGTERM,
            deadline_s: float = STOP_DEADLINE_S) -> int:
        """Signals one daemon, waits for its end, returns its exit code."""
        if self.processes[who].poll() is None:
            self.processes[who].send_signal(which)
        return self.wait(who, deadline_s)

    def wait(self, who: str, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Waits for the end of a daemon that was signalled. A second signal
        would have it stop at once, unfinished answers and all."""
        return _wait(self.processes.pop(who), PROGRAMS[who], deadline_s)

    def restart(self, who: str, which: signal.Signals) -> None:
        """Ends the daemons named (`all` at once) and has them serve again."""
        names = list(STOP_ORDER) if who == "all" else [who]
        for name in names:
            self.send(name, which)
        for name in names:
            _wait(self.processes[name], PROGRAMS[name], STOP_DEADLINE_S)
        for name in START_ORDER:
            if name in names:
                self.launch(name)
            if name == CACHESVC and len(names) > 1:
                # As the units are ordered: so the engine reads back what its
                # residents were before a request can come.
                self.wait_cachesvc()
        self.wait_ready()
        if "--no-cache-service" not in self.flags[ENGINE]:
            self.wait_attached()

    def stop(self) -> dict[str, int]:
        """Stops what runs, in order. The exit codes by name."""
        codes: dict[str, int] = {}
        errors = []
        for who in STOP_ORDER:
            if who not in self.processes:
                continue
            try:
                self.processes[who].send_signal(signal.SIGCONT)
                codes[who] = self.end(who)
            except DaemonError as e:
                errors.append(str(e))
        if errors:
            raise DaemonError("; ".join(errors))
        return codes

    def close(self) -> None:
        """Stops everything and removes what is ours. Does not raise for a
        daemon that had to be killed: whoever cares calls stop() first."""
        try:
            self.stop()
        except DaemonError as e:
            print(f"holdfast: {e}", flush=True)
        finally:
            if self.small_disk is not None:
                self.small_disk.close()
            if self._owns_run_dir:
                shutil.rmtree(self.run_dir, ignore_errors=True)

    def ended(self) -> dict[str, int]:
        """Daemons that ended without being asked to, and how."""
        return {who: process.returncode for who, process in self.processes.items()
                if process.poll() is not None}

    def _raise_if_ended(self) -> None:
        for who, code in self.ended().items():
            raise DaemonError(f"{PROGRAMS[who]} ended by itself ({describe_exit(code)}); its log:\n"
                              f"{self.log_tail(who)}")

    def _find_url(self) -> bool:
        try:
            port = int((self.run_dir / "gateway.port").read_text())
        except (OSError, ValueError):
            return False
        self.client.url = f"http://127.0.0.1:{port}"
        return True


def describe_exit(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"


def are_attached(status: dict, engine_pid: int) -> bool:
    """Whether, by `cachectl status --json`, that engine and the service are
    attached to each other."""
    held, link = status["engine"] or {}, status["engine_link"] or {}
    return (held.get("pid") == engine_pid == link.get("pid") and
            link.get("state") == "attached")


def _wait(process: subprocess.Popen, name: str, deadline_s: float) -> int:
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise DaemonError(f"{name} did not stop within {deadline_s:.0f} s and was killed") from None

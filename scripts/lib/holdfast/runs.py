"""What scripts/up has running, so that scripts/down finds it: one file a run
in the data folder, with processes named by pid and start time, since a pid
alone may belong to another process by now."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional

from . import paths


@dataclass(frozen=True)
class Process:
    pid: int
    started: int  # clock ticks since boot

    @staticmethod
    def of(pid: int) -> Optional["Process"]:
        ticks = _start_time(pid)
        return None if ticks is None else Process(pid, ticks)

    def alive(self) -> bool:
        return _start_time(self.pid) == self.started

    def send(self, which: signal.Signals) -> None:
        if self.alive():
            try:
                os.kill(self.pid, which)
            except ProcessLookupError:
                pass  # it has just ended

    def wait(self, deadline_s: float) -> bool:
        end = time.monotonic() + deadline_s
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True


@dataclass(frozen=True)
class Run:
    file: Path
    up: Process
    daemons: dict[str, Process]
    run_dir: Path
    owns_run_dir: bool


def _folder() -> Path:
    return paths.data_dir() / "runs"


def record(daemons: dict[str, int], run_dir: Path, owns_run_dir: bool) -> Path:
    """Notes the calling process and its daemons; returns the file, which the
    caller removes when they have ended."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    processes = {who: Process.of(pid) for who, pid in daemons.items()}
    up = Process.of(os.getpid())
    text = json.dumps({
        "up": [up.pid, up.started],
        "daemons": {who: [p.pid, p.started] for who, p in processes.items() if p},
        "run_dir": str(run_dir), "owns_run_dir": owns_run_dir})
    file = folder / f"{os.getpid()}.json"
    scratch = file.with_suffix(".new")
    scratch.write_text(text)
    scratch.replace(file)
    return file


def all_runs() -> Iterator[Run]:
    for file in sorted(_folder().glob("*.json")):
        try:
            body = json.loads(file.read_text())
        except FileNotFoundError:
            continue  # it ended meanwhile
        yield Run(file, Process(*body["up"]),
                  {who: Process(*p) for who, p in body["daemons"].items()},
                  Path(body["run_dir"]), body["owns_run_dir"])


def _start_time(pid: int) -> Optional[int]:
    """None when there is no such process, or only its unreaped remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name may hold anything
    return None if fields[0] in "ZX" else int(fields[19])

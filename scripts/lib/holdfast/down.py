"""Stops what scripts/up started: see `scripts/down --help`."""

import shutil
import signal
import sys

from . import runs
from .daemons import PROGRAMS, STOP_DEADLINE_S, STOP_ORDER


def main() -> int:
    found = list(runs.all_runs())
    if not found:
        print("holdfast: nothing runs")
    for run in found:
        _stop(run)
    return 0


def _stop(run: runs.Run) -> None:
    if run.up.alive():
        # It stops its daemons in order; a drain may take a minute for each.
        run.up.send(signal.SIGTERM)
        run.up.wait(len(STOP_ORDER) * STOP_DEADLINE_S)
        run.up.send(signal.SIGKILL)
    for who in STOP_ORDER:
        process = run.daemons.get(who)
        if process is None or not process.alive():
            continue
        process.send(signal.SIGCONT)
        process.send(signal.SIGTERM)
        if not process.wait(STOP_DEADLINE_S):
            print(f"holdfast: {PROGRAMS[who]} did not stop within {STOP_DEADLINE_S} s; killing it")
            process.send(signal.SIGKILL)
            process.wait(STOP_DEADLINE_S)
    if run.owns_run_dir:
        shutil.rmtree(run.run_dir, ignore_errors=True)
    run.file.unlink(missing_ok=True)
    print(f"holdfast: stopped the run of {run.run_dir}")


if __name__ == "__main__":
    sys.exit(main())

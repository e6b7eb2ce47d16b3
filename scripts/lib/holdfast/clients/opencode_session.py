"""A day with opencode in one folder: what the user types, what the model is
made to answer, and what must have come of it."""

import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from ..daemons import Daemons
from . import answers
from .answers import call, turn
from .opencode import Opencode, Run
from .recorder import Exchange, Recorder, answer_so_far

CANCEL_DEADLINE_S = 60
# It stands still behind this until its client goes away, so that whoever cancels
# it has all that was forwarded, however long that takes.
HELD_ANSWER = "Line after line of an explanation that nobody wants to read to its end.\n" * 8 + "It"


@dataclass(frozen=True)
class Event:
    """Something that happened to the daemons or the client, ahead of the
    request of that number."""
    before_request: int
    what: str


class Session:
    def __init__(self, opencode: Opencode, recorder: Recorder, daemons: Daemons,
                 say: Callable[[str], None]):
        self._opencode = opencode
        self._recorder = recorder
        self._daemons = daemons
        self._say = say
        self._project = opencode.project
        self.events: list[Event] = []
        self.problems: list[str] = []
        self.logs: list[str] = []

    def rules(self) -> list[dict]:
        """Every step of every turn, ahead of the daemons' start."""
        file = str(self._project / "greet.py")
        return [
            *turn("plan the greeting",
                  {"reasoning": "First I look at what is there.",
                   "tool_calls": [call("bash", command="ls; cat notes.txt",
                                       description="Shows the folder")]},
                  {"reasoning": "The notes say how.",
                   "tool_calls": [call("read", filePath=str(self._project / "notes.txt"))]},
                  {"reasoning": "That is enough for a plan.",
                   "text": "1. Write greet.py.\n2. Run it."}),
            *turn("now write it",
                  {"reasoning": "The plan's first step.",
                   "tool_calls": [call("write", filePath=file,
                                       content="import sys\nprint('Hello,', sys.argv[1])\n")]},
                  {"reasoning": "I read it again, then run it.",
                   "tool_calls": [call("read", filePath=file)]},
                  {"tool_calls": [call("bash", command="python3 greet.py Ada",
                                       description="Runs the program")]},
                  {"reasoning": "It greets.", "text": "It is written, and it runs."}),
            *turn("explain everything", {"text": HELD_ANSWER, "hold": True}),
            *turn("never mind, count",
                  {"reasoning": "Lines, then words.",
                   "tool_calls": [call("bash", command="wc -l greet.py",
                                       description="Counts lines")]},
                  {"reasoning": "Two lines.",
                   "tool_calls": [call("bash", command="wc -w greet.py",
                                       description="Counts words")]},
                  {"reasoning": "Four words.", "text": "Two lines of four words."}),
            *turn("both at once",
                  {"reasoning": "Two calls in one answer.", "tool_calls": [
                      call("read", filePath=file),
                      call("bash", command="python3 greet.py Bob", description="Greets Bob")]},
                  {"text": "Both are done."}),
            *turn("restart in the middle",
                  {"reasoning": "One command first.",
                   "tool_calls": [call("bash", command="echo before-the-restart",
                                       description="Says a word")]},
                  {"reasoning": "And one after it.",
                   "tool_calls": [call("bash", command="echo after-the-restart",
                                       description="Says a word")]},
                  {"text": "The daemons were away, and came back."}),
            *turn("thanks", {"text": "You are welcome."}),
            *turn("a new session",
                  {"tool_calls": [call("read", filePath=file)]},
                  {"text": "There is a program that greets."}),
        ]

    def play(self) -> None:
        (self._project / "notes.txt").write_text("A program greets the person it is given.\n")
        self._turn("plan the greeting program", "--agent", "plan", tools=["bash", "read"],
                   text="1. Write greet.py.\n2. Run it.")
        self._turn("now write it", "-c", tools=["write", "read", "bash"],
                   text="It is written, and it runs.", output="Hello, Ada")
        self._cancelled("explain everything", "-c")
        self._turn("never mind, count its lines", "-c", tools=["bash", "bash"],
                   text="Two lines of four words.", output="4 greet.py")
        self._turn("both at once, please", "-c", tools=["bash", "read"], text="Both are done.",
                   output="Hello, Bob")
        self._restart_inside("restart in the middle of this", "-c")
        self._turn("thanks for all of it", "-c", tools=[], text="You are welcome.")
        self._restart(signal.SIGKILL)
        self._turn("a new session in the same folder", tools=["read"],
                   text="There is a program that greets.")
        self._expect("greet.py as the model wrote it", (self._project / "greet.py").read_text(),
                     "import sys\nprint('Hello,', sys.argv[1])\n")

    def _turn(self, message: str, *flags: str, tools: list[str], text: str,
              output: str = "") -> None:
        run = self._opencode.run(message, *flags)
        self._check(message, run, tools, text, output)

    def _check(self, message: str, run: Run, tools: list[str], text: str, output: str) -> None:
        self._recorder.wait_idle()
        self.logs.append(run.log)
        self._say(f"{message}: {len(run.tools())} tools, {run.texts()[-1:]}")
        self._expect(f"{message}: exit status", run.code, 0)
        ran = run.tools()
        self._expect(f"{message}: tools", sorted(t["tool"] for t in ran), sorted(tools))
        self._expect(f"{message}: tools that did not end well",
                     [t for t in ran if t["status"] != "completed"], [])
        self._expect(f"{message}: answer", run.texts()[-1:], [text])
        if output and not any(output in str(t["output"]) for t in ran):
            self.problems.append(f"{message}: no tool put out {output!r}: {ran}")

    def _cancelled(self, message: str, *flags: str) -> None:
        """The user presses Ctrl-C when all is there that comes."""
        stands = threading.Event()

        def on_bytes(_: Exchange, got: bytes) -> None:
            if answer_so_far(got).content.endswith(HELD_ANSWER):
                stands.set()

        self._recorder.hook(on_bytes=on_bytes)
        process = self._opencode.start(message, *flags)
        came = stands.wait(CANCEL_DEADLINE_S)
        self._opencode.cancel(process)
        run = self._opencode.wait(process)
        self._recorder.hook()
        self._recorder.wait_idle()
        self.logs.append(run.log)
        if not came:
            self.problems.append(f"{message}: its answer did not come within "
                                 f"{CANCEL_DEADLINE_S} s")
        last = self._recorder.exchanges()[-1]
        self._expect(f"{message}: the client closed its connection", last.client_gone, True)
        self.events.append(Event(last.number + 1, "the run before was cancelled"))
        self._say(f"{message}: cancelled")

    def _restart_inside(self, message: str, *flags: str) -> None:
        """All daemons get SIGTERM between two requests of one tool loop."""
        first = len(self._recorder.exchanges()) + 1

        def before(exchange: Exchange) -> None:
            if exchange.number == first + 1:
                self._recorder.hook()
                self._restart(signal.SIGTERM)

        self._recorder.hook(before=before)
        self._turn(message, *flags, tools=["bash", "bash"],
                   text="The daemons were away, and came back.", output="after-the-restart")

    def _restart(self, which: signal.Signals) -> None:
        self.events.append(Event(len(self._recorder.exchanges()) + (which == signal.SIGKILL),
                                 f"{which.name} of all three daemons"))
        self._daemons.restart("all", which)
        self._say(f"all daemons restarted after {which.name}")

    def _expect(self, what: str, got, wanted) -> None:
        if got != wanted:
            self.problems.append(f"{what}: {got!r}, not {wanted!r}")


def rules(session: Session) -> list[dict]:
    return [*answers.for_titles(), *session.rules()]

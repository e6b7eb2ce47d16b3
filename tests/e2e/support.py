"""What the end-to-end tests share. Each test program takes --bin-dir (the
programs under test), starts daemons of its own in a private run directory on
a free port, and leaves nothing behind."""

import argparse
import signal
import socket
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Callable, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "lib"))

from holdfast import paths  # noqa: E402
from holdfast.client import Answer, Call, Client, ConnectionLost, Response  # noqa: E402
from holdfast.daemons import CACHESVC, ENGINE, GATEWAY, Daemons  # noqa: E402
from holdfast.scenario_run import RUNNING, WAITING  # noqa: E402

__all__ = ["ANSWERED", "Answer", "CACHESVC", "Call", "Client", "ConnectionLost", "DaemonTest",
           "Daemons", "ENGINE", "GATEWAY", "Response", "Streaming", "bin_dir", "main", "paths",
           "raw_exchange", "wait_until"]

DEADLINE_S = 60

_options = argparse.Namespace(bin_dir=paths.RELEASE_BIN)


def bin_dir() -> Path:
    return _options.bin_dir


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", type=Path, default=paths.RELEASE_BIN)
    global _options
    _options, rest = parser.parse_known_args()
    # So that a plain kill still stops the daemons.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    unittest.main(module="__main__", argv=[sys.argv[0], *rest])


def wait_until(what: str, condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(0.01)


class DaemonTest(unittest.TestCase):
    """One set of daemons for all tests of a class, started at first."""
    MODEL = "tiny-llama"
    FLAGS: dict[str, list[str]] = {ENGINE: ["--debug"]}
    API_KEY: Optional[str] = None
    daemons: Daemons
    client: Client
    model_id: str

    @classmethod
    def setUpClass(cls) -> None:
        model = paths.resolve_model(cls.MODEL, bin_dir())
        cls.daemons = Daemons(model.path, bin_dir=bin_dir(), flags=cls.FLAGS)
        cls.addClassCleanup(cls.daemons.close)
        cls.daemons.client.api_key = cls.API_KEY
        cls.daemons.start()
        cls.client = cls.daemons.client
        cls.model_id = cls.client.model_id()

    def tearDown(self) -> None:
        ended = self.daemons.ended()
        for who in ended:
            print(f"{who}:\n{self.daemons.log_tail(who)}")
        self.assertEqual(ended, {}, "daemons that ended by themselves")

    def chat(self, content: str, on_piece=None, **fields) -> Answer:
        body = {"model": self.model_id, "messages": [{"role": "user", "content": content}],
                "stream": True, "stream_options": {"include_usage": True}, "temperature": 0,
                "max_tokens": 16, **fields}
        return self.client.generate("/v1/chat/completions", body, on_piece=on_piece)

    def long_chat(self, content: str = "Tell me a long story.", tokens: int = 30000,
                  **fields) -> "Streaming":
        """A stream that runs until well after its first piece: as long as the
        generated models' context allows."""
        streaming = Streaming(lambda on_piece: self.chat(
            content, on_piece, max_tokens=tokens, ignore_eos=True, **fields))
        self.addCleanup(streaming.abort)
        return streaming

    def assert_serves(self) -> None:
        answer = self.chat("Are you there?")
        self.assertEqual((answer.status, answer.error, answer.complete), (200, None, True))

    def wait_idle(self) -> None:
        wait_until("the engine is idle", lambda: self.load() == 0)

    def load(self) -> float:
        metrics = self.client.metrics()
        self.assertIn(RUNNING, metrics.names())
        return metrics.value(RUNNING) + metrics.value(WAITING)

    def assert_api_error(self, response: Response, status: int, words: str = "") -> None:
        self.assertEqual(response.status, status, response.body[:500])
        error = response.json()["error"]
        self.assertEqual({"message", "type", "param", "code"} - set(error), set())
        self.assertIn(words, error["message"])


class Streaming:
    """A generation that runs in a thread of its own."""

    def __init__(self, run: Callable[[Callable], Answer]):
        self._first = threading.Event()
        self._call: Optional[Call] = None
        self._answer: Optional[Answer] = None
        self._error: Optional[Exception] = None
        self._thread = threading.Thread(target=self._run, args=(run,))
        self._thread.start()

    def wait_first_piece(self) -> None:
        if not self._first.wait(DEADLINE_S) or self._call is None:
            raise AssertionError(f"no piece came: {self._answer} {self._error}")

    def running(self) -> bool:
        return self._thread.is_alive()

    def abort(self) -> None:
        """Closes the connection, if it is still open, and waits."""
        if self._call is not None:
            self._call.abort()
        self._thread.join()

    def result(self, deadline_s: float = DEADLINE_S) -> Answer:
        """The answer; raises what the request raised."""
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            raise AssertionError(f"no end of the answer within {deadline_s} s")
        if self._error is not None:
            raise self._error
        return self._answer

    def _run(self, run: Callable[[Callable], Answer]) -> None:
        try:
            self._answer = run(self._on_piece)
        except Exception as e:  # handed to whoever asks for the result
            self._error = e
        finally:
            self._first.set()

    def _on_piece(self, _: Answer, call: Call) -> None:
        self._call = call
        self._first.set()


# What raw_exchange saw of the peer.
ANSWERED, CLOSED, SILENT = "answered", "closed", "silent"


def raw_exchange(url: str, data: bytes, wait_s: float = 10) -> tuple[str, bytes]:
    """Sends bytes that need not be HTTP; the first bytes that come back."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait_s) as connection:
        try:
            connection.sendall(data)
        except OSError:
            pass  # refused before it was all sent; an answer may still be there
        try:
            got = connection.recv(65536)
        except TimeoutError:
            return SILENT, b""
        except OSError:
            return CLOSED, b""
        return (ANSWERED, got) if got else (CLOSED, b"")

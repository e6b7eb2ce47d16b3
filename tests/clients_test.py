"""The parts of scripts/test-clients that need no client: run with python3."""

import http.server
import json
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts" / "lib"))

from holdfast.client import Client  # noqa: E402
from holdfast.clients import report  # noqa: E402
from holdfast.clients.opencode_session import Event  # noqa: E402
from holdfast.clients.recorder import Exchange, Recorder, answer_so_far  # noqa: E402
from holdfast.prompt_trie import PromptTrie  # noqa: E402


class PromptTrieTest(unittest.TestCase):
    def test_known_is_the_longest_prefix_of_any(self):
        trie = PromptTrie()
        self.assertEqual(trie.known([1, 2]), 0)
        trie.add([1, 2, 3, 4])
        trie.add([1, 2, 300000, 4, 5])
        self.assertEqual(trie.known([1, 2, 3, 9]), 3)
        self.assertEqual(trie.known([1, 2, 300000, 4, 5, 6]), 5)
        self.assertEqual(trie.known([1, 2]), 2)
        self.assertEqual(trie.known([2]), 0)
        self.assertEqual(trie.known([]), 0)

    def test_a_longer_one_takes_the_place_of_its_prefix(self):
        trie = PromptTrie()
        trie.add([1, 2])
        trie.add([1, 2, 3])
        trie.add([1])
        self.assertEqual(trie.known([1, 2, 3, 4]), 3)


def exchange(number: int, prompt: list[int], output: list[int], cached: int, **report_) -> Exchange:
    out = Exchange(number, "/v1/chat/completions", {}, {"messages": [{"role": "user"}]}, 0)
    out.answer.status = 200
    out.answer.usage = {"prompt_tokens": len(prompt),
                        "prompt_tokens_details": {"cached_tokens": cached}}
    out.answer.holdfast = {"prompt_ids": prompt, "output_ids": output,
                           "computed_tokens": len(prompt) - cached, **report_}
    return out


class ReportTest(unittest.TestCase):
    def rows(self, exchanges, events=()):
        return report.rows(exchanges, list(events), lambda ids: str(ids))

    def test_what_was_forwarded_and_computed_again_has_a_cause(self):
        rows = self.rows([
            exchange(1, [1, 2, 3], [4, 5], 0, cache_source="none", miss_reason="cold"),
            exchange(2, [1, 2, 3, 4, 5, 6], [7], 4, cache_source="end", anchor="end"),
            exchange(3, [1, 2, 3, 9], [7], 2, cache_source="resident", anchor="message"),
            exchange(4, [1, 2, 3, 9, 8], [7], 0, cache_source="none", miss_reason="cold"),
        ], [Event(4, "SIGKILL of all")])
        self.assertEqual([(r.sent_before, r.reread) for r in rows], [(0, 0), (4, 0), (3, 1), (4, 4)])
        self.assertEqual([r.cause for r in rows[:2]], ["", ""])
        self.assertIn("the message at 2, 1 before", rows[2].cause)
        self.assertEqual(rows[3].cause, "SIGKILL of all; miss: cold")
        self.assertEqual(rows[2].parts_at, "[9]")
        summary = report.summary(rows)
        self.assertEqual((summary["sent_before_tokens"], summary["reread_tokens"]), (11, 5))

    def test_too_little_reuse_and_unknown_causes_are_problems(self):
        rows = self.rows([exchange(1, [1, 2, 3], [4], 0), exchange(2, [1, 2, 3], [4], 0)])
        self.assertEqual(len(report.problems(rows, 0.97)), 2)
        self.assertEqual(report.problems(rows[:1], 0.97), [])

    def test_an_answer_without_ids_is_named_with_the_next_one(self):
        gone = exchange(2, [], [], 0)
        gone.client_gone = True
        rows = self.rows([exchange(1, [1, 2], [3], 0), gone, exchange(3, [1, 2], [3], 0)])
        self.assertEqual([r.number for r in rows], [1, 3])
        self.assertEqual(rows[1].cause, "request 2 has no ids: the client closed it")


class RecorderTest(unittest.TestCase):
    """Against a server of a few lines."""

    def setUp(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                if not body.get("stream"):
                    self.send_header("content-type", "application/json")
                    self.end_headers()
                    self.wfile.write(b'{"usage": {"prompt_tokens": 7}}')
                    return
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                chunk = {"choices": [{"delta": {"content": "x" * 100}}],
                         "holdfast": {"prompt_ids": [1]}}
                try:
                    for _ in range(body["pieces"]):
                        self.wfile.write(b"data: %s\n\n" % json.dumps(chunk).encode())
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    gone.set()

            def log_message(self, *_):
                pass

        gone = self.gone = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.recorder = Recorder(lambda: self.url)
        self.client = Client(self.recorder.url)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.recorder.close)

    def test_passes_on_and_keeps_what_went_over_the_wire(self):
        answer = self.client.generate("/v1/x", {"stream": True, "pieces": 3}, {"X-Session-Id": "s"})
        self.assertEqual((answer.complete, answer.pieces), (True, 3))
        self.assertEqual(self.client.generate("/v1/x", {}).prompt_tokens, 7)
        self.recorder.wait_idle()
        first, second = self.recorder.exchanges()
        self.assertEqual((first.number, first.body["pieces"], first.headers["x-session-id"]),
                         (1, 3, "s"))
        self.assertEqual((first.answer.content, first.prompt_ids, len(first.chunks)),
                         (answer.content, [1], 3))
        self.assertEqual(second.answer.prompt_tokens, 7)

    def test_a_client_that_goes_takes_the_other_connection_with_it(self):
        answer = self.client.generate("/v1/x", {"stream": True, "pieces": 10_000_000},
                                      on_piece=lambda answer, call: call.abort())
        self.assertTrue(answer.cancelled)
        self.recorder.wait_idle()
        self.assertTrue(self.recorder.exchanges()[0].client_gone)
        self.assertTrue(self.gone.wait(10))

    def test_a_request_waits_for_the_hook_ahead_of_it(self):
        seen = []
        self.recorder.hook(before=lambda exchange: seen.append(exchange.number))
        self.client.generate("/v1/x", {})
        self.assertEqual(seen, [1])

    def test_what_a_client_has_so_far_is_told(self):
        seen = []
        self.recorder.hook(on_bytes=lambda exchange, got: seen.append(answer_so_far(got)))
        self.client.generate("/v1/x", {"stream": True, "pieces": 2})
        self.recorder.wait_idle()
        self.assertEqual((seen[-1].content, seen[-1].pieces), ("x" * 200, 2))
        self.assertTrue(all(before.pieces <= after.pieces for before, after in zip(seen, seen[1:])))
        self.assertEqual(answer_so_far(b"HTTP/1.1 200 OK\r\nContent-Ty").content, "")

    def test_without_a_gateway_clients_are_told_to_come_again(self):
        self.url = "http://127.0.0.1:1"
        response = self.client.request("POST", "/v1/x", {})
        self.assertEqual((response.status, response.headers["retry-after"]), (503, "1"))


if __name__ == "__main__":
    unittest.main()

"""Any daemon may be killed or stopped while a request runs: the others answer
and recover when it is back."""

import signal
import time

from support import (CACHESVC, ENGINE, GATEWAY, ConnectionLost, DaemonTest, main, wait_until)

ENGINE_WAIT_MS = 1500


class KillTest(DaemonTest):
    FLAGS = {ENGINE: ["--debug"], GATEWAY: [f"--engine-wait-ms={ENGINE_WAIT_MS}"]}

    def kill(self, who: str) -> None:
        self.assertEqual(self.daemons.end(who, signal.SIGKILL), -signal.SIGKILL)

    def back(self, who: str) -> None:
        self.daemons.launch(who)
        self.daemons.wait_ready()
        self.daemons.wait_attached()

    def test_engine(self) -> None:
        first = self.chat("A question.")
        stream = self.long_chat()
        stream.wait_first_piece()
        self.kill(ENGINE)
        broken = stream.result()
        self.assertEqual(broken.status, 200)
        self.assertTrue(broken.error, "the stream must end with an error event")
        self.assertFalse(broken.complete, "and without [DONE]")

        # Nobody is back in time: 503, with a time to come again.
        absent = self.chat("A question.")
        self.assertEqual(absent.status, 503)
        self.assertTrue(absent.error)
        self.assertIn("retry-after", absent.headers)
        whole = self.chat("A question.", stream=False, stream_options=None)
        self.assertEqual(whole.status, 503)
        # The cache service has noticed, and serves on.
        wait_until("the cache service sees the engine gone",
                   lambda: not self.daemons.cache_status().get("engine"))

        self.back(ENGINE)
        again = self.chat("A question.")
        self.assertEqual((again.status, again.content), (200, first.content))
        self.assertEqual(again.holdfast["cache_source"], "none")

    def test_engine_while_nothing_is_streamed(self) -> None:
        stream = self.long_chat(stream=False, stream_options=None)
        wait_until("the request runs", lambda: self.load() > 0)
        self.kill(ENGINE)
        answer = stream.result()
        self.assertIn(answer.status, (500, 502, 503))
        self.assertTrue(answer.error)
        self.back(ENGINE)
        self.assert_serves()

    def test_cache_service(self) -> None:
        alone = self.chat("Tell me a long story.", max_tokens=400, ignore_eos=True)
        self.daemons.wait_attached()
        stream = self.long_chat(tokens=400)
        stream.wait_first_piece()
        self.kill(CACHESVC)
        answer = stream.result()
        self.assertEqual((answer.error, answer.complete, answer.content),
                         (None, True, alone.content))
        self.assert_serves()
        self.back(CACHESVC)
        self.assert_serves()

    def test_cache_service_stopped(self) -> None:
        self.daemons.send(CACHESVC, signal.SIGSTOP)
        try:
            self.assert_serves()
        finally:
            self.daemons.send(CACHESVC, signal.SIGCONT)
        self.daemons.wait_attached()
        self.assert_serves()

    def test_gateway(self) -> None:
        stream = self.long_chat("Another story, please.")
        stream.wait_first_piece()
        self.kill(GATEWAY)
        try:
            answer = stream.result()
            self.assertFalse(answer.complete)
        except ConnectionLost:
            pass
        self.back(GATEWAY)
        # The engine has seen its client go and has kept the rows.
        self.wait_idle()
        again = self.chat("Another story, please.")
        self.assertEqual((again.status, again.complete), (200, True))
        self.assertEqual(again.cached_tokens + again.holdfast["computed_tokens"],
                         again.prompt_tokens)
        self.assertGreater(again.cached_tokens, 0)

    def test_engine_stopped(self) -> None:
        stream = self.long_chat()
        stream.wait_first_piece()
        self.daemons.send(ENGINE, signal.SIGSTOP)
        try:
            start = time.monotonic()
            response = self.client.request("GET", "/health", timeout_s=30)
            self.assertLess(time.monotonic() - start, 30)
            self.assertIn(response.status, (200, 503))
        finally:
            self.daemons.send(ENGINE, signal.SIGCONT)
        stream.abort()
        wait_until("health is back", lambda: self.client.request(
            "GET", "/health", timeout_s=10).status == 200)
        self.wait_idle()
        self.assert_serves()


if __name__ == "__main__":
    main()

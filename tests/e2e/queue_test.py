"""The queue is bounded: who finds it full is told when to come again."""

from support import ENGINE, DaemonTest, Streaming, main, wait_until


class QueueTest(DaemonTest):
    FLAGS = {ENGINE: ["--debug", "--max-queue=1"]}

    def test_full(self) -> None:
        running = self.long_chat()
        running.wait_first_piece()
        waiting = self.long_chat("I can wait.", tokens=16)
        wait_until("one runs and one waits", lambda: self.load() == 2)
        for stream in (True, False):
            refused = self.chat("And me?", stream=stream,
                                stream_options={"include_usage": True} if stream else None)
            self.assertEqual(refused.status, 429)
            self.assertGreaterEqual(int(refused.headers["retry-after"]), 1)
            self.assertTrue(refused.error)
        self.assertTrue(running.running())
        running.abort()
        self.assertEqual(waiting.result().status, 200)
        self.assert_serves()

    def test_a_waiting_client_that_goes_away_leaves_the_queue(self) -> None:
        running = self.long_chat()
        running.wait_first_piece()
        calls = []
        waiting = Streaming(lambda on_piece: self.client.generate(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "I go."}], "stream": True},
            on_sent=calls.append))
        wait_until("one runs and one waits", lambda: self.load() == 2)
        calls[0].abort()
        waiting.result()
        wait_until("the queue is empty", lambda: self.load() == 1)
        self.assertTrue(running.running())
        running.abort()
        self.assert_serves()


if __name__ == "__main__":
    main()

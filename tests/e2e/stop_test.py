"""SIGTERM to all daemons at once: they stop cleanly, whatever runs."""

import signal

from support import (CACHESVC, ENGINE, GATEWAY, ConnectionLost, DaemonTest, main)


class StopTest(DaemonTest):
    def tearDown(self) -> None:
        """Each test starts what it stopped."""

    def stop_all(self) -> dict[str, int]:
        for who in (CACHESVC, ENGINE, GATEWAY):
            self.daemons.send(who, signal.SIGTERM)
        return {who: self.daemons.wait(who) for who in (GATEWAY, ENGINE, CACHESVC)}

    def assert_clean(self, codes: dict[str, int]) -> None:
        logs = "\n".join(f"{who}:\n{self.daemons.log_tail(who)}" for who in codes)
        self.assertEqual(codes, {GATEWAY: 0, ENGINE: 0, CACHESVC: 0}, logs)
        sockets = [p.name for p in self.daemons.run_dir.iterdir() if p.is_socket()]
        self.assertEqual(sockets, [], "sockets left behind")

    def test_idle(self) -> None:
        self.assert_serves()
        self.assert_clean(self.stop_all())
        self.daemons.start()

    def test_running_answers_are_finished(self) -> None:
        alone = self.chat("A story.", max_tokens=300, ignore_eos=True)
        stream = self.long_chat("A story.", tokens=300)
        stream.wait_first_piece()
        codes = self.stop_all()
        answer = stream.result()
        self.assertEqual((answer.error, answer.complete, answer.content),
                         (None, True, alone.content))
        self.assert_clean(codes)
        self.daemons.start()

    def test_new_requests_are_refused_meanwhile(self) -> None:
        stream = self.long_chat("A story.", tokens=2000)
        stream.wait_first_piece()
        self.daemons.send(GATEWAY, signal.SIGTERM)
        try:
            late = self.chat("Another.")
            # It was still let in, or told to come again.
            self.assertIn(late.status, (200, 503))
        except ConnectionLost:
            pass
        stream.abort()
        self.assert_clean(self.stop_all())
        self.daemons.start()


if __name__ == "__main__":
    main()

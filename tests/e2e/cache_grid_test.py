"""The tiers of a grid engine: what anyone may use equals a cold run in every
digest; what a conversation decoded serves that conversation alone, and goes on
bit for bit as it would have in place."""

import signal

import cache_disk_test
from support import CACHESVC, ENGINE, Answer, DaemonTest, main, wait_until

GRID = cache_disk_test.GRID


class GridDiskTest(cache_disk_test.DiskTest):
    """All that holds of the disk, on a grid engine."""
    MODEL = "tiny-hybrid"
    FLAGS = {ENGINE: ["--debug", "--exactness=grid", *cache_disk_test.SURE_OF_TIERS],
             CACHESVC: cache_disk_test.DISK}


class GridSessionTest(DaemonTest):
    MODEL = "tiny-hybrid"
    FLAGS = {ENGINE: ["--debug", "--exactness=grid", *cache_disk_test.SURE_OF_TIERS],
             CACHESVC: cache_disk_test.FOLDER}

    ask, assert_as_cold, head, next_turn, tier = (
        cache_disk_test.DiskTest.ask, cache_disk_test.DiskTest.assert_as_cold,
        cache_disk_test.DiskTest.head, cache_disk_test.DiskTest.next_turn,
        cache_disk_test.DiskTest.tier)

    def setUp(self) -> None:
        self.daemons.restart("all", signal.SIGKILL)
        for tier in ("store", "disk", "spill"):
            self.daemons.cachectl("clear", "--tier", tier)

    def assert_as_in_place(self, answer: Answer, in_place: Answer) -> None:
        self.assertEqual(in_place.holdfast["cache_source"], "end")
        self.assertEqual(answer.cached_tokens, in_place.cached_tokens)
        self.assertEqual(answer.holdfast["output_ids"], in_place.holdfast["output_ids"])
        self.assertEqual(answer.holdfast["digests"], in_place.holdfast["digests"])
        self.assertLess(answer.holdfast["digests"]["taint"], answer.prompt_tokens)

    def assert_others_start_at_a_line(self, first: Answer) -> None:
        other = self.next_turn(first, session="b", cache="read_only")
        self.assertEqual(other.cached_tokens, 2 * GRID)
        self.assert_as_cold(other)

    def test_the_spill(self) -> None:
        first = self.ask(self.head(1), "What is in the text?", "a")
        in_place = self.next_turn(first, cache="read_only")
        self.daemons.restart("all", signal.SIGTERM)
        self.assert_others_start_at_a_line(first)
        answer = self.next_turn(first)
        self.assertEqual(answer.holdfast["cache_source"], "spill")
        self.assert_as_in_place(answer, in_place)

    def test_the_spill_after_a_kill(self) -> None:
        first = self.ask(self.head(2), "What is in the text?", "a")
        in_place = self.next_turn(first, cache="read_only")
        self.daemons.restart("all", signal.SIGTERM)
        self.daemons.restart("all", signal.SIGKILL)
        self.assert_others_start_at_a_line(first)
        answer = self.next_turn(first)
        self.assertEqual(answer.holdfast["cache_source"], "spill")
        self.assert_as_in_place(answer, in_place)

    def test_the_state_store(self) -> None:
        self.daemons.wait_attached()
        first = self.ask(self.head(3), "What is in the text?", "a")
        wait_until("turn and line are kept", lambda: self.tier("store")["entries"] == 2)
        in_place = self.next_turn(first, cache="read_only")
        self.daemons.restart(ENGINE, signal.SIGKILL)
        self.assert_others_start_at_a_line(first)
        answer = self.next_turn(first)
        self.assertEqual(answer.holdfast["cache_source"], "store")
        self.assert_as_in_place(answer, in_place)


if __name__ == "__main__":
    main()

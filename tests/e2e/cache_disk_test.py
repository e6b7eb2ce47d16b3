"""Heads of prompts on disk: written beside the answer, found after everything
was killed, equal to a cold run in every digest; and a miss, never an error,
when the disk or the cache service fails."""

import os
import signal
import unittest
from pathlib import Path

from support import (CACHESVC, ENGINE, Answer, DaemonTest, Daemons, bin_dir, main, paths,
                     wait_until)

from holdfast import scenario_checks as checks
from holdfast import textgen
from holdfast.daemons import SURE_OF_TIERS

FOLDER = ["--disk-free-gb=0", "--allow-small-free-space", "--disk-min-tokens=2048"]
DISK = [*FOLDER, "--store-gb=0"]
PARAMS = {"max_tokens": 8, "temperature": 0}
HEAD_TOKENS = 2600
GRID = 1024


class DiskTest(DaemonTest):
    FLAGS = {ENGINE: ["--debug", *SURE_OF_TIERS], CACHESVC: DISK}

    def setUp(self) -> None:
        # Nothing in any memory, nothing on disk.
        self.daemons.restart("all", signal.SIGKILL)
        self.daemons.cachectl("clear", "--tier", "disk")
        self.daemons.cachectl("clear", "--tier", "spill")

    def head(self, seed: int) -> str:
        return textgen.exact(seed, HEAD_TOKENS, self.client.tokenize, self.client.detokenize)

    def ask(self, head: str, question: str, session: str) -> Answer:
        body = {"model": self.model_id, **PARAMS,
                "messages": [{"role": "system", "content": head},
                             {"role": "user", "content": question}],
                "holdfast": {"digest": True}}
        answer = self.client.generate("/v1/chat/completions", body, {"X-Session-Id": session})
        self.assertEqual(answer.status, 200, answer.error)
        self.assertEqual(checks.conservation_problems(answer), [])
        return answer

    def next_turn(self, first: Answer, session: str = "a", **fields) -> Answer:
        """The conversation goes on, by ids: text that is tokenized again may be
        other ids than the answer's."""
        ids = [*first.holdfast["prompt_ids"], *first.holdfast["output_ids"]]
        body = {"model": self.model_id, **PARAMS, "holdfast": {"digest": True, **fields},
                "prompt": ids + ids[:300]}
        answer = self.client.generate("/v1/completions", body, {"X-Session-Id": session})
        self.assertEqual(answer.status, 200, answer.error)
        return answer

    def assert_as_cold(self, answer: Answer) -> None:
        """Logits, rows and sections, by their digests."""
        body = checks.cold_request(self.model_id, answer, PARAMS, forced=False)
        cold = self.client.generate("/v1/completions", body)
        self.assertEqual(checks.cold_problems(answer, cold), [])

    def tier(self, name: str) -> dict:
        return next(t for t in self.daemons.cache_stats()["tiers"] if t["tier"] == name)

    def store_head(self, seed: int, session: str, lines: int = 2) -> Answer:
        answer = self.ask(self.head(seed), "What is in the text?", session)
        self.assertEqual(answer.holdfast["cache_source"], "none")
        wait_until("the head's lines are on disk", lambda: self.tier("disk")["entries"] == lines)
        return answer

    def kill_all(self) -> None:
        self.daemons.restart("all", signal.SIGKILL)

    def anchors(self) -> list[Path]:
        return sorted((self.daemons.cache_dir / "anchors").glob("*.anchor"))

    def chunks(self) -> list[Path]:
        return sorted((self.daemons.cache_dir / "chunks").glob("*.chunk"))

    def test_a_new_session_finds_the_head_after_a_kill(self) -> None:
        self.store_head(1, "a")
        self.kill_all()
        answer = self.ask(self.head(1), "Another question?", "b")
        self.assertEqual(answer.holdfast["cache_source"], "disk")
        self.assertEqual(answer.cached_tokens, 2 * GRID)
        self.assert_as_cold(answer)
        self.assertEqual(self.tier("disk")["hits"], 1)
        # Its rows are the pool's from now on.
        again = self.ask(self.head(1), "A third one?", "c")
        self.assertIn(again.holdfast["cache_source"], ("resident", "end"))
        self.assert_as_cold(again)

    def test_a_line_is_written_the_second_time_it_is_read_cold(self) -> None:
        head = self.head(2)
        body = {"model": self.model_id, "prompt": head, **PARAMS}
        self.assertEqual(self.client.generate("/v1/completions", body).status, 200)
        self.assertEqual(self.tier("disk")["entries"], 0)  # no head is known
        self.kill_all()
        self.assertEqual(self.client.generate("/v1/completions", body).status, 200)
        wait_until("the line is written", lambda: self.tier("disk")["entries"] == 1)

    def test_a_damaged_file_is_a_counted_miss(self) -> None:
        self.store_head(3, "a")
        self.kill_all()
        # Both anchors need the first chunk.
        for chunk in self.chunks():
            with open(chunk, "r+b") as file:
                file.seek(-1000, os.SEEK_END)
                byte = file.read(1)
                file.seek(-1000, os.SEEK_END)
                file.write(bytes([byte[0] ^ 1]))
        answer = self.ask(self.head(3), "And now?", "b")
        self.assertEqual((answer.holdfast["cache_source"], answer.cached_tokens), ("none", 0))
        self.assertEqual(self.miss(answer), "corrupt")
        self.assert_as_cold(answer)
        self.assertGreaterEqual(self.tier("disk")["corrupt_files"], 1)

    def test_files_that_vanish_are_a_miss(self) -> None:
        self.store_head(4, "a")
        for file in self.chunks():
            file.unlink()
        self.daemons.restart(ENGINE, signal.SIGKILL)
        answer = self.ask(self.head(4), "And now?", "b")
        self.assertEqual(answer.holdfast["cache_source"], "none")
        self.assert_as_cold(answer)

    def test_a_cache_service_that_dies_under_traffic(self) -> None:
        answer = self.store_head(5, "a")
        for who in range(3):
            self.daemons.restart(ENGINE, signal.SIGKILL)
            streaming = self.long_chat(tokens=400)
            streaming.wait_first_piece()
            self.daemons.send(CACHESVC, signal.SIGKILL)
            self.daemons.wait(CACHESVC)
            self.assertTrue(streaming.result().complete)
            cold = self.ask(self.head(5), "And now?", f"b{who}")
            # Nothing but what the chat's template puts before both.
            self.assertLess(cold.cached_tokens, 256)
            self.daemons.launch(CACHESVC)
            self.daemons.wait_attached()
        self.daemons.restart(ENGINE, signal.SIGKILL)
        again = self.ask(self.head(5), "What is in the text?", "c")
        self.assertEqual(again.holdfast["cache_source"], "disk")
        self.assertEqual(again.content, answer.content)
        self.assert_as_cold(again)

    def test_a_stopped_cache_service_costs_a_deadline(self) -> None:
        self.store_head(6, "a")
        self.daemons.restart(ENGINE, signal.SIGKILL)
        self.daemons.wait_attached()
        self.daemons.send(CACHESVC, signal.SIGSTOP)
        try:
            answer = self.ask(self.head(6), "And now?", "b")
        finally:
            self.daemons.send(CACHESVC, signal.SIGCONT)
        self.assertEqual(answer.holdfast["cache_source"], "none")
        self.assertEqual(self.miss(answer), "deadline")
        self.assert_as_cold(answer)

    def test_another_salt_finds_nothing(self) -> None:
        self.store_head(7, "a")
        self.kill_all()
        body = {"model": self.model_id, **PARAMS, "cache_salt": "other",
                "messages": [{"role": "system", "content": self.head(7)},
                             {"role": "user", "content": "Hello?"}]}
        answer = self.client.generate("/v1/chat/completions", body)
        self.assertEqual(answer.holdfast["cache_source"], "none")

    def test_a_planned_stop_keeps_the_conversation(self) -> None:
        first = self.ask(self.head(8), "What is in the text?", "a")
        self.daemons.restart("all", signal.SIGTERM)
        self.assertEqual(self.tier("spill")["entries"], 1)
        answer = self.next_turn(first)
        self.assertEqual(answer.holdfast["cache_source"], "spill")
        self.assertGreater(answer.cached_tokens, first.prompt_tokens)
        self.assert_as_cold(answer)

    def test_what_was_resident_is_read_back_before_the_first_request(self) -> None:
        first = self.ask(self.head(9), "What is in the text?", "a")
        self.daemons.restart("all", signal.SIGTERM)
        # One that leaves no trace; what is read back is there before it.
        self.client.generate("/v1/completions", {
            "model": self.model_id, "prompt": "x", "max_tokens": 1,
            "holdfast": {"cache": "bypass"}})
        read = self.tier("spill")["hits"]
        self.assertGreater(read, 0)
        answer = self.next_turn(first)
        self.assertEqual(answer.holdfast["cache_source"], "spill")
        self.assertEqual(answer.holdfast["cached_by_source"], {"spill": answer.cached_tokens})
        self.assertEqual(self.tier("spill")["hits"], read, "in place: nothing is read for it")
        self.assert_as_cold(answer)
        again = self.next_turn(answer)
        self.assertEqual(again.holdfast["cache_source"], "end")
        # No planned stop: nothing is read back by itself, and lookups find it.
        self.kill_all()
        later = self.next_turn(first)
        self.assertEqual(later.holdfast["cache_source"], "spill")
        self.assertEqual(self.tier("spill")["hits"], 1)
        self.assert_as_cold(later)

    def miss(self, answer: Answer) -> str:
        return answer.holdfast.get("miss_reason", "")


class HybridDiskTest(DiskTest):
    MODEL = "tiny-hybrid"


class StoreTest(DaemonTest):
    """Snapshots in the cache service's memory: after the death of the engine."""
    MODEL = "tiny-hybrid"
    FLAGS = {ENGINE: ["--debug", *SURE_OF_TIERS], CACHESVC: FOLDER}

    ask, assert_as_cold, head, next_turn, tier = (
        DiskTest.ask, DiskTest.assert_as_cold, DiskTest.head, DiskTest.next_turn, DiskTest.tier)

    def test_a_turn_and_a_head(self) -> None:
        self.daemons.wait_attached()
        first = self.ask(self.head(20), "What is in the text?", "a")
        # The turn, and the longest line of its prompt.
        wait_until("both are kept", lambda: self.tier("store")["entries"] == 2)
        self.daemons.restart(ENGINE, signal.SIGKILL)
        turn = self.next_turn(first)
        self.assertEqual(turn.holdfast["cache_source"], "store")
        self.assertGreater(turn.cached_tokens, first.prompt_tokens)
        self.assert_as_cold(turn)
        self.daemons.restart(ENGINE, signal.SIGKILL)
        other = self.ask(self.head(20), "Another question?", "b")
        self.assertEqual((other.holdfast["cache_source"], other.cached_tokens),
                         ("store", 2 * GRID))
        self.assert_as_cold(other)
        self.daemons.cachectl("clear", "--tier", "store")
        self.assertEqual(self.tier("store")["entries"], 0)


class FolderTest(unittest.TestCase):
    """A folder that cannot be used leaves the service without it."""

    def test_wrong_mode_and_a_second_service(self) -> None:
        model = paths.resolve_model("tiny-llama", bin_dir())
        with Daemons(model.path, bin_dir=bin_dir(), flags={CACHESVC: DISK}) as first:
            with Daemons(model.path, bin_dir=bin_dir(), cache_dir=first.cache_dir,
                         flags={CACHESVC: DISK}) as second:
                detail = self.disk(second)["detail"]
                self.assertIn(f"in use by process {first.pid(CACHESVC)}", detail)
                self.assertTrue(self.disk(first)["available"])
        with Daemons(model.path, bin_dir=bin_dir(), flags={CACHESVC: DISK}) as daemons:
            os.chmod(daemons.cache_dir, 0o720)
            daemons.restart(CACHESVC, signal.SIGTERM)
            self.assertIn("must be 0700", self.disk(daemons)["detail"])
            os.chmod(daemons.cache_dir, 0o700)
            daemons.restart(CACHESVC, signal.SIGTERM)
            self.assertTrue(self.disk(daemons)["available"])

    def disk(self, daemons: Daemons) -> dict:
        return next(t for t in daemons.cache_status()["tiers"] if t["name"] == "disk")


if __name__ == "__main__":
    main()

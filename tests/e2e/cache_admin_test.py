"""The cache's statistics and clearing it over HTTP: what the tiers did is what
the requests said, and what was cleared is not served any more."""

import signal

from support import CACHESVC, ENGINE, Answer, DaemonTest, main, wait_until

from holdfast import scenario_checks as checks
from holdfast import textgen
from holdfast.daemons import SURE_OF_TIERS

# Reading always costs less than computing, whatever the machine.
FOLDER = ["--disk-free-gb=0", "--allow-small-free-space", "--disk-min-tokens=2048"]
PROMPT_TOKENS = "holdfast_prompt_tokens_total"
GRID = 1024


class CacheAdminTest(DaemonTest):
    FLAGS = {ENGINE: ["--debug", *SURE_OF_TIERS], CACHESVC: FOLDER}

    def setUp(self) -> None:
        self.daemons.restart("all", signal.SIGKILL)
        self.clear("?tier=all")

    def stats(self) -> dict:
        response = self.client.request("GET", "/v1/cache/stats")
        self.assertEqual(response.status, 200, response.body)
        return response.json()

    def clear(self, query: str = "") -> dict:
        response = self.client.request("POST", "/v1/cache/clear" + query)
        self.assertEqual(response.status, 200, response.body)
        return response.json()["cleared"]

    def tier(self, name: str) -> dict:
        tiers = self.stats()["cache_service"]["tiers"]
        return next(t for t in tiers if t["tier"] == name)

    def ask(self, seed: int, question: str, session: str) -> Answer:
        head = textgen.exact(seed, 2600, self.client.tokenize, self.client.detokenize)
        body = {"model": self.model_id, "max_tokens": 8, "temperature": 0,
                "messages": [{"role": "system", "content": head},
                             {"role": "user", "content": question}]}
        answer = self.client.generate("/v1/chat/completions", body, {"X-Session-Id": session})
        self.assertEqual(answer.status, 200, answer.error)
        self.assertEqual(checks.conservation_problems(answer), [])
        return answer

    def wait_for_files(self) -> None:
        wait_until("the head's lines are on disk", lambda: self.tier("disk")["entries"] == 2)

    def test_counters_are_what_the_answers_said(self) -> None:
        answers = [self.ask(1, "What is in the text?", "a")]
        self.wait_for_files()
        self.clear()
        answers.append(self.ask(1, "Another question?", "b"))
        answers.append(self.ask(1, "A third one?", "c"))
        answers.append(self.ask(1, "A third one?", "c"))
        by_source: dict[str, int] = {"computed": 0}
        for answer in answers:
            by_source["computed"] += answer.holdfast["computed_tokens"]
            for source, tokens in answer.holdfast["cached_by_source"].items():
                by_source[source] = by_source.get(source, 0) + tokens
        self.assertEqual(answers[1].holdfast["cache_source"], "disk")
        self.assertEqual(sum(by_source.values()), sum(a.prompt_tokens for a in answers))
        self.wait_idle()
        metrics = self.client.metrics()
        engine = self.stats()["engine"]
        self.assertEqual(engine["prompt_tokens"], by_source)
        for source, tokens in by_source.items():
            self.assertEqual(metrics.value(f'{PROMPT_TOKENS}{{source="{source}"}}'), tokens)
        self.assertEqual(metrics.value(PROMPT_TOKENS), sum(by_source.values()))
        hits = sum(by_source.values()) - by_source["computed"]
        self.assertEqual(engine["recent"], {
            "requests": 4, "queried_tokens": sum(by_source.values()), "hit_tokens": hits,
            "hit_rate": hits / sum(by_source.values())})
        self.assertEqual(engine["requests"]["finished"], {"length": 4})
        # The cache service counted the same rows.
        disk = self.tier("disk")
        self.assertEqual((disk["hits"], disk["hit_tokens"]), (1, by_source["disk"]))
        self.assertEqual(metrics.value('holdfast_cachesvc_hit_tokens_total{tier="disk"}'),
                         by_source["disk"])
        self.assertEqual(metrics.value('holdfast_tier_restored_tokens_total{tier="disk"}'),
                         by_source["disk"])
        self.assertEqual(metrics.value('holdfast_cachesvc_read_bytes_total{tier="disk"}'),
                         disk["read_bytes"])
        self.assertGreater(disk["read_bytes"], 0)
        self.assertGreater(disk["read_ms"], 0)

    def test_what_was_cleared_is_not_served(self) -> None:
        first = self.ask(2, "What is in the text?", "a")
        self.wait_for_files()
        wait_until("the store has it", lambda: self.tier("store")["entries"] > 0)
        # The pool alone: the store has the whole conversation.
        self.assertGreater(self.clear("?tier=resident")["resident"]["blocks"], 0)
        self.assertEqual(self.ask(2, "What is in the text?", "a").holdfast["cache_source"],
                         "store")
        cleared = self.clear()  # never the files
        self.assertEqual(set(cleared), {"resident", "store", "response"})
        self.assertEqual((self.tier("store")["entries"], self.tier("disk")["entries"]), (0, 2))
        again = self.ask(2, "What is in the text?", "a")
        self.assertEqual((again.holdfast["cache_source"], again.cached_tokens),
                         ("disk", 2 * GRID))
        self.assertEqual(again.content, first.content)
        self.clear("?tier=disk")
        self.assertEqual(self.tier("disk")["entries"], 0)
        self.clear()
        cold = self.ask(2, "What is in the text?", "a")
        self.assertEqual((cold.holdfast["cache_source"], cold.content), ("none", first.content))

    def test_a_daemon_that_is_down(self) -> None:
        self.daemons.end(CACHESVC, signal.SIGKILL)
        stats = self.stats()
        self.assertTrue(stats["engine"]["available"])
        self.assertFalse(stats["cache_service"]["available"])
        cleared = self.clear("?tier=all")
        self.assertTrue(cleared["resident"]["available"])
        self.assertFalse(cleared["spill"]["available"])
        self.daemons.launch(CACHESVC)
        self.daemons.wait_attached()
        self.daemons.end(ENGINE, signal.SIGKILL)
        stats = self.stats()
        self.assertFalse(stats["engine"]["available"])
        self.assertTrue(stats["cache_service"]["available"])
        self.daemons.launch(ENGINE)
        self.daemons.wait_ready()


class CostsTest(DaemonTest):
    """What was measured is there for the next engine, after a kill of all."""
    FLAGS = {ENGINE: [], CACHESVC: FOLDER}

    stats = CacheAdminTest.stats

    def planner(self) -> dict:
        return self.stats()["engine"]["planner"]

    def test_costs_outlive_the_engine(self) -> None:
        self.daemons.wait_attached()
        self.chat("word " * 600)
        first = self.planner()
        # A new install knows its drive from a measurement.
        self.assertGreater(first["read_bytes_per_s"]["disk"], 0)
        self.chat("another " * 600)  # its lookup tells what the first one took
        self.daemons.restart("all", signal.SIGTERM)
        self.chat("a third " * 600)
        again = self.planner()
        self.assertEqual(again["read_bytes_per_s"]["disk"], first["read_bytes_per_s"]["disk"])
        log = self.daemons.log_path(CACHESVC).read_text()
        self.assertEqual(log.count("drive measured"), 1)


class ResponseCacheTest(DaemonTest):
    FLAGS = {ENGINE: ["--response-cache-mb=16"]}

    stats, clear = CacheAdminTest.stats, CacheAdminTest.clear

    def source(self, question: str, **fields) -> str:
        answer = self.chat(question, **fields)
        self.assertEqual((answer.status, answer.error), (200, None))
        self.assertEqual(checks.conservation_problems(answer), [])
        return answer.holdfast["cache_source"]

    def test_the_same_question_again(self) -> None:
        first = self.chat("What is it?")
        again = self.chat("What is it?")
        self.assertEqual(again.holdfast["cache_source"], "response")
        self.assertEqual(again.cached_tokens, again.prompt_tokens)
        self.assertEqual((again.content, again.finish_reason, again.usage["completion_tokens"]),
                         (first.content, first.finish_reason, first.usage["completion_tokens"]))
        self.assertNotEqual(self.source("What is it?", cache_salt="other"), "response")
        self.assertNotEqual(self.source("What is it?", holdfast={"cache": "bypass"}), "response")
        self.assertNotEqual(self.source("What is it?", max_tokens=5), "response")
        self.assertNotEqual(self.source("What is it?", temperature=0.5, seed=1), "response")
        self.assertEqual(self.stats()["engine"]["responses"]["hits"], 1)
        self.assertGreaterEqual(self.clear("?tier=response")["response"]["entries"], 2)
        self.assertNotEqual(self.source("What is it?"), "response")
        self.wait_idle()
        metrics = self.client.metrics()
        self.assertEqual(metrics.value("holdfast_response_cache_hits_total"), 1)
        self.assertEqual(metrics.value('holdfast_prompt_tokens_total{source="response"}'),
                         again.prompt_tokens)


if __name__ == "__main__":
    main()

"""The parts of the scenario runner that need no server."""

import io
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts" / "lib"))

from holdfast import scenario_checks as checks  # noqa: E402
from holdfast import scenario_run as run  # noqa: E402
from holdfast import scenario_schema as schema  # noqa: E402
from holdfast import textgen  # noqa: E402
from holdfast import daemons  # noqa: E402
from holdfast.client import Answer, Metrics, sse_events  # noqa: E402


def scenario(*steps, **more) -> dict:
    return {"name": "n", "steps": list(steps), **more}


def chat(**more) -> dict:
    return {"op": "chat", "messages": [{"role": "user", "content": "x"}], **more}


def served(**holdfast) -> Answer:
    answer = Answer(status=200, complete=True, finish_reason="length")
    answer.usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}
    answer.holdfast = {"cache_source": "resident", "cached_by_source": {"resident": 4},
                       "computed_tokens": 6, "prompt_ids": [1, 2], "output_ids": [3],
                       "digests": {d: d * 3 for d in checks.DIGESTS}, **holdfast}
    return answer


class AttachedTest(unittest.TestCase):
    def test_both_sides_and_this_engine(self):
        link = {"pid": 7, "state": "attached"}
        self.assertTrue(daemons.are_attached({"engine": {"pid": 7}, "engine_link": link}, 7))
        for engine, linked in (
                (None, link), ({"pid": 7}, None),
                ({"pid": 6}, link),  # killed, and the service does not know yet
                ({"pid": 7}, {"pid": 7, "state": "detached"})):
            self.assertFalse(daemons.are_attached({"engine": engine, "engine_link": linked}, 7))


class SchemaTest(unittest.TestCase):
    def refused(self, body: dict, words: str) -> None:
        with self.assertRaises(schema.SchemaError) as caught:
            schema.check(body)
        self.assertIn(words, str(caught.exception))

    def test_all_ops_pass(self):
        schema.check(scenario(
            chat(id="a", session=None, salt="s", cache="bypass", stream=False, headers={"A": "b"},
                 answer={"text": "t", "reasoning": "r", "tool_calls": []},
                 expect={"status": 200, "cached_tokens": {"max": 0}, "same_as_cold": True}),
            chat(**{"continue": "a", "as_client": ["trim", "crlf"], "align": "off",
                    "expect": {"same_as": "a", "metric": {"m": {"delta": 1}}}}),
            {"op": "complete", "text": {"seed": 1, "tokens": 5}},
            {"op": "complete", "prompt": [1, 2], "expect_grid": {"cache_source": "none"}},
            {"op": "raw", "path": "/health", "method": "GET", "expect": {"json": {"a": 1}}},
            {"op": "cancel", "request": {"messages": []}, "after_tokens": 5, "reset": True},
            {"op": "cancel", "request": {"messages": []}, "at_metric": {"metric": "m", "min": 1}},
            {"op": "cancel", "request": {"messages": [], "answer": {"text": "t", "hold": True}},
             "when_held": True},
            {"op": "parallel", "steps": [[chat()], [chat()]]},
            {"op": "restart", "who": "all", "signal": "KILL"}, {"op": "idle"},
            {"op": "until", "metric": "m", "min": 1},
            why="w", server={"model": "tiny-llama", "engine": ["--debug"]}))

    def test_unknown_fields_are_named(self):
        self.refused(scenario(chat(mesages=[])), "steps[0]: unknown field mesages")
        self.refused(scenario(chat(expect={"cache": 1})), "steps[0].expect: unknown field cache")
        self.refused(scenario(steps_more=1), "scenario: unknown field steps_more")
        self.refused(scenario(server={"engin": []}), "server: unknown field engin")
        self.refused(scenario(chat(messages=[{"role": "user", "txt": 1}])),
                     "steps[0].messages[0]: unknown field txt")
        self.refused(scenario({"op": "parallel", "steps": [[chat(x=1)]]}),
                     "steps[0].steps[0][0]: unknown field x")
        self.refused(scenario({"op": "idle", "expect": {"status": 200}}), "unknown field status")
        self.refused(scenario({"op": "raw", "path": "/", "expect": {"same_as_cold": True}}),
                     "unknown field same_as_cold")

    def test_ops_without_a_server_say_so(self):
        for op in ("messages", "responses"):
            self.refused(scenario({"op": op}), f"op {op} is not built yet")
        self.refused(scenario({"op": "dance"}), "unknown op dance")

    def test_ops_on_the_disk(self):
        schema.check(scenario({"op": "clear", "tier": "store"}, {"op": "clear"},
                               {"op": "evict", "tier": "disk"},
                               {"op": "corrupt", "kind": "chunk", "region": "payload", "nth": 1},
                               {"op": "corrupt", "tier": "spill", "kind": "session",
                                "region": "footer"},
                               {"op": "fill_disk", "leave_bytes": 0}, server={"disk_mb": 64}))
        self.refused(scenario({"op": "fill_disk", "leave_bytes": 0}), "needs server.disk_mb")
        self.refused(scenario({"op": "parallel", "steps": [[{"op": "fill_disk",
                                                             "leave_bytes": 0}]]}),
                     "needs server.disk_mb")
        self.refused(scenario({"op": "fill_disk", "leave_bytes": -1}, server={"disk_mb": 64}),
                     "leave_bytes")
        self.refused(scenario(server={"disk_mb": 1}), "server.disk_mb")
        self.refused(scenario({"op": "corrupt", "tier": "disk", "kind": "session",
                               "region": "header"}), "session is none of anchor, chunk")
        self.refused(scenario({"op": "clear", "tier": "ram"}), "steps[0].tier")
        self.refused(scenario({"op": "evict", "tier": "store"}), "steps[0].tier")
        self.refused(scenario({"op": "corrupt", "kind": "chunk"}), "region")
        self.refused(scenario({"op": "corrupt", "kind": "row", "region": "header"}),
                     "steps[0].kind")

    def test_rules_of_reuse(self):
        schema.check(scenario(
            chat(id="a"), {"op": "settle"},
            chat(expect={"reused": {"end_of": "a"}, "reread": {"max": 0}},
                 expect_grid={"reused": {"line_below": "a"}}),
            chat(expect={"reused": {"common_with": "a", "short_by": 8}}),
            chat(expect={"reused": {"anchor_below": "a"}, "reread": 6, "cached_tokens": 7,
                         "computed_tokens": 8}),
            chat(expect={"reused": {"some_anchor_below": "a"}}, expect_grid={
                "reused": {"some_line_below": "a"}}),
            chat(expect={"reused": {"tokens": 5}}), params={"max_tokens": 1}))
        for rule, words in (({"end_of": "b"}, "no earlier step b"), ({}, "one of"),
                            ({"tokens": 1, "end_of": "a"}, "one of"),
                            ({"common_with": "a"}, "short_by goes with"),
                            ({"anchor_below": "b"}, "no earlier step b"),
                            ({"end_of": "a", "short_by": 1}, "short_by goes with")):
            self.refused(scenario(chat(id="a"), chat(expect={"reused": rule})), words)

    def test_wrong_values(self):
        self.refused(scenario(chat(expect={"reread": True})), "wrong type bool")
        self.refused(scenario({"op": "until", "metric": "m"}), "field min is missing")
        self.refused(scenario(chat(stream=1)), "steps[0].stream: wrong type int")
        self.refused(scenario(chat(expect={"status": True})), "wrong type bool")
        self.refused(scenario(chat(cache="off")), "off is none of")
        self.refused(scenario({"op": "chat"}), "field messages is missing")
        self.refused(scenario({"op": "complete"}), "one of prompt and text")
        self.refused(scenario({"op": "restart", "who": "you"}), "you is none of")
        self.refused(scenario({"op": "cancel", "request": {"messages": []}}), "cancel takes one of")
        self.refused(scenario({"op": "cancel", "request": {"messages": [], "answer": "t"},
                               "when_held": True}), "of text and hold")
        self.refused(scenario({"op": "cancel", "request": {"messages": []}, "reset": True,
                               "at_prefill_tokens": 1}), "reset goes with")
        self.refused(scenario({"op": "cancel", "request": {"messages": []},
                               "at_metric": {"metric": "m"}}), "field min is missing")
        self.refused(scenario(chat(**{"continue": "a"})), "no earlier step a")
        self.refused(scenario(chat(id="a"), chat(id="a")), "id a is taken")
        self.refused(scenario(chat(expect={"same_as": "later"})), "no earlier step later")
        self.refused(scenario(chat(expect={"ttft_ms": {}})), "expects nothing")
        self.refused(scenario(chat(params={"temperature": 1}, expect={"same_as_cold": True})),
                     "needs params.seed")


class ExpectationTest(unittest.TestCase):
    def test_met(self):
        expect = {"cache_source": "resident", "cached_tokens": {"min": 4, "max": 4},
                  "computed_tokens": {"max": 6}, "finish_reason": "length"}
        self.assertEqual(checks.answer_problems(served(), expect), [])
        self.assertEqual(checks.conservation_problems(served()), [])

    def test_each_unmet_expectation_is_reported(self):
        expect = {"status": 200, "cache_source": "none", "cached_tokens": {"max": 3},
                  "computed_tokens": {"min": 7}, "finish_reason": "stop",
                  "ttft_ms": {"max": 1}, "error_contains": "x"}
        self.assertEqual(len(checks.answer_problems(served(), expect)), 6)

    def test_reuse_by_rule(self):
        other = served(prompt_ids=list(range(1500)), output_ids=[7, 8, 9])
        answer = served(prompt_ids=list(range(1300)) + [0])
        self.assertEqual(checks.reused_tokens({"end_of": "x"}, answer, other), [1502])
        self.assertEqual(checks.reused_tokens({"line_below": "x"}, answer, other), [1024])
        self.assertEqual(checks.reused_tokens({"common_with": "x", "short_by": 2}, answer, other),
                         [1298, 1299, 1300])
        self.assertEqual(checks.reused_tokens({"some_line_below": "x"}, answer, other), [0, 1024])
        self.assertEqual(checks.reused_problems({"tokens": 4}, answer, None), [])
        self.assertEqual(len(checks.reused_problems({"tokens": 5}, answer, None)), 1)

    def test_the_deepest_anchor_below_a_difference(self):
        headers = checks.Headers(anchored=[[7, 1], [7, 2, 2]], plain=[[7, 1, 9]])
        served_ids = [0] * 1100
        for at, header in ((1030, [7, 1, 3]), (1050, [7, 2, 2]), (1060, [7, 1, 9]), (1070, [7, 5])):
            served_ids[at:at + 3] = header[:3]
        other = served(prompt_ids=served_ids[:1080], output_ids=served_ids[1080:])

        def reused(parts_at: int, rule: str = "anchor_below") -> list[int]:
            prompt = served_ids[:parts_at] + [99, 99]
            return checks.reused_tokens({rule: "x"}, served(prompt_ids=prompt), other, headers)
        # A line; messages, up to the one that begins right there, but neither a
        # header of the plain kind nor a part of one; the prompt's end.
        for parts_at, wanted in ((1029, 1024), (1032, 1030), (1069, 1050), (1079, 1050),
                                 (1080, 1080), (1090, 1080)):
            self.assertEqual(reused(parts_at), [wanted], parts_at)
        # In the middle of a header: what lies below it is the same.
        self.assertEqual(reused(1051), [1050])
        # Rows above any of these may have gone.
        self.assertEqual(reused(1051, "some_anchor_below"), [0, 1024, 1030, 1050])
        answer = served(prompt_ids=served_ids[:1040])
        for cached, problems in ((0, 0), (1030, 0), (1031, 1)):
            answer.usage["prompt_tokens_details"]["cached_tokens"] = cached
            self.assertEqual(len(checks.reused_problems({"some_anchor_below": "x"}, answer, other,
                                                        headers)), problems)

    def test_numbers_themselves(self):
        self.assertEqual(checks.answer_problems(served(), {"cached_tokens": 4,
                                                           "computed_tokens": 6}), [])
        self.assertEqual(checks.answer_problems(served(), {"cached_tokens": 5}),
                         ["cached_tokens 4 is not 5"])

    def test_a_stream_that_breaks_off_fails_by_itself(self):
        answer = served()
        answer.complete = False
        self.assertIn("ended before", checks.answer_problems(answer, {})[0])
        answer.error = "engine lost"
        self.assertIn("engine lost", checks.answer_problems(answer, {})[0])
        self.assertEqual(checks.answer_problems(answer, {"error_contains": "lost"}), [])

    def test_tokens_that_do_not_add_up(self):
        self.assertEqual(len(checks.conservation_problems(served(computed_tokens=5))), 1)
        self.assertEqual(len(checks.conservation_problems(
            served(cached_by_source={"resident": 3}, computed_tokens=7))), 1)

    def test_cold_comparison(self):
        cold = served(cache_source="none")
        cold.usage = {"prompt_tokens": 10}
        self.assertEqual(checks.cold_problems(served(), cold), [])
        for digest in checks.DIGESTS:
            other = served(cache_source="none")
            other.usage = {}
            other.holdfast["digests"] = {**other.holdfast["digests"], digest: "zz"}
            problems = checks.cold_problems(served(), other)
            self.assertEqual(len(problems), 1)
            self.assertIn(digest, problems[0])
        self.assertIn("at 0 of 1, 2", checks.cold_problems(served(output_ids=[4]), served(
            output_ids=[3, 3], cache_source="none"))[-1])
        self.assertIn("was not cold", checks.cold_problems(served(), served())[0])
        self.assertIn("is missing", checks.cold_problems(served(), served(digests={}))[1])

    def test_cold_request_keeps_the_sampling(self):
        params = {"temperature": 0.5, "seed": 1, "max_completion_tokens": 9, "tools": [], "stop": "x"}
        body = checks.cold_request("m", served(), params, forced=True)
        self.assertEqual(body, {
            "model": "m", "prompt": [1, 2], "stream": False, "temperature": 0.5, "seed": 1,
            "stop": "x", "max_tokens": 9,
            "holdfast": {"cache": "bypass", "digest": True, "force": {"ids": [3]}}})

    def test_same_as(self):
        self.assertEqual(checks.same_problems("a", served(), served()), [])
        other = served()
        other.content = "else"
        self.assertEqual(len(checks.same_problems("a", served(), other)), 1)
        self.assertEqual(len(checks.same_problems("a", served(), served(output_ids=[9]))), 1)
        self.assertEqual(checks.same_problems("a", served(), served(
            prompt_ids=[7], digests={})), [])

    def test_json_subset(self):
        body = {"a": {"b": [1, {"c": None}]}, "d": True}
        self.assertEqual(checks.subset_problems(body, {"a": {"b": [1, {"c": None}]}}), [])
        for wanted in ({"e": 1}, {"a": []}, {"a": {"b": [1]}}, {"d": 1}, {"a": {"b": [2, {}]}}):
            self.assertEqual(len(checks.subset_problems(body, wanted)), 1, wanted)

    def test_metrics(self):
        before = Metrics('# HELP x y\nx{a="1",b="q\\"}"} 2\nx{a="2"} 3\ny 1e3\n')
        after = Metrics('x{a="1",b="q\\"}"} 5\nx{a="2"} 3\ny 1e3 1700000000\n')
        self.assertEqual(before.value("x"), 5)
        self.assertEqual(before.value('x{b="q\\"}"}'), 2)
        self.assertEqual(after.value("y"), 1000)
        self.assertEqual(checks.metric_problems(before, after, {
            "x": {"delta": 3}, 'x{a="2"}': {"max": 0}, "y": {"min": 0}}), [])
        self.assertEqual(len(checks.metric_problems(before, after, {
            "x": {"delta": 2}, 'x{a="1"}': {"max": 2}, "y": {"min": 1}, "z": {"delta": 0}})), 4)


class ClientTest(unittest.TestCase):
    def test_events(self):
        raw = b": ping\n\ndata: {\"a\"\ndata: :1}\r\n\r\nevent: error\ndata:x\n\ndata: cut off"
        answer = Answer()
        self.assertEqual(list(sse_events(io.BytesIO(raw), answer)),
                         [("message", '{"a"\n:1}'), ("error", "x")])
        self.assertEqual(answer.comments, 1)

    def test_as_client(self):
        message = {"role": "assistant", "content": " a\nb ", "reasoning_content": "r",
                   "tool_calls": [{"function": {"name": "f", "arguments": '{"b":1,"a":2}'}}]}
        self.assertEqual(checks.as_client(message, []), message)
        self.assertNotIn("reasoning_content", checks.as_client(message, ["drop_reasoning"]))
        self.assertEqual(checks.as_client(message, ["trim", "crlf"])["content"], "a\r\nb")
        self.assertEqual(checks.as_client(message, ["extra_newline"])["content"], " a\nb \n")
        again = checks.as_client(message, ["reserialize_tools"])["tool_calls"][0]["function"]
        self.assertEqual(again["arguments"], '{\n "a": 2,\n "b": 1\n}')

    def test_only_tokens_are_promised_behind_session_rows(self):
        got, other = served(), served(digests=dict.fromkeys(checks.DIGESTS, "other"))
        self.assertEqual(len(checks.digest_problems("x", got, other)), 3)
        got.holdfast["digests"]["taint"] = 10
        self.assertEqual(len(checks.digest_problems("x", got, other)), 3)
        got.holdfast["digests"]["taint"] = 9
        self.assertEqual(checks.digest_problems("x", got, other), [])
        other.holdfast["output_ids"] = [2]
        self.assertEqual(len(checks.digest_problems("x", got, other)), 1)

    def test_expectations_on_a_grid_engine(self):
        expect = {"status": 200, "cached_tokens": {"min": 5}}
        step = chat(expect=expect, expect_grid={"cached_tokens": {"max": 0}})
        merged = {"status": 200, "cached_tokens": {"max": 0}}
        steps = schema.for_grid([step, {"op": "parallel", "steps": [[step]]}])
        self.assertEqual(steps[0]["expect"], merged)
        self.assertEqual(steps[1]["steps"][0][0]["expect"], merged)
        self.assertEqual(step["expect"], expect)

    def test_steps_that_others_are_compared_with(self):
        self.assertEqual(run._compared_ids([
            chat(id="a"), {"op": "parallel", "steps": [[chat(id="b", expect={"same_as": "a"})]]},
            chat(id="c")]), {"a"})


class TextTest(unittest.TestCase):
    # Words of at most three letters a token, so that a cut word is tokenized
    # as it was; a second tokenizer takes letters in pairs from the right, so
    # that most cuts change the tokens.
    @staticmethod
    def pairs_from_the_right(text: str) -> list[str]:
        out = []
        for word in text.split(" "):
            start = len(word) % 2
            out += ([word[:1]] if start else []) + [word[i:i + 2]
                                                    for i in range(start, len(word), 2)] + [" "]
        return out[:-1]

    def test_exact_number_of_tokens(self):
        for tokenize in (list, self.pairs_from_the_right):
            for tokens in (1, 2, 7, 100, 333):
                text = textgen.exact(5, tokens, tokenize, "".join)
                self.assertEqual(len(tokenize(text)), tokens)
                self.assertEqual(text, text.strip())
                self.assertEqual(text, textgen.exact(5, tokens, tokenize, "".join))

    def test_a_longer_text_extends_a_shorter_one(self):
        short = textgen.exact(5, 100, self.pairs_from_the_right, "".join)
        longer = textgen.exact(5, 200, self.pairs_from_the_right, "".join)
        self.assertTrue(longer.startswith(short[:120]))

    def test_seeds_differ_and_stay(self):
        self.assertNotEqual(textgen.prose(1, 50), textgen.prose(2, 50))
        self.assertEqual(textgen.prose(1, 4), textgen.prose(1, 9)[:len(textgen.prose(1, 4)) - 1] + ".")


if __name__ == "__main__":
    unittest.main()

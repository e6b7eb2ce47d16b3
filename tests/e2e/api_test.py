"""The HTTP API over real daemons: what clients rely on."""

import io
import json
import tempfile

from support import (ENGINE, GATEWAY, DaemonTest, Daemons, bin_dir, main, paths)

from holdfast import textgen
from holdfast.client import sse_events
from holdfast.daemons import DaemonError

CHAT = "/v1/chat/completions"


class DebugApiTest(DaemonTest):
    @classmethod
    def setUpClass(cls) -> None:
        answers = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
        cls.addClassCleanup(answers.close)
        answers.write(json.dumps({"pattern": "weather in \\w+", "answer": "Sunny."}) + "\n")
        answers.flush()
        cls.FLAGS = {ENGINE: ["--debug"],
                     GATEWAY: ["--sse-keep-alive-ms=2", f"--debug-answers={answers.name}"]}
        super().setUpClass()

    def test_models(self) -> None:
        listed = self.client.request("GET", "/v1/models").json()
        self.assertEqual(listed["object"], "list")
        self.assertEqual([m["id"] for m in listed["data"]], [self.model_id])
        one = self.client.request("GET", f"/v1/models/{self.model_id}")
        self.assertEqual((one.status, one.json()["id"]), (200, self.model_id))
        self.assert_api_error(self.client.request("GET", "/v1/models/other"), 404, "other")

    def test_tokenize_and_back(self) -> None:
        for text in ("", "Hello, world", "naïve café — 東京 🙂\r\n\ttabs  and   spaces 12345", "\u0301x"):
            self.assertEqual(self.client.detokenize(self.client.tokenize(text)), text)

    def test_chunks_of_a_stream(self) -> None:
        response = self.client.request("POST", CHAT, {
            "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 5,
            "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}})
        self.assertIn("text/event-stream", response.headers["content-type"])
        events = [data for _, data in sse_events(io.BytesIO(response.body))]
        self.assertEqual(events.pop(), "[DONE]")
        chunks = [json.loads(e) for e in events]
        self.assertEqual(len({c["id"] for c in chunks}), 1)
        self.assertEqual({c["object"] for c in chunks}, {"chat.completion.chunk"})
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        finishes = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
        self.assertEqual([f for f in finishes if f], ["length"])
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 5)

    def test_a_stream_says_what_a_whole_answer_says(self) -> None:
        for fields in ({}, {"temperature": 0.8, "seed": 3, "top_k": 30}):
            stream = self.chat("Tell me.", max_tokens=60, ignore_eos=True, **fields)
            whole = self.chat("Tell me.", max_tokens=60, ignore_eos=True, stream=False,
                              stream_options=None, **fields)
            self.assertEqual(stream.content, whole.content)
            self.assertEqual(stream.holdfast["output_ids"], whole.holdfast["output_ids"])
            self.assertEqual(len(whole.holdfast["output_ids"]), 60)
            self.assertEqual(stream.usage["completion_tokens"], whole.usage["completion_tokens"])

    def test_ways_to_say_the_same(self) -> None:
        plain = self.client.generate(CHAT, {"messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\nthere"}],
            "max_tokens": 4, "temperature": 0})
        other = self.client.generate(CHAT, {"messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"},
                                         {"type": "text", "text": "there"}]}],
            "max_completion_tokens": 4, "temperature": 0, "user": "u", "metadata": {}})
        self.assertEqual(plain.holdfast["prompt_ids"], other.holdfast["prompt_ids"])
        self.assertEqual(plain.content, other.content)

    def test_logprobs(self) -> None:
        body = self.client.request("POST", CHAT, {
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0,
            "ignore_eos": True, "logprobs": True, "top_logprobs": 3}).json()
        entries = body["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(entries), 6)
        for entry in entries:
            top = [t["logprob"] for t in entry["top_logprobs"]]
            self.assertEqual(top, sorted(top, reverse=True))
            self.assertEqual(entry["logprob"], top[0])  # greedy takes the best
            self.assertLessEqual(top[0], 0)

    def test_stop_strings(self) -> None:
        answer = self.chat("Count.", stop=["two"], max_tokens=50,
                           holdfast={"force": "one two three"})
        self.assertEqual((answer.content, answer.finish_reason), ("one ", "stop"))

    def test_debug_answers(self) -> None:
        self.assertEqual(self.chat("What is the weather in Rome?").content, "Sunny.")
        self.assertNotEqual(self.chat("What is the time?").content, "Sunny.")

    def test_keep_alive_comments_during_a_prefill(self) -> None:
        text = textgen.exact(1, 7000, self.client.tokenize, self.client.detokenize)
        answer = self.chat(text)
        self.assertEqual((answer.status, answer.error), (200, None))
        self.assertGreater(answer.comments, 0)

    def test_metrics_conserve_the_prompt(self) -> None:
        self.wait_idle()
        before = self.client.metrics()
        first = self.chat("Conserve these tokens.")
        second = self.chat("Conserve these tokens.")
        self.assertGreater(second.cached_tokens, 0)
        self.wait_idle()
        after = self.client.metrics()

        def moved(name: str) -> float:
            return after.value(name) - before.value(name)

        self.assertEqual(moved("holdfast_prompt_tokens_total"),
                         first.prompt_tokens + second.prompt_tokens)
        self.assertEqual(moved('holdfast_prompt_tokens_total{source="computed"}'),
                         first.holdfast["computed_tokens"] + second.holdfast["computed_tokens"])


class PlainApiTest(DaemonTest):
    FLAGS = {GATEWAY: ["--api-key=secret", "--api-key=other"]}
    API_KEY = "secret"

    def test_keys(self) -> None:
        anyone = type(self.client)(self.daemons.url)
        self.assertEqual(anyone.request("GET", "/health").status, 200)
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        self.assert_api_error(anyone.request("POST", CHAT, body), 401)
        wrong = {"Authorization": "Bearer secre"}
        self.assert_api_error(anyone.request("POST", CHAT, body, wrong), 401)
        for headers in ({"Authorization": "Bearer other"}, {"x-api-key": "secret"}):
            self.assertEqual(anyone.request("POST", CHAT, body, headers).status, 200)

    def test_debug_fields_are_refused_and_absent(self) -> None:
        answer = self.chat("Hi")
        self.assertEqual(answer.status, 200)
        self.assertEqual({"prompt_ids", "output_ids", "digests"} & set(answer.holdfast), set())
        for extra in ({"digest": True}, {"force": "Yes."}):
            refused = self.client.request("POST", CHAT, {
                "messages": [{"role": "user", "content": "Hi"}], "holdfast": extra})
            self.assert_api_error(refused, 400, next(iter(extra)))

    def test_debug_answers_need_a_debug_engine(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as answers:
            model = paths.resolve_model(self.MODEL, bin_dir())
            daemons = Daemons(model.path, bin_dir=bin_dir(),
                              flags={GATEWAY: [f"--debug-answers={answers.name}"]})
            self.addCleanup(daemons.close)
            with self.assertRaisesRegex(DaemonError, "holdfast-gateway ended by itself.*exit 78"):
                daemons.start()


if __name__ == "__main__":
    main()

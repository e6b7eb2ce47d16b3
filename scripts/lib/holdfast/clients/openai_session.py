"""Run by the Python that has the openai package: `openai_session.py BASE_URL
MODEL REREAD`, REREAD being the tokens that a next turn may compute. Uses the
package as a program would and prints, as one JSON object, what each check found
wrong. Its answers are forced by the rules of answers.py."""

import asyncio
import json
import sys
import traceback

import openai

TIMEOUT_S = 60
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a town.",
    "parameters": {"type": "object", "required": ["town", "days"], "properties": {
        "town": {"type": "string"}, "days": {"type": "integer"}}}}}
LONG = "Remember this list: " + " ".join(f"item-{i}" for i in range(400)) + "."


class Checks:
    def __init__(self, base_url: str, model: str, next_turn_tokens: int):
        self._url, self._model = base_url, model
        self._next_turn_tokens = next_turn_tokens
        self._client = openai.OpenAI(base_url=base_url, api_key="none", timeout=TIMEOUT_S,
                                     max_retries=0)
        self.problems: list[str] = []

    def expect(self, what: str, got, wanted) -> None:
        if got != wanted:
            self.problems.append(f"{what}: {got!r}, not {wanted!r}")

    def expect_true(self, what: str, holds: bool) -> None:
        if not holds:
            self.problems.append(what)

    def _chat(self, messages: list, **fields):
        return self._client.chat.completions.create(
            model=self._model, messages=messages, temperature=0, **fields)

    def models(self) -> None:
        self.expect("models", [m.id for m in self._client.models.list()], [self._model])

    def whole_answer(self) -> None:
        messages = [{"role": "system", "content": LONG},
                    {"role": "user", "content": "openai plain"}]
        first = self._chat(messages)
        message = first.choices[0].message
        self.expect("content", message.content, "A plain answer.")
        self.expect("reasoning_content", message.reasoning_content, "It is plain.")
        self.expect("finish_reason", first.choices[0].finish_reason, "stop")
        self.expect("cached tokens, first", first.usage.prompt_tokens_details.cached_tokens, 0)
        usage = first.usage
        self.expect("total tokens", usage.total_tokens,
                    usage.prompt_tokens + usage.completion_tokens)
        details = usage.completion_tokens_details
        self.expect_true(f"reasoning tokens {details.reasoning_tokens} of {usage.completion_tokens}",
                         0 < details.reasoning_tokens < usage.completion_tokens)
        again = self._chat(messages)
        self.expect("cached tokens, again", again.usage.prompt_tokens_details.cached_tokens,
                    again.usage.prompt_tokens)

    def stream(self) -> None:
        chunks = list(self._chat([{"role": "user", "content": "openai plain"}], stream=True,
                                 stream_options={"include_usage": True}))
        deltas = [c.choices[0].delta for c in chunks if c.choices]
        self.expect("role", deltas[0].role, "assistant")
        reasoning = [getattr(d, "reasoning_content", None) or "" for d in deltas]
        content = [d.content or "" for d in deltas]
        self.expect("streamed reasoning", "".join(reasoning), "It is plain.")
        self.expect("streamed content", "".join(content), "A plain answer.")
        last_reasoning = max(i for i, text in enumerate(reasoning) if text)
        first_content = min(i for i, text in enumerate(content) if text)
        self.expect_true("reasoning comes before content", last_reasoning < first_content)
        self.expect("finish_reason", [c.choices[0].finish_reason for c in chunks if c.choices][-1],
                    "stop")
        self.expect_true("usage is in the last chunk alone",
                         chunks[-1].usage is not None and not any(c.usage for c in chunks[:-1]))
        self.expect("ids of one stream", len({c.id for c in chunks}), 1)

    def tool_loop(self) -> None:
        """A streamed call, run here, and the answer to its result."""
        messages = [{"role": "user", "content": "openai tools"}]
        calls: dict[int, dict] = {}
        finish = None
        for chunk in self._chat(messages, tools=[WEATHER], stream=True):
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                for delta in choice.delta.tool_calls or []:
                    call = calls.setdefault(delta.index, {"id": "", "name": "", "arguments": "",
                                                          "deltas": 0})
                    call["id"] += delta.id or ""
                    call["name"] += delta.function.name or ""
                    call["arguments"] += delta.function.arguments or ""
                    call["deltas"] += 1
        self.expect("finish_reason", finish, "tool_calls")
        self.expect("calls", [(c["name"], json.loads(c["arguments"])) for c in calls.values()],
                    [("weather", {"town": "Bergen", "days": 2}),
                     ("weather", {"town": "Narvik", "days": 1})])
        self.expect_true("ids differ", len({c["id"] for c in calls.values()}) == len(calls) > 1)
        self.expect_true("arguments come in pieces", all(c["deltas"] > 1 for c in calls.values()))
        messages.append({"role": "assistant", "content": None, "tool_calls": [
            {"id": c["id"], "type": "function",
             "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls.values()]})
        for call in calls.values():
            town = json.loads(call["arguments"])["town"]
            messages.append({"role": "tool", "tool_call_id": call["id"],
                             "content": f"rain in {town}"})
        answer = self._chat(messages, tools=[WEATHER])
        self.expect("answer to the results", answer.choices[0].message.content, "Rain everywhere.")

    def whole_tool_calls(self) -> None:
        answer = self._chat([{"role": "user", "content": "openai tools"}], tools=[WEATHER])
        calls = answer.choices[0].message.tool_calls
        self.expect("calls", [(c.type, c.function.name) for c in calls],
                    [("function", "weather")] * 2)
        self.expect("finish_reason", answer.choices[0].finish_reason, "tool_calls")

    def stream_helper(self) -> None:
        """The package's own accumulator."""
        with self._client.chat.completions.stream(
                model=self._model, temperature=0,
                messages=[{"role": "user", "content": "openai plain"}]) as events:
            for _ in events:
                pass
            final = events.get_final_completion()
        self.expect("accumulated", final.choices[0].message.content, "A plain answer.")

    def next_turn(self) -> None:
        """The second turn of a conversation reads its last message only."""
        messages = [{"role": "system", "content": LONG},
                    {"role": "user", "content": "openai plain"}]
        first = self._chat(messages)
        messages += [{"role": "assistant", "content": first.choices[0].message.content},
                     {"role": "user", "content": "openai plain once more"}]
        usage = self._chat(messages).usage
        cached = usage.prompt_tokens_details.cached_tokens
        self.expect_true(f"next turn: {cached} of {usage.prompt_tokens} tokens cached",
                         usage.prompt_tokens - cached <= self._next_turn_tokens)

    def closed_stream(self) -> None:
        """A program that stops reading an answer that has not ended, of which
        it has all there is; the server goes on with others."""
        stream = self._chat([{"role": "user", "content": "openai held"}], stream=True)
        text = ""
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if text == "It goes on and on.":
                break
        self.expect("streamed before the end", text, "It goes on and on.")
        stream.close()
        self.expect("after a closed stream",
                    self._chat([{"role": "user", "content": "openai plain"}])
                    .choices[0].message.content, "A plain answer.")

    def completion(self) -> None:
        answer = self._client.completions.create(model=self._model, prompt="Once upon",
                                                 max_tokens=5, temperature=0,
                                                 extra_body={"ignore_eos": True})
        self.expect("completion tokens", answer.usage.completion_tokens, 5)
        self.expect("finish_reason", answer.choices[0].finish_reason, "length")

    def errors(self) -> None:
        def raised(kind, words: str, code, call) -> None:
            try:
                call()
            except kind as e:
                body = e.body if isinstance(e.body, dict) else {}
                self.expect_true(f"{kind.__name__} lacks {words!r}: {e}", words in str(e))
                if code:
                    self.expect("code", body.get("code"), code)
            except openai.OpenAIError as e:
                self.problems.append(f"{type(e).__name__} in the place of {kind.__name__}: {e}")
            else:
                self.problems.append(f"no {kind.__name__} came")

        hello = [{"role": "user", "content": "Hello"}]
        raised(openai.NotFoundError, "other-model", "model_not_found",
               lambda: self._client.chat.completions.create(model="other-model", messages=hello))
        raised(openai.BadRequestError, "n", None, lambda: self._chat(hello, n=2))
        raised(openai.BadRequestError, "context", "context_length_exceeded",
               lambda: self._chat([{"role": "user", "content": "word " * 70000}]))
        raised(openai.BadRequestError, "messages", None, lambda: self._chat([]))
        other = openai.OpenAI(base_url=self._url + "/absent", api_key="none", max_retries=0)
        raised(openai.NotFoundError, "", None, lambda: other.models.list())

    def four_at_once(self) -> None:
        async def all_of_them() -> list:
            client = openai.AsyncOpenAI(base_url=self._url, api_key="none", timeout=TIMEOUT_S)
            async with client:
                return await asyncio.gather(*(
                    client.chat.completions.create(
                        model=self._model, temperature=0,
                        messages=[{"role": "user", "content": f"openai plain {i}"}])
                    for i in range(4)))
        answers = asyncio.run(all_of_them())
        self.expect("four at once", {a.choices[0].message.content for a in answers},
                    {"A plain answer."})


CHECKS = ("models", "whole_answer", "stream", "tool_loop", "whole_tool_calls", "stream_helper",
          "next_turn", "closed_stream", "completion", "errors", "four_at_once")


def main() -> int:
    checks = Checks(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    found = {}
    for name in CHECKS:
        checks.problems = []
        try:
            getattr(checks, name)()
        except Exception:
            checks.problems.append(traceback.format_exc(limit=3))
        found[name] = checks.problems
    print(json.dumps({"version": openai.__version__, "checks": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

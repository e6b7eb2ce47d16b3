"""Reasoning and tool calls over real daemons: a client's whole tool loop. The
models are generated; their templates write as the Qwen families do."""

import json
import re
import shutil
import tempfile
from pathlib import Path

from support import Answer, DaemonTest, bin_dir, main, paths

TEMPLATES = paths.ROOT / "gateway" / "template" / "testing" / "qwen_templates.h"
TOOLS = [{"type": "function", "function": {
    "name": "write", "description": "Writes a file.", "parameters": {
        "type": "object", "properties": {
            "path": {"type": "string"}, "text": {"type": "string"},
            "mode": {"type": "integer"}, "options": {"type": "object"}}}}},
    {"type": "function", "function": {"name": "list"}}]
WRITE = {"name": "write", "arguments": {
    "path": "a b.txt", "text": "if (a < b) {\n  \"é\" \\ </p>\n}\n", "mode": 420,
    "options": {"sync": [True, None]}}}
LIST = {"name": "list", "arguments": {}}


def template(name: str) -> str:
    source = TEMPLATES.read_text()
    return re.search(rf'{name}\[\] = R"j2\((.*?)\)j2"', source, re.DOTALL).group(1)


class ToolLoop:
    """The tests of both syntaxes; a DaemonTest besides."""
    TEMPLATE: str

    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-tools-"))
        cls.addClassCleanup(shutil.rmtree, folder)
        model = folder / "model"
        shutil.copytree(paths.generate("tiny-llama-hf", bin_dir()), model)
        config = json.loads((model / "tokenizer_config.json").read_text())
        config["chat_template"] = template(cls.TEMPLATE)
        (model / "tokenizer_config.json").write_text(json.dumps(config))
        cls.MODEL = str(model)
        super().setUpClass()

    def ask(self, messages: list, force, **fields) -> Answer:
        body = {"messages": messages, "tools": TOOLS, "stream": True, "temperature": 0,
                "max_tokens": 400, "stream_options": {"include_usage": True},
                "holdfast": {"force": force}, **fields}
        answer = self.client.generate("/v1/chat/completions", body)
        self.assertEqual((answer.status, answer.error, answer.complete), (200, None, True))
        return answer

    def called(self, answer: Answer) -> list:
        return [{"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])}
                for c in answer.tool_calls]

    def test_a_tool_loop_resumes_where_the_answer_ended(self) -> None:
        messages = [{"role": "user", "content": "Write the file, please."}]
        earlier = None
        turns = [{"reasoning": "First I look.", "tool_calls": [LIST]},
                 {"reasoning": "Now I write.", "text": "Writing:", "tool_calls": [WRITE, LIST]},
                 {"reasoning": "Done.", "text": "It is written."}]
        ids = set()
        for turn in turns:
            answer = self.ask(messages, turn)
            self.assertEqual(answer.reasoning, turn["reasoning"])
            self.assertEqual(answer.content, turn.get("text", ""))
            self.assertEqual(self.called(answer), turn.get("tool_calls", []))
            self.assertEqual(answer.finish_reason,
                             "tool_calls" if "tool_calls" in turn else "stop")
            self.assertGreater(
                answer.usage["completion_tokens_details"]["reasoning_tokens"], 0)
            if earlier:
                # The prompt goes on from what the model wrote, token for token.
                before = earlier.holdfast["prompt_ids"] + earlier.holdfast["output_ids"]
                self.assertEqual(answer.holdfast["prompt_ids"][:len(before)], before)
                self.assertGreaterEqual(answer.cached_tokens, len(before) - 1)
            whole = self.ask(messages, turn, stream=False, stream_options=None)
            self.assertEqual((whole.reasoning, whole.content, self.called(whole)),
                             (answer.reasoning, answer.content, self.called(answer)))
            self.assertEqual(whole.finish_reason, answer.finish_reason)
            message = answer.message()
            messages.append(message)
            for call in message.get("tool_calls", []):
                ids.add(call["id"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
            earlier = answer
        self.assertEqual(len(ids), 3)
        # The user goes on: earlier reasoning is not shown any more.
        messages.append({"role": "user", "content": "Thanks."})
        self.assertEqual(self.ask(messages, {"text": "You are welcome."}).content,
                         "You are welcome.")

    def test_cut_calls_go_on_in_the_next_turn(self) -> None:
        messages = [{"role": "user", "content": "Write."}]
        whole = self.ask(messages, {"tool_calls": [WRITE]})
        cut = self.ask(messages, {"tool_calls": [WRITE]},
                       max_tokens=len(whole.holdfast["output_ids"]) // 2)
        self.assertEqual(cut.finish_reason, "length")
        self.assertEqual(len(cut.tool_calls), 1)
        self.assertRaises(ValueError, self.called, cut)
        messages += [cut.message(), {"role": "tool", "content": "invalid arguments",
                                     "tool_call_id": cut.tool_calls[0]["id"]}]
        self.assertEqual(self.called(self.ask(messages, {"tool_calls": [LIST]})), [LIST])

    def test_one_call_only(self) -> None:
        answer = self.ask([{"role": "user", "content": "List twice."}],
                          {"tool_calls": [LIST, LIST]}, parallel_tool_calls=False)
        self.assertEqual((self.called(answer), answer.finish_reason), ([LIST], "tool_calls"))

    def test_calls_that_are_not_asked_for_are_text(self) -> None:
        for fields in ({"tools": None}, {"tool_choice": "none"}):
            answer = self.ask([{"role": "user", "content": "List."}], {"tool_calls": [LIST]},
                              **fields)
            self.assertEqual((answer.tool_calls, answer.finish_reason), ([], "stop"))
            self.assertIn("<tool_call>", answer.content)

    def test_whatever_the_model_says_is_passed_on(self) -> None:
        messages = [{"role": "user", "content": "Say something."}]
        for seed in range(4):
            fields = {"temperature": 1.5, "seed": seed, "max_tokens": 80, "ignore_eos": True,
                      "tools": TOOLS, "messages": messages}
            stream = self.client.generate("/v1/chat/completions", {**fields, "stream": True})
            self.assertEqual((stream.status, stream.error, stream.complete), (200, None, True))
            whole = self.client.generate("/v1/chat/completions", fields)
            self.assertEqual((stream.reasoning, stream.content),
                             (whole.reasoning, whole.content))


class JsonToolsTest(ToolLoop, DaemonTest):
    TEMPLATE = "kJsonCalls"


class XmlToolsTest(ToolLoop, DaemonTest):
    TEMPLATE = "kXmlCalls"

    def test_thinking_off(self) -> None:
        messages = [{"role": "user", "content": "Say yes."}]
        for fields in ({"enable_thinking": False}, {"reasoning_effort": "none"},
                       {"chat_template_kwargs": {"enable_thinking": False}}):
            answer = self.ask(messages, "Yes.", **fields)
            self.assertEqual((answer.reasoning, answer.content), ("", "Yes."))


if __name__ == "__main__":
    main()

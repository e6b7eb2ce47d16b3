"""Which conversation a request belongs to, over HTTP: the keys that clients
send, none at all, the same one under another salt, and requests beside a
conversation that carry its key."""

import threading
import unittest
from typing import Optional

from support import Answer, DaemonTest, ENGINE, main

def forwarded(answer: Answer) -> list[int]:
    """All but the last token of the answer, which is sampled and never read."""
    return (answer.holdfast["prompt_ids"] + answer.holdfast["output_ids"])[:-1]


class SessionKeysTest(DaemonTest):
    MODEL = "tiny-hybrid"
    FLAGS = {ENGINE: ["--debug", "--parallel=4"]}
    ANY_TOKEN = True  # rows of one session serve another, to the token

    def head(self) -> list[dict]:
        """A conversation that no other test shares a head with."""
        name = self.id().rpartition(".")[2]
        return [{"role": "system", "content": f"{name}: " + "all of it is as it was. " * 150},
                {"role": "user", "content": "Where is the parser?"}]

    def ask(self, messages: list[dict], force, headers: Optional[dict] = None,
            on_piece=None, cache: str = "default", **fields) -> Answer:
        answer = self.client.generate("/v1/chat/completions", {
            "model": self.model_id, "messages": messages, "stream": True, "temperature": 0,
            "stream_options": {"include_usage": True}, "max_tokens": 3000,
            "chat_template_kwargs": {"enable_thinking": True},
            "holdfast": {"force": force, "cache": cache},
            **fields},
            headers or {}, on_piece=on_piece)
        self.assertEqual((answer.status, answer.error, answer.complete), (200, None, True))
        return answer

    def first(self, headers: Optional[dict] = None, reasoning: str = "I look for it.",
              head: Optional[list[dict]] = None, **fields) -> Answer:
        return self.ask(head or self.head(), {"reasoning": reasoning, "text": "One moment."},
                        headers, **fields)

    def next(self, headers: Optional[dict] = None, head: Optional[list[dict]] = None,
             **fields) -> Answer:
        """The next step, of a client that keeps no reasoning."""
        return self.ask([*(head or self.head()), {"role": "assistant", "content": "One moment."},
                         {"role": "tool", "content": "It is in the source folder."}],
                        {"reasoning": "There.", "text": "In src."}, headers, **fields)

    def assert_goes_on_from(self, first: Answer, then: Answer) -> None:
        """The record was found: its reasoning is back, and nothing is read again."""
        self.assertEqual((then.holdfast["aligned"], then.holdfast["cache_source"]),
                         (["reasoning"], "end"))
        self.assertEqual(then.holdfast["prompt_ids"][:len(forwarded(first))], forwarded(first))
        self.assertEqual(then.cached_tokens, len(forwarded(first)))

    def assert_is_another_session(self, first: Answer, then: Answer) -> None:
        """Served as it was sent: no record of that key has such an answer."""
        self.assertEqual(then.holdfast["aligned"], [])
        ids = forwarded(first)
        self.assertNotEqual(then.holdfast["prompt_ids"][:len(ids)], ids)

    # Keys that clients send.

    def test_every_key_names_a_session(self) -> None:
        for name, headers, fields, others in (
                ("explicit", {"X-Session-Id": "k1"}, {}, [({"X-Session-Id": "k1b"}, {})]),
                ("body", {}, {"session_id": "k2"}, [({}, {"session_id": "k2b"}), ({}, {})]),
                ("opencode", {"x-session-affinity": "ses_k3"}, {},
                 [({"x-session-affinity": "ses_k3b"}, {})]),
                ("claude code", {"x-claude-code-session-id": "k4"}, {},
                 [({"x-claude-code-session-id": "k4", "x-claude-code-agent-id": "agent"}, {})]),
                ("codex", {"session-id": "k5", "thread-id": "k5"}, {},
                 [({"session-id": "k5", "thread-id": "k5b"}, {})]),
                ("open webui", {"x-openwebui-chat-id": "k6"}, {},
                 [({"x-openwebui-chat-id": "k6b"}, {})]),
                ("cache key", {}, {"prompt_cache_key": "k7"}, [({}, {"prompt_cache_key": "k7b"})]),
                ("cache key, camel case", {}, {"promptCacheKey": "k8"},
                 [({}, {"promptCacheKey": "k8b"})])):
            with self.subTest(name):
                head = self.head()
                head[0]["content"] = f"{name}: {head[0]['content']}"
                first = self.first(headers, head=head, **fields)
                for other, other_fields in others:
                    self.assert_is_another_session(
                        first, self.next(other, head=head, cache="read_only", **other_fields))
                self.assert_goes_on_from(first, self.next(headers, head=head, **fields))

    def test_an_explicit_key_goes_before_a_clients_header(self) -> None:
        opencode = {"x-session-affinity": "ses_other"}
        first = self.first({"X-Session-Id": "mine", **opencode})
        self.assert_is_another_session(first, self.next(opencode, cache="read_only"))
        self.assert_goes_on_from(first, self.next({"X-Session-Id": "mine"}))

    # Salts.

    def test_the_same_key_of_another_salt_is_another_session(self) -> None:
        key = {"X-Session-Id": "shared"}
        one = self.first(key, reasoning="The first tenant's thought.", cache_salt="one")
        two = self.first(key, reasoning="Quite another thought, of the second tenant.",
                         cache_salt="two")
        self.assertEqual((two.cached_tokens, two.holdfast["cache_source"]), (0, "none"))
        three = self.next(key, cache_salt="three")
        self.assertEqual((three.cached_tokens, three.holdfast["aligned"]), (0, []))
        self.assert_goes_on_from(one, self.next(key, cache_salt="one"))
        self.assert_goes_on_from(two, self.next(key, cache_salt="two"))

    # No key.

    def test_without_a_key_a_conversation_is_found(self) -> None:
        first = self.first()
        self.assert_goes_on_from(first, self.next())

    def test_conversations_without_a_key_that_begin_alike_are_told_apart(self) -> None:
        other = self.head()
        other[0]["content"] = "Another folder. " + other[0]["content"]
        one = self.first(reasoning="Here, perhaps.")
        two = self.first(reasoning="There, rather.", head=other)
        self.assert_goes_on_from(one, self.next())
        self.assert_goes_on_from(two, self.next(head=other))

    def test_a_conversation_whose_key_is_lost_is_found_by_its_tokens(self) -> None:
        first = self.first({"X-Session-Id": "had-one"})
        ids = forwarded(first)
        then = self.ask([*self.head(), first.message(),
                         {"role": "tool", "content": "It is in the source folder."}],
                        {"text": "In src."})
        self.assertEqual(then.holdfast["prompt_ids"][:len(ids)], ids)
        if self.ANY_TOKEN:
            self.assertEqual((then.cached_tokens, then.holdfast["cache_source"]),
                             (len(ids), "end"))
        else:  # lines alone: the end of an answer is its own session's
            self.assertEqual(then.cached_tokens, len(first.holdfast["prompt_ids"]) // 1024 * 1024)

    # Beside a conversation, with its key.

    def test_a_title_request_at_the_same_time_disturbs_nothing(self) -> None:
        keys = {"x-session-affinity": "ses_title", "X-Session-Id": "ses_title"}
        titles: list[Answer] = []
        started = threading.Event()

        def title() -> None:
            titles.append(self.ask(
                [{"role": "system", "content": "You write titles."},
                 {"role": "user", "content": "Where is the parser?"}], "The parser", keys))

        def on_piece(*_) -> None:
            if not started.is_set():
                started.set()
                beside.start()

        # Once ahead of the first answer's end, once with the prefill.
        beside = threading.Thread(target=title)
        first = self.ask(self.head(), {"reasoning": "I look for it. " * 60, "text": "One moment."},
                         keys, on_piece=on_piece)
        beside.join()
        beside = threading.Thread(target=title)
        beside.start()
        then = self.next(keys)
        beside.join()
        self.assertEqual([t.content for t in titles], ["The parser"] * 2)
        self.assertEqual(first.content, "One moment.")
        self.assert_goes_on_from(first, then)
        last = self.ask(
            [*self.head(), {"role": "assistant", "content": "One moment."},
             {"role": "tool", "content": "It is in the source folder."},
             {"role": "assistant", "content": "In src."}, {"role": "tool", "content": "Yes."}],
            {"text": "So it is."}, keys)
        self.assert_goes_on_from(then, last)


class GridSessionKeysTest(SessionKeysTest):
    FLAGS = {ENGINE: ["--debug", "--parallel=4", "--exactness=grid"]}
    ANY_TOKEN = False


if __name__ == "__main__":
    main()

"""Whatever comes over HTTP gets a clear error, crashes nothing, and does not
hold up other requests: a stream runs through all of it."""

import json
import socket

from support import ANSWERED, DaemonTest, main, raw_exchange

CHAT = "/v1/chat/completions"
OK_MESSAGES = [{"role": "user", "content": "x"}]

# (fields of a chat request, the words that its error must hold)
WRONG_FIELDS = [
    ({"messages": None}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": ["x"]}, "messages[0]"),
    ({"messages": [{"content": "x"}]}, "role"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user", "content": 7}]}, "content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
     "content"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"max_tokens": -2}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 7}, "top_p"),
    ({"seed": "s"}, "seed"),
    ({"stop": 7}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"logprobs": 3}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stream": "yes"}, "stream"),
    ({"n": 2}, "n"),
    ({"allowed_token_ids": [1]}, "allowed_token_ids"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"tool_choice": "required", "tools": []}, "tool_choice"),
    ({"tools": 7}, "tools"),
    ({"cache_salt": 7}, "cache_salt"),
    ({"session_id": 7}, "session_id"),
    ({"holdfast": {"cache": "maybe"}}, "holdfast.cache"),
    ({"holdfast": {"force": {"ids": [4000000000]}}}, "holdfast.force"),
    ({"holdfast": 7}, "holdfast"),
]

WRONG_PROMPTS = [
    ({"prompt": None}, "prompt"),
    ({}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [1, -2]}, "prompt"),
    ({"prompt": [1, 4000000000]}, "prompt"),
    ({"prompt": [1, "x"]}, "prompt"),
    ({"prompt": {"a": 1}}, "prompt"),
]

WRONG_BODIES = [
    (b"", "JSON"),
    (b"{", "JSON"),
    (b"[]", "object"),
    (b"7", "object"),
    (b'{"messages": [}', "JSON"),
    (b'{"a": 1} trailing', "JSON"),
    (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', "UTF-8"),
    (b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}', "UTF-8"),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', ""),
    (b"[" * 100000, ""),
    (b'{"a":' * 5000 + b"1" + b"}" * 5000, ""),
    (b"\x00" * 100, ""),
]

NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,  # TLS
    b"hello\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n{}",
    b"GET /health HTTP/1.1\r\nHost: x\r\nBroken header\r\n\r\n",
    b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"v" * 100) for i in range(5000)),
    b"GET /health HTTP/1.1\r\nX: " + b"v" * 1000000,
]


class BadInputTest(DaemonTest):
    def setUp(self) -> None:
        self.stream = self.long_chat()
        self.stream.wait_first_piece()

    def tearDown(self) -> None:
        self.stream.abort()
        self.wait_idle()
        self.assert_serves()
        super().tearDown()

    def refused(self, path: str, body: dict, words: str) -> None:
        with self.subTest(body=json.dumps(body)[:100]):
            self.assert_api_error(self.client.request("POST", path, body), 400, words)

    def test_wrong_fields_are_named(self) -> None:
        for fields, words in WRONG_FIELDS:
            self.refused(CHAT, {"messages": OK_MESSAGES, "max_tokens": 1, **fields}, words)
        for fields, words in WRONG_PROMPTS:
            self.refused("/v1/completions", {"max_tokens": 1, **fields}, words)
        for path in ("/tokenize", "/detokenize"):
            for body in ({}, {"content": 7, "tokens": 7}, {"tokens": [-1], "content": None}):
                self.refused(path, body, "")
        # Nothing of it stopped the stream; it is refused, not queued.
        self.assertTrue(self.stream.running())

    def test_bodies_that_are_no_request(self) -> None:
        for body, words in WRONG_BODIES:
            with self.subTest(body=body[:60]):
                self.assert_api_error(self.client.request("POST", CHAT, body), 400, words)

    def test_unknown_model_path_and_method(self) -> None:
        self.assert_api_error(self.client.request(
            "POST", CHAT, {"model": "gpt-17", "messages": OK_MESSAGES}), 404, "gpt-17")
        self.assert_api_error(self.client.request("GET", "/v1/nothing"), 404, "/v1/nothing")
        self.assert_api_error(self.client.request("DELETE", CHAT), 405, "DELETE")

    def test_a_huge_body_is_refused_before_it_is_read(self) -> None:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 40}\r\n\r\n".encode()
        what, got = raw_exchange(self.daemons.url, head + b"x" * 1000)
        self.assertEqual(what, ANSWERED)
        self.assertIn(b" 413 ", got.split(b"\r\n")[0] + b" ")
        # Chunked: the length is not known before.
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        what, got = raw_exchange(self.daemons.url, b"POST " + CHAT.encode() + (
            b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n") + chunk * 100)
        if what == ANSWERED:
            self.assertIn(b" 413 ", got.split(b"\r\n")[0] + b" ")

    def test_what_is_not_http(self) -> None:
        for data in NOT_HTTP:
            with self.subTest(data=data[:60]):
                what, got = raw_exchange(self.daemons.url, data)
                if what == ANSWERED:
                    self.assertRegex(got, rb"^HTTP/1\.[01] (4\d\d|505) ")
                else:
                    self.assertEqual(what, "closed")

    def test_slow_clients_hold_up_nobody(self) -> None:
        host, port = self.daemons.url.removeprefix("http://").split(":")
        slow = []
        try:
            for i in range(60):
                connection = socket.create_connection((host, int(port)), timeout=10)
                slow.append(connection)
                head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n"
                half = (head, head + "Content-Length: 1000\r\n\r\n{", "")[i % 3]
                connection.sendall(half.encode())
            response = self.client.request("GET", "/health", timeout_s=10)
            self.assertEqual(response.status, 200)
            self.stream.abort()
            self.assert_serves()
        finally:
            for connection in slow:
                connection.close()

    def test_clients_that_do_not_read(self) -> None:
        """A stream that nobody reads must not stop the next one."""
        self.stream.abort()
        body = json.dumps({"messages": OK_MESSAGES, "stream": True, "max_tokens": 2000,
                           "ignore_eos": True, "logprobs": True, "top_logprobs": 20}).encode()
        host, port = self.daemons.url.removeprefix("http://").split(":")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(10)
            connection.connect((host, int(port)))
            connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
                CHAT.encode(), len(body), body))
            self.assertEqual(self.client.request("GET", "/health", timeout_s=10).status, 200)
        self.wait_idle()


if __name__ == "__main__":
    main()

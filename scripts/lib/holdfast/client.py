"""A small client of the HTTP API: plain requests, and generations streamed
as server-sent events with the times at which things came."""

import http.client
import json
import socket
import struct
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Callable, Optional


class ConnectionLost(Exception):
    """No whole HTTP response came: nobody listens, or the peer went away."""


@dataclass
class Response:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """One generation as the client saw it."""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    role: str = ""
    content: str = ""
    reasoning: str = ""
    tool_calls: list[dict] = field(default_factory=list)
    finish_reason: Optional[str] = None
    usage: dict = field(default_factory=dict)
    holdfast: dict = field(default_factory=dict)
    error: Optional[str] = None  # from the body, or from an error event
    complete: bool = False  # the whole body came; of a stream, [DONE] too
    cancelled: bool = False  # we closed the connection
    pieces: int = 0  # deltas that carried something
    comments: int = 0  # keep-alive lines
    ttft_ms: Optional[float] = None
    total_ms: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        return self.usage.get("prompt_tokens", 0)

    @property
    def cached_tokens(self) -> int:
        return (self.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)

    def message(self) -> dict:
        """As a client keeps it in its history."""
        out: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            out["reasoning_content"] = self.reasoning
        if self.tool_calls:
            out["tool_calls"] = self.tool_calls
        return out


class Call:
    """A request in flight; abort() may be called from another thread."""

    def __init__(self, connection: http.client.HTTPConnection):
        self._connection = connection
        self._socket: Optional[socket.socket] = None
        self.aborted = False

    def opened(self) -> None:
        self._socket = self._connection.sock

    def reset(self) -> None:
        """As a peer whose machine dropped the connection: the other side gets an
        RST. From a hook of generate(), which ends there."""
        self.aborted = True
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise ConnectionResetError

    def abort(self) -> None:
        self.aborted = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has just ended by itself


class Client:
    """Thread-safe: every request has a connection of its own."""

    def __init__(self, url: str, api_key: Optional[str] = None, timeout_s: float = 300):
        self.url = url
        self.api_key = api_key
        self.timeout_s = timeout_s  # of any single wait for bytes

    def request(self, method: str, path: str, body: Any = None,
                headers: Optional[dict] = None, timeout_s: Optional[float] = None) -> Response:
        connection, _ = self._send(method, path, body, headers, timeout_s)
        try:
            response = connection.getresponse()
            return Response(response.status, _lower(response), response.read())
        except (OSError, http.client.HTTPException) as e:
            raise ConnectionLost(f"{method} {path}: {e!r}") from e
        finally:
            connection.close()

    def generate(self, path: str, body: dict, headers: Optional[dict] = None,
                 on_piece: Optional[Callable[[Answer, Call], None]] = None,
                 on_sent: Optional[Callable[[Call], None]] = None) -> Answer:
        """Runs a chat or a completion. `on_sent` gets the call once the
        request is out, `on_piece` after every piece of the answer."""
        answer = Answer()
        start = time.monotonic()
        connection, call = self._send("POST", path, body, headers, None)
        try:
            if on_sent:
                on_sent(call)
            response = connection.getresponse()
            answer.status = response.status
            answer.headers = _lower(response)
            if "text/event-stream" in answer.headers.get("content-type", ""):
                self._read_events(response, answer, call, start, on_piece)
            else:
                self._read_body(response, answer, start)
            response.close()
        except (OSError, http.client.HTTPException) as e:
            if not call.aborted:
                raise ConnectionLost(f"POST {path}: {e!r}") from e
        finally:
            connection.close()
        answer.cancelled = call.aborted
        answer.total_ms = (time.monotonic() - start) * 1e3
        return answer

    def tokenize(self, text: str) -> list[int]:
        response = self.request("POST", "/tokenize", {"content": text, "add_special": False})
        if response.status != 200:
            raise ConnectionLost(f"/tokenize: {response.status} {response.body[:300]!r}")
        return response.json()["tokens"]

    def detokenize(self, ids: list[int]) -> str:
        response = self.request("POST", "/detokenize", {"tokens": ids})
        if response.status != 200:
            raise ConnectionLost(f"/detokenize: {response.status} {response.body[:300]!r}")
        return response.json()["content"]

    def model_id(self) -> str:
        response = self.request("GET", "/v1/models")
        if response.status != 200:
            raise ConnectionLost(f"/v1/models: {response.status} {response.body[:300]!r}")
        return response.json()["data"][0]["id"]

    def metrics(self) -> "Metrics":
        response = self.request("GET", "/metrics")
        if response.status != 200:
            raise ConnectionLost(f"/metrics: {response.status} {response.body[:300]!r}")
        return Metrics(response.body.decode())

    def _send(self, method: str, path: str, body: Any, headers: Optional[dict],
              timeout_s: Optional[float]) -> tuple[http.client.HTTPConnection, Call]:
        target = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(target.hostname, target.port or 80,
                                                timeout=timeout_s or self.timeout_s)
        call = Call(connection)
        out = {"Connection": "close"}
        if self.api_key:
            out["Authorization"] = f"Bearer {self.api_key}"
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body, ensure_ascii=False)
            out["Content-Type"] = "application/json"
        if isinstance(body, str):
            body = body.encode()
        out.update(headers or {})
        try:
            connection.connect()
            call.opened()
            connection.request(method, path, body=body, headers=out)
        except OSError as e:
            connection.close()
            raise ConnectionLost(f"{method} {path}: {e!r}") from e
        return connection, call

    @staticmethod
    def _read_body(response, answer: Answer, start: float) -> None:
        raw = response.read()
        answer.ttft_ms = (time.monotonic() - start) * 1e3
        answer.complete = True
        try:
            body = json.loads(raw)
        except ValueError:
            answer.error = raw[:300].decode(errors="replace")
            return
        absorb(answer, body)

    @staticmethod
    def _read_events(response, answer: Answer, call: Call, start: float, on_piece) -> None:
        for event, data in sse_events(response, answer):
            if data == "[DONE]":
                answer.complete = True
                continue
            before = answer.pieces
            chunk = json.loads(data)
            if event == "error" and "error" not in chunk:
                chunk = {"error": chunk}
            absorb(answer, chunk)
            if answer.pieces > before:
                if answer.ttft_ms is None:
                    answer.ttft_ms = (time.monotonic() - start) * 1e3
                if on_piece:
                    on_piece(answer, call)


def sse_events(lines, answer: Optional[Answer] = None):
    """(event name, data) of every event that ended with its empty line."""
    event, data = "message", []
    while True:
        line = lines.readline()
        if not line:
            return
        line = line.decode().rstrip("\r\n")
        if not line:
            if data:
                yield event, "\n".join(data)
            event, data = "message", []
        elif line.startswith(":"):
            if answer is not None:
                answer.comments += 1
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            event = line[6:].strip()


def absorb(answer: Answer, body: dict) -> None:
    """Adds one streamed chunk, or a whole body, to the answer."""
    if "error" in body:
        error = body["error"]
        answer.error = error.get("message", str(error)) if isinstance(error, dict) else str(error)
        return
    if body.get("usage"):
        answer.usage = body["usage"]
    if body.get("holdfast"):
        answer.holdfast.update(body["holdfast"])
    for choice in body.get("choices") or []:
        part = choice.get("delta") or choice.get("message") or {}
        text = choice.get("text") or part.get("content") or ""
        reasoning = part.get("reasoning_content") or ""
        calls = part.get("tool_calls") or []
        answer.role = part.get("role") or answer.role
        answer.content += text
        answer.reasoning += reasoning
        for call in calls:
            _absorb_tool_call(answer, call)
        if text or reasoning or calls:
            answer.pieces += 1
        if choice.get("finish_reason"):
            answer.finish_reason = choice["finish_reason"]


def _absorb_tool_call(answer: Answer, delta: dict) -> None:
    index = delta.get("index", len(answer.tool_calls))
    while len(answer.tool_calls) <= index:
        answer.tool_calls.append({"id": "", "type": "function",
                                  "function": {"name": "", "arguments": ""}})
    call = answer.tool_calls[index]
    call["id"] = delta.get("id") or call["id"]
    function = delta.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def _lower(response) -> dict[str, str]:
    return {k.lower(): v for k, v in response.getheaders()}


class Metrics:
    """A scrape of the Prometheus text format."""

    def __init__(self, text: str):
        self.series: list[tuple[str, dict[str, str], float]] = []
        for line in text.splitlines():
            if line and not line.startswith("#"):
                self.series.append(_parse_series(line))

    def names(self) -> set[str]:
        return {name for name, _, _ in self.series}

    def value(self, selector: str) -> float:
        """The sum of the series that `name` or `name{label="value",...}`
        selects; 0 when there is none."""
        name, wanted, _ = _parse_series(selector + " 0")
        return sum(value for n, labels, value in self.series
                   if n == name and wanted.items() <= labels.items())


def _parse_series(line: str) -> tuple[str, dict[str, str], float]:
    labels: dict[str, str] = {}
    brace = line.find("{")
    if brace < 0:
        name, _, rest = line.partition(" ")
        return name, labels, float(rest.split()[0])
    name, at = line[:brace], brace + 1
    while line[at] != "}":
        equals = line.index("=", at)
        key = line[at:equals].strip()
        value, at = "", equals + 2
        while line[at] != '"':
            if line[at] == "\\":
                at += 1
                value += {"n": "\n"}.get(line[at], line[at])
            else:
                value += line[at]
            at += 1
        labels[key] = value
        at += 1
        if line[at] == ",":
            at += 1
    return name, labels, float(line[at + 1:].split()[0])

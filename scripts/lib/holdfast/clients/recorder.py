"""A proxy on loopback between a client program and the gateway. It changes no
byte; it keeps what was asked and answered, and can hold a request back."""

import http.client
import io
import json
import select
import socket
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Callable, Optional

from ..client import Answer, absorb, sse_events

MAX_HEAD_BYTES = 64 << 10
IDLE_DEADLINE_S = 120  # without a byte from either side
CONNECT_DEADLINE_S = 5
POLL_S = 0.2


@dataclass
class Exchange:
    """One request and its answer, as they went over the wire."""
    number: int
    path: str
    headers: dict[str, str]  # names in lower case
    body: dict
    started_s: float
    answer: Answer = field(default_factory=Answer)
    chunks: list[dict] = field(default_factory=list)  # of a streamed answer
    client_gone: bool = False  # it closed before the answer's end

    @property
    def prompt_ids(self) -> list[int]:
        return self.answer.holdfast.get("prompt_ids") or []

    @property
    def output_ids(self) -> list[int]:
        return self.answer.holdfast.get("output_ids") or []


class Recorder:
    """Serves from construction to close(). `target` gives the gateway's URL,
    which may be another after a restart; while none answers, clients get 503.
    Methods may be called from any thread."""

    def __init__(self, target: Callable[[], str]):
        self._target = target
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []
        self._before: Optional[Callable[[Exchange], None]] = None
        self._on_bytes: Optional[Callable[[Exchange, bytes], None]] = None
        self._in_flight = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(POLL_S)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def exchanges(self) -> list[Exchange]:
        with self._lock:
            return list(self._exchanges)

    def hook(self, before: Optional[Callable[[Exchange], None]] = None,
             on_bytes: Optional[Callable[[Exchange, bytes], None]] = None) -> None:
        """`before` runs ahead of every request that follows, which waits for
        it; `on_bytes`, with all bytes of the answer so far, after each piece of
        it was passed on."""
        with self._lock:
            self._before, self._on_bytes = before, on_bytes

    def wait_idle(self, deadline_s: float = 30) -> None:
        end = time.monotonic() + deadline_s
        while True:
            with self._lock:
                if self._in_flight == 0:
                    return
            if time.monotonic() > end:
                raise TimeoutError(f"a client's request did not end within {deadline_s:.0f} s")
            time.sleep(0.01)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._in_flight += 1
        try:
            with client:
                self._exchange(client)
        except (OSError, ValueError):
            pass  # the client went away, or sent what is no request
        finally:
            with self._lock:
                self._in_flight -= 1

    def _exchange(self, client: socket.socket) -> None:
        client.settimeout(IDLE_DEADLINE_S)
        head, rest = _read_head(client)
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        headers = {k.strip().lower(): v.strip()
                   for k, _, v in (line.partition(":") for line in lines[1:] if line)}
        body = _read_body(client, headers, rest)
        exchange = Exchange(0, path, headers, _json(body), time.monotonic())
        if method == "POST":
            with self._lock:
                exchange.number = len(self._exchanges) + 1
                self._exchanges.append(exchange)
        with self._lock:
            before = self._before
        if before:
            before(exchange)
        server = self._connect(client)
        if server is None:
            exchange.answer.status = 503
            return
        with server:
            # One request a connection: the end of the answer is its end.
            kept = [line for line in lines[1:]
                    if line and not line.lower().startswith(("connection:", "content-length:",
                                                             "transfer-encoding:"))]
            out = "\r\n".join([lines[0], *kept, "Connection: close",
                               f"Content-Length: {len(body)}", "", ""])
            server.sendall(out.encode("latin-1") + body)
            got = self._relay(client, server, exchange)
        _read_answer(exchange, got)

    def _connect(self, client: socket.socket) -> Optional[socket.socket]:
        target = urllib.parse.urlsplit(self._target())
        try:
            return socket.create_connection((target.hostname, target.port), CONNECT_DEADLINE_S)
        except OSError:
            text = b'{"error":{"message":"the gateway does not answer","type":"server_error"}}'
            client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                           b"Content-Type: application/json\r\nConnection: close\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(text) + text)
            return None

    def _relay(self, client: socket.socket, server: socket.socket, exchange: Exchange) -> bytes:
        """Until the answer ends, or the client goes; a client that goes takes
        its connection to the gateway with it."""
        got = bytearray()
        while True:
            ready, _, _ = select.select([client, server], [], [], IDLE_DEADLINE_S)
            if not ready:
                raise TimeoutError("nothing came")
            if client in ready and not _more(client):
                exchange.client_gone = True
                exchange.answer.cancelled = True
                break
            if server in ready:
                piece = server.recv(65536)
                if not piece:
                    break
                got += piece
                client.sendall(piece)
                with self._lock:
                    on_bytes = self._on_bytes
                if on_bytes:
                    on_bytes(exchange, bytes(got))
        return bytes(got)


def answer_so_far(got: bytes) -> Answer:
    """What a client has of an answer when these bytes of it came."""
    exchange = Exchange(0, "", {}, {}, 0)
    _read_answer(exchange, got)
    return exchange.answer


def _more(client: socket.socket) -> bool:
    """False: it closed its end, or tore it down."""
    try:
        return bool(client.recv(65536))
    except OSError:
        return False


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece or len(data) > MAX_HEAD_BYTES:
            raise ValueError("no head of a request")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _read_body(client: socket.socket, headers: dict[str, str], rest: bytes) -> bytes:
    if "chunked" in headers.get("transfer-encoding", ""):
        file = io.BufferedReader(_Joined(rest, client))
        body = b""
        while size := int(file.readline().split(b";")[0], 16):
            body += file.read(size)
            file.readline()
        return body
    wanted = int(headers.get("content-length", "0"))
    body = bytearray(rest)
    while len(body) < wanted:
        piece = client.recv(65536)
        if not piece:
            raise ValueError("the body ended early")
        body += piece
    return bytes(body)


class _Joined(io.RawIOBase):
    """What was read already, then the socket."""

    def __init__(self, rest: bytes, source: socket.socket):
        self._rest, self._source = rest, source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        piece = self._rest[:len(buffer)] or self._source.recv(len(buffer))
        self._rest = self._rest[len(piece):]
        buffer[:len(piece)] = piece
        return len(piece)


class _Bytes:
    """The answer's bytes in the form that http.client reads."""

    def __init__(self, data: bytes):
        self._data = data

    def makefile(self, *_):
        return io.BufferedReader(io.BytesIO(self._data))


def _read_answer(exchange: Exchange, got: bytes) -> None:
    answer = exchange.answer
    response = http.client.HTTPResponse(_Bytes(got))
    try:
        response.begin()
        answer.status = response.status
        answer.headers = {k.lower(): v for k, v in response.getheaders()}
        if "text/event-stream" not in answer.headers.get("content-type", ""):
            body = _json(response.read())
            answer.complete = True
            absorb(answer, body)
            return
        for event, data in sse_events(response, answer):
            if data == "[DONE]":
                answer.complete = True
                continue
            chunk = json.loads(data)
            if event == "error" and "error" not in chunk:
                chunk = {"error": chunk}
            exchange.chunks.append(chunk)
            absorb(answer, chunk)
    except (http.client.HTTPException, OSError, ValueError):
        pass  # cut off: what came before it counts


def _json(data: bytes) -> dict:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

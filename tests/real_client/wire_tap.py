"""A TCP relay in front of the server that remembers every byte the client sent.

It shows what really went over the wire (signatures, number of attempts) without touching the
package. It parses only what the SDK produces: requests with Content-Length or without a body.
"""

import dataclasses
import socket
import threading


@dataclasses.dataclass(frozen=True)
class SentRequest:
    method: str
    target: str
    headers: dict
    body: bytes
    raw: bytes


class WireTap:
    def __init__(self, port):
        self._upstream = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._streams = []
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()

    def requests(self, prefix="/"):
        """All requests so far whose target starts with `prefix`, connection by connection."""
        with self._lock:
            streams = [bytes(stream) for stream in self._streams]
        return [
            request
            for stream in streams
            for request in parse(stream)
            if request.target.startswith(prefix)
        ]

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            seen = bytearray()
            with self._lock:
                self._streams.append(seen)
            threading.Thread(target=self._pump, args=(client, server, seen), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, None), daemon=True).start()

    def _pump(self, source, sink, seen):
        try:
            while chunk := source.recv(65536):
                if seen is not None:
                    with self._lock:
                        seen.extend(chunk)
                sink.sendall(chunk)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def parse(stream):
    """Cuts a recorded client stream into requests; an unfinished tail is left out."""
    requests = []
    while b"\r\n\r\n" in stream:
        head, rest = stream.split(b"\r\n\r\n", 1)
        request_line, *header_lines = head.decode("latin-1").split("\r\n")
        method, target, _ = request_line.split(" ")
        headers = {
            name.lower(): value
            for name, value in (line.split(": ", 1) for line in header_lines)
        }
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            break
        raw = stream[: len(head) + 4 + length]
        requests.append(SentRequest(method, target, headers, rest[:length], raw))
        stream = rest[length:]
    return requests


def replay(port, raw):
    """Sends recorded bytes once more and returns the status and text of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(raw)
        answer = b""
        while not _complete(answer):
            chunk = connection.recv(65536)
            if not chunk:
                break
            answer += chunk
    return int(answer.split(b" ", 2)[1]), answer.decode("utf-8")


def _complete(answer):
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        return False
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return len(body) >= int(value)
    return False

"""A thin client of the mesh daemon on this machine. It needs the standard library alone, Python 3.9 or later.

    from consign_mesh import MeshDaemon

    daemon = MeshDaemon(mesh="team")
    sent = daemon.send("bob", "hello", meta={"trace": 7})
    for event in daemon.events():
        print(event["event"], event["data"])

The daemon encrypts, stores and repeats messages. After an error that leaves open whether a message was accepted, send it
again with the same `client_message_id`: it is accepted once.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import socket
import urllib.parse
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional

__all__ = [
    "ApiError",
    "MeshDaemon",
    "NotCanonical",
    "NotRunning",
    "canonical_meta",
    "request_fingerprint",
]

__version__ = "0.9.0"

SAFE_INTEGER_MAX = 2**53 - 1
JSON_TYPE = "application/json"


class NotRunning(Exception):
    """No daemon of the mesh can be reached."""


class ApiError(Exception):
    """The daemon refused a request. `status` and the members of `body` say why."""

    def __init__(self, status: int, body: Mapping[str, Any]):
        self.status = status
        self.body = dict(body)
        words = [str(body.get("error", "unknown"))]
        words += [str(body[key]) for key in ("conflict", "capability", "reason") if body.get(key)]
        super().__init__(f"{': '.join(words)} (status {status})")


class NotCanonical(ValueError):
    """Readers disagree about a value, so it cannot be `meta`."""


class MeshDaemon:
    """The daemon of one mesh, found by its files: `sock`, or `http.port` and `local_token`."""

    def __init__(
        self,
        mesh: Optional[str] = None,
        *,
        directory: "os.PathLike[str] | str | None" = None,
        transport: str = "auto",
        timeout: float = 30.0,
    ):
        if transport not in ("auto", "unix", "tcp"):
            raise ValueError("transport is auto, unix or tcp")
        self.directory = Path(directory) if directory is not None else find_directory(mesh)
        self.transport = transport
        self.timeout = timeout
        self.topic = Topics(self)

    def send(
        self,
        to: str,
        message: str,
        *,
        priority: Optional[str] = None,
        meta: Optional[Mapping[str, Any]] = None,
        reply_to_id: Optional[str] = None,
        client_message_id: Optional[str] = None,
    ) -> dict:
        """Sends a message to a key, a name, `#topic`, `@group`, `queue:NAME` or `*`."""
        body = {"to": to, "message": message}
        return self._send("/v1/send", body, priority, meta, reply_to_id, client_message_id)

    def publish(
        self,
        goal: str,
        payload: Any,
        *,
        client_message_id: Optional[str] = None,
        **options: Any,
    ) -> dict:
        """Publishes an intent at its server, through the outbox.

        `options` are those of the Intent Protocol: `namespace`, `visibility`, `priority`, `delay`, `max_attempts`,
        `backoff_base`, `target_worker` and `required_capability`.
        """
        body = {"goal": goal, "payload": payload, **options}
        if client_message_id is not None:
            body["client_message_id"] = client_message_id
        return self._call("POST", "/v1/intents", _json(body))

    def inbox(
        self,
        *,
        since: Optional[str] = None,
        topic: Optional[str] = None,
        sender: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> list:
        """Received messages, newest first."""
        query = {"since": since, "topic": topic, "from": sender, "limit": limit}
        return self._get("/v1/inbox", query)["items"]

    def peers(self) -> list:
        """The members of the mesh that are connected."""
        return self._get("/v1/peers")["peers"]

    def health(self) -> dict:
        return self._get("/v1/health")

    def version(self) -> dict:
        return self._get("/v1/version")

    def events(self, *, timeout: Optional[float] = None) -> Iterator[dict]:
        """Events as they happen: `id`, `event` and `data`. Ends when the daemon closes the stream.

        The stream is open when this returns. The daemon sends a comment every 15 seconds, so a timeout
        above that means that the connection is lost.
        """
        connection, response = self._open("GET", "/v1/events", None, timeout)
        if response.status != 200:
            _read(connection, response)
        return _events(connection, response)

    def _send(
        self,
        path: str,
        body: dict,
        priority: Optional[str],
        meta: Optional[Mapping[str, Any]],
        reply_to_id: Optional[str],
        client_message_id: Optional[str],
    ) -> dict:
        if priority is not None:
            body["priority"] = priority
        if reply_to_id is not None:
            body["reply_to_id"] = reply_to_id
        if client_message_id is not None:
            body["client_message_id"] = client_message_id
        canonical = canonical_meta(meta)
        text = json.dumps(body)
        if canonical:
            # The canonical text itself travels, so that nothing is written in another way.
            text = f'{text[:-1]}, "meta": {canonical}}}'
        return self._call("POST", path, text.encode())

    def _get(self, path: str, query: Optional[Mapping[str, Any]] = None) -> dict:
        pairs = {key: value for key, value in (query or {}).items() if value is not None}
        if pairs:
            path = f"{path}?{urllib.parse.urlencode(pairs)}"
        return self._call("GET", path, None)

    def _call(self, method: str, path: str, body: Optional[bytes]) -> dict:
        connection, response = self._open(method, path, body, self.timeout)
        return _read(connection, response)

    def _open(self, method: str, path: str, body: Optional[bytes], timeout: Optional[float]):
        headers = {"Host": "localhost"}
        if body is not None:
            headers["Content-Type"] = JSON_TYPE
        connection = self._connection(headers, timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NotRunning(f"no daemon is running in {self.directory}: {error}") from error
        try:
            connection.request(method, path, body=body, headers=headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _connection(self, headers: dict, timeout: Optional[float]) -> http.client.HTTPConnection:
        sock = self.directory / "sock"
        may_use_unix = self.transport != "tcp" and hasattr(socket, "AF_UNIX")
        if may_use_unix and (self.transport == "unix" or sock.exists()):
            return _UnixConnection(sock, timeout)
        try:
            port = int((self.directory / "http.port").read_text())
            token = (self.directory / "local_token").read_text().strip()
        except (OSError, ValueError) as error:
            raise NotRunning(f"no daemon is running in {self.directory}: {error}") from error
        headers["Authorization"] = f"Bearer {token}"
        return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


class Topics:
    """What concerns topics."""

    def __init__(self, daemon: MeshDaemon):
        self._daemon = daemon

    def post(
        self,
        topic: str,
        message: str,
        *,
        mentions: Optional[list] = None,
        priority: Optional[str] = None,
        meta: Optional[Mapping[str, Any]] = None,
        reply_to_id: Optional[str] = None,
        client_message_id: Optional[str] = None,
    ) -> dict:
        body: dict = {"topic": topic, "message": message}
        if mentions:
            body["mentions"] = list(mentions)
        return self._daemon._send(
            "/v1/topic/post", body, priority, meta, reply_to_id, client_message_id
        )

    def subscribe(self, topic: str) -> dict:
        return self._daemon._call("POST", "/v1/topic/subscribe", _json({"topic": topic}))

    def unsubscribe(self, topic: str) -> dict:
        return self._daemon._call("POST", "/v1/topic/unsubscribe", _json({"topic": topic}))

    def list(self) -> list:
        return self._daemon._get("/v1/topic/list")["topics"]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: Optional[float]):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def find_directory(mesh: Optional[str]) -> Path:
    """The directory of a mesh's daemon. Without a name, the only mesh of `config.json`."""
    named = os.environ.get("CLAUDEMESH_DAEMON_DIR")
    if named:
        return Path(named)
    home = Path(os.environ.get("HOME") or Path.home())
    if mesh is None:
        config = os.environ.get("CLAUDEMESH_CONFIG_DIR") or home / ".claudemesh"
        try:
            meshes = json.loads((Path(config) / "config.json").read_text())["meshes"]
        except (OSError, ValueError, KeyError) as error:
            raise NotRunning(f"no mesh is joined: {error}") from error
        if len(meshes) != 1:
            raise ValueError("several meshes are joined, or none: name one")
        mesh = meshes[0]["slug"]
    return home / ".claudemesh" / "daemon" / str(mesh)


def canonical_meta(meta: Optional[Mapping[str, Any]]) -> str:
    """The canonical JSON (RFC 8785) of `meta`; empty for none and for an empty object."""
    if meta is None:
        return ""
    if not isinstance(meta, Mapping):
        raise NotCanonical("meta must be an object")
    return _canonical(meta) if meta else ""


def request_fingerprint(
    *,
    kind: str,
    ref: str,
    body: bytes,
    priority: str = "next",
    meta: Optional[Mapping[str, Any]] = None,
    reply_to_id: Optional[str] = None,
    envelope_version: int = 1,
) -> str:
    """What the daemon compares requests with one id by, as hex. A conflict shows its first 16 digits."""
    parts = [
        str(envelope_version),
        kind,
        ref,
        reply_to_id or "",
        priority,
        canonical_meta(meta),
        hashlib.sha256(body).hexdigest(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _canonical(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        if abs(value) > SAFE_INTEGER_MAX:
            raise NotCanonical(f"{value} is beyond 2^53-1")
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise NotCanonical("keys must be strings")
        # Checked before they are sorted: a lone surrogate has no UTF-16 form.
        written = {key: _string(key) for key in value}
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{written[key]}:{_canonical(value[key])}" for key in keys) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_canonical(item) for item in value) + "]"
    raise NotCanonical(f"{type(value).__name__} has no JSON form")


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotCanonical("a string has a lone surrogate") from error
    # This escapes quotes, backslashes and controls below U+0020, in the forms of the standard.
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    """A double as ECMAScript prints it."""
    if not math.isfinite(value):
        raise NotCanonical("a number is not finite")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS * 10^point.
    point = len(whole) + int(exponent or "0")
    if whole == "0":
        point = int(exponent or "0") - (len(fraction) - len(fraction.lstrip("0")))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        text = digits + "0" * (point - count)
        if abs(value) > SAFE_INTEGER_MAX:
            raise NotCanonical(f"{text} is beyond 2^53-1")
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        power = point - 1
        text = digits[0] + ("." + digits[1:] if count > 1 else "")
        text += f"e{'+' if power > 0 else '-'}{abs(power)}"
    return sign + text


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> dict:
    try:
        text = response.read()
    finally:
        connection.close()
    try:
        body = json.loads(text) if text else {}
    except ValueError:
        body = {}
    if response.status >= 400:
        raise ApiError(response.status, body)
    return body


def _events(
    connection: http.client.HTTPConnection, response: http.client.HTTPResponse
) -> Iterator[dict]:
    event: dict = {}
    lines: list = []
    try:
        for raw in response:
            line = raw.decode().rstrip("\r\n")
            if line:
                name, _, value = line.partition(":")
                value = value[1:] if value.startswith(" ") else value
                if name == "data":
                    lines.append(value)
                elif name in ("id", "event"):
                    event[name] = value
                continue
            if lines:
                event["data"] = json.loads("\n".join(lines))
                yield event
            event, lines = {}, []
    finally:
        connection.close()

"""What a scenario holds in its hands: a fresh server, real SDK clients, workers, CLI and curl.

Never calls anything in the package that a user could not call; the only subclass adds a way to
leave WorkerRuntime.listen(), which otherwise ends on Ctrl-C alone.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from intent_bus import IntentClient, WorkerRuntime

from server import ADMIN_SECRET, BUS_SECRET

HERE = pathlib.Path(__file__).resolve().parent

Reply = collections.namedtuple("Reply", "status headers body")


class Bus:
    def __init__(self, server):
        self.server = server
        self.clients = []
        self.main = self.client()

    def client(self, key=BUS_SECRET, base_url=None):
        """A client of its own; `key` defaults to the main key, which no rate limit touches."""
        client = IntentClient(base_url=base_url or self.server.url, api_key=key)
        self.clients.append(client)
        return client

    def tester_key(self, owner="tester"):
        reply = self.admin("POST", "/admin/generate_key", {"owner": owner})
        assert reply.status == 201, reply
        return reply.body["api_key"]

    def tester(self, owner="tester"):
        return self.client(self.tester_key(owner))

    def admin(self, method, path, body=None):
        """The SDK has no admin calls, so these go out as plain HTTP."""
        reply = self.http(method, path, {"X-Admin-Token": ADMIN_SECRET}, body)
        return reply._replace(body=json.loads(reply.body))

    def http(self, method, path, headers, body=None):
        data = None if body is None else json.dumps(body).encode()
        if method == "POST" and data is None:
            data = b""
        request = urllib.request.Request(
            self.server.url + path,
            method=method,
            data=data,
            headers={"Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return Reply(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.headers, error.read())

    def worker(self, goal, handler, client=None, **options):
        return RunningWorker(client or self.client(), goal, handler, **options)

    def cli(self, *arguments, key=BUS_SECRET, home=None):
        """Runs `intent-bus` to its end; without a key it must find one in the home directory."""
        return subprocess.run(
            self.cli_command(*arguments),
            env=self.cli_environment(key, home),
            capture_output=True,
            encoding="utf-8",
            timeout=30,
        )

    def cli_command(self, *arguments):
        return [sys.executable, str(HERE / "cli_launcher.py"), *arguments]

    def cli_environment(self, key=BUS_SECRET, home=None):
        environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment.update(
            HOME=str(home or self.server.directory.name),
            PYTHONIOENCODING="utf-8",
            PYTHONUNBUFFERED="1",
            REAL_CLIENT_BASE_URL=self.server.url,
        )
        if key is not None:
            environment["INTENT_API_KEY"] = key
        return environment

    def close(self):
        for client in self.clients:
            client.close()


def answers_of(client):
    """A list that grows with each HTTP response `client` gets.

    SDK exceptions carry a code and a message but no status, so statuses are read from here.
    """
    answers = []
    hooks = client.transport.session.hooks["response"]
    hooks.append(lambda response, *_, **__: answers.append(response))
    return answers


class RunningWorker:
    """The real WorkerRuntime in a thread, for the length of a `with` block."""

    def __init__(
        self, client, goal, handler, namespace="default", full_envelope=False,
        worker_id=None, capabilities=None,
    ):
        self._stopping = threading.Event()
        runtime = WorkerRuntime(
            _InterruptibleClient(client, self._stopping),
            worker_id=worker_id,
            capabilities=capabilities,
            poll_interval=0.05,
            max_backoff=0.3,
        )
        self._thread = threading.Thread(
            target=runtime.listen,
            args=(goal, handler),
            kwargs={"namespace": namespace, "full_envelope": full_envelope},
            daemon=True,
        )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the worker did not stop"


class _InterruptibleClient(IntentClient):
    """Raises between two jobs what Ctrl-C would raise, since a thread cannot receive a signal."""

    def __init__(self, client, stopping):
        super().__init__(base_url=client.transport.base_url, api_key=client.api_key)
        self._stopping = stopping

    def claim(self, *arguments, **options):
        if self._stopping.is_set():
            self.close()
            raise KeyboardInterrupt
        return super().claim(*arguments, **options)

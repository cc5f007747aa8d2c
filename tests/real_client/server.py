"""One real server process: started on a free port, watched, stopped the way an operator would.

Keeps the data directory across restarts, and the port too, because an SDK client cannot change
its base URL after construction.
"""

import collections
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid

BUS_SECRET = "main-secret-of-the-real-client-suite"
ADMIN_SECRET = "admin-secret-of-the-real-client-suite"
DASHBOARD_PASSWORD = "dashboard-password-of-the-real-client-suite"
METRICS_TOKEN = "metrics-token-of-the-real-client-suite"

START_SECONDS = 20
STOP_SECONDS = 10
LISTENING = re.compile(r"http://127\.0\.0\.1:(\d+)")


class Database:
    """An empty PostgreSQL database; `program` is the testkit's test_postgres."""

    def __init__(self, program):
        self.program = program
        self.name = f"suite_{uuid.uuid4().hex}"
        self.url = self._ask("make").strip()

    def drop(self):
        self._ask("drop")

    def _ask(self, action):
        command = [self.program, action, self.name]
        asked = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
        assert asked.returncode == 0, f"test_postgres {action}: {asked.stderr}"
        return asked.stdout


class Server:
    def __init__(self, binary, signatures_required, test_postgres=None, variables=None):
        """Over a SQLite file, or over a database that the program `test_postgres` makes; `variables` configure it further."""
        self.binary = binary
        self.database = Database(test_postgres) if test_postgres else None
        self.signatures_required = signatures_required
        self.variables = variables or {}
        self.directory = tempfile.TemporaryDirectory(prefix="consign-real-client-")
        self.data = pathlib.Path(self.directory.name, "data")
        self.data.mkdir()
        self.port = 0
        self.process = None
        self.output = collections.deque(maxlen=60)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        """Returns once /health answers 200; a second start reuses data directory and port."""
        self.process = subprocess.Popen(
            [
                self.binary, "serve",
                "--listen", f"127.0.0.1:{self.port}",
                "--data", str(self.data),
                "--log-format", "json",
                *(["--store", self.database.url] if self.database else []),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self.directory.name,
            env=self._environment(),
        )
        announced = threading.Event()
        for stream in (self.process.stdout, self.process.stderr):
            # Both pipes are drained for the whole life of the process, or a chatty server blocks.
            threading.Thread(target=self._drain, args=(stream, announced), daemon=True).start()
        self._wait_until_healthy(announced)

    def terminate(self):
        """SIGTERM must end the process with exit code 0 in time, open connections or not."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"server still runs {STOP_SECONDS} s after SIGTERM") from None
        assert code == 0, f"server ended with exit code {code} after SIGTERM"

    def kill(self):
        """SIGKILL: the process gets no chance to save anything."""
        self.process.kill()
        self.process.wait()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def discard(self):
        if self.running():
            self.kill()
        self.directory.cleanup()
        if self.database:
            self.database.drop()

    def _environment(self):
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ATP_", "BUS_", "CONSIGN_", "DASHBOARD_"))
        }
        environment.update(
            BUS_SECRET=BUS_SECRET,
            BUS_ADMIN_SECRET=ADMIN_SECRET,
            DASHBOARD_PASSWORD=DASHBOARD_PASSWORD,
            BUS_METRICS_TOKEN=METRICS_TOKEN,
            **self.variables,
        )
        if self.signatures_required:
            environment["BUS_REQUIRE_SIGNATURES"] = "true"
        return environment

    def _drain(self, stream, announced):
        for line in stream:
            self.output.append(line.rstrip("\n"))
            if stream is self.process.stdout and not announced.is_set():
                found = LISTENING.search(line)
                if found:
                    self.port = int(found.group(1))
                    announced.set()
        stream.close()

    def _wait_until_healthy(self, announced):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (
                f"server ended at start with exit code {self.process.returncode}"
            )
            if announced.wait(0.02) and self._healthy():
                return
        raise AssertionError(f"server not healthy {START_SECONDS} s after start")

    def _healthy(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as response:
                return response.status == 200
        except (urllib.error.URLError, OSError):
            return False

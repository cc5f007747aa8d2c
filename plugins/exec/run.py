#!/usr/bin/env python3
"""exec: runs one configured command, with the payload as JSON on its standard input.

The command is a list of arguments and no shell reads it, so nothing of a payload is ever executed. It stays in the process
group of this plugin: whatever it leaves behind is ended by the core together with the plugin.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

PROTOCOL = 2
EXIT_CONFIG = 78
ARGUMENTS_MAX = 100
GRACE_SECONDS = 2
# How long output is still read after the end, for a child that holds the pipe open.
DRAIN_SECONDS = 1
CHUNK_BYTES = 64 * 1024
ERROR_CHARS_MAX = 500


class Unfit(Exception):
    """A configuration or payload that no retry makes better."""


class Reader(threading.Thread):
    """Keeps the beginning of a pipe and reads the rest away, so that the command never waits for us."""

    def __init__(self, pipe, bytes_max):
        super().__init__(daemon=True)
        self.pipe, self.bytes_max = pipe, bytes_max
        self.kept, self.truncated = b"", False
        self.start()

    def run(self):
        while chunk := os.read(self.pipe.fileno(), CHUNK_BYTES):
            fitting = chunk[: self.bytes_max - len(self.kept)]
            self.kept += fitting
            self.truncated = self.truncated or len(fitting) < len(chunk)

    def text(self):
        return self.kept.decode("utf-8", "replace")


def handle(request):
    return run(request, members(members(request, "event"), "payload"))


def poll(request):
    return run(request, members(request, "payload"))


def health(request):
    program = configured(members(request, "config"))[0]
    found = shutil.which(program)
    if found is None:
        return {"status": "error", "error": f"{program} is not there or may not be executed", "retry": False}
    return {"result": f"would run {found}"}


def run(request, payload):
    config = members(request, "config")
    command = configured(config) + chosen(config, payload)
    timeout_seconds = bounded(config, "timeout_seconds", 30, 24 * 3600)
    bytes_max = bounded(config, "output_bytes_max", 64 * 1024, 1 << 20)
    directory = config.get("directory")
    if directory is not None and not isinstance(directory, str):
        raise Unfit("config.directory must be a path")
    started = time.monotonic()
    try:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=directory)
    except (OSError, ValueError) as error:
        raise Unfit(f"{command[0]} could not be started: {error}") from error
    stdout, stderr = Reader(process.stdout, bytes_max), Reader(process.stderr, bytes_max)
    threading.Thread(target=feed, args=(process, payload), daemon=True).start()
    ended = wait(process, timeout_seconds)
    drained = time.monotonic() + DRAIN_SECONDS
    for reader in (stdout, stderr):
        reader.join(max(0, drained - time.monotonic()))
    if not ended:
        return failed(config, f"{command[0]} did not end within {timeout_seconds} s", stderr)
    code = process.returncode
    if code != 0 and config.get("fail_on_nonzero") is not False:
        how = f"exited with code {code}" if code > 0 else f"was ended by signal {-code}"
        return failed(config, f"{command[0]} {how}", stderr)
    outcome = {
        "exit_code": code,
        "stdout": stdout.text(),
        "stderr": stderr.text(),
        "truncated": stdout.truncated or stderr.truncated,
        "duration_ms": round((time.monotonic() - started) * 1000),
    }
    return {"result": f"exit code {code}", "events": [{"type": "exec.completed", "payload": outcome}]}


def failed(config, error, stderr):
    told = stderr.text().strip()[-ERROR_CHARS_MAX:]
    error = f"{error}: {told}" if told else error
    return {"status": "error", "error": error, "retry": config.get("retry") is not False}


def feed(process, payload):
    try:
        process.stdin.write(json.dumps(payload).encode() + b"\n")
        process.stdin.close()
    except OSError:
        pass  # It need not read what it is given.


def wait(process, seconds):
    """Whether it ended by itself in time; in the end it has ended."""
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return False


def configured(config):
    command = config.get("command")
    if isinstance(command, str):
        raise Unfit("config.command must be a list such as [/usr/bin/rsync, -a, /from, /to]; no shell reads it")
    if not isinstance(command, list) or not 0 < len(command) <= ARGUMENTS_MAX:
        raise Unfit(f"config.command must be a list of 1 to {ARGUMENTS_MAX} texts")
    if not all(isinstance(part, str) and "\0" not in part for part in command) or not command[0]:
        raise Unfit("config.command must be a list of texts, with the program first")
    return list(command)


def chosen(config, payload):
    """The arguments that the payload adds. To drop one that is not allowed could change what the command does."""
    wanted = payload.get("args")
    if wanted is None:
        return []
    allowed = config.get("payload_args")
    if not isinstance(allowed, list):
        raise Unfit("the payload has `args`; list those that are allowed in config.payload_args")
    if not isinstance(wanted, list) or len(wanted) > ARGUMENTS_MAX:
        raise Unfit(f"payload.args must be a list of at most {ARGUMENTS_MAX} texts")
    for argument in wanted:
        if not isinstance(argument, str) or argument not in allowed:
            raise Unfit(f"payload.args: {argument!r:.200} is not among config.payload_args")
    return wanted


def bounded(config, key, default, most):
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise Unfit(f"config.{key} must be a number above 0 and at most {most}")
    return value if key.endswith("seconds") else int(value)


def members(value, key):
    """The object under a key; what is absent, null or something else is empty."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


COMMANDS = {"handle": handle, "poll": poll, "health": health}


def main():
    try:
        request = json.load(sys.stdin)
        if not isinstance(request, dict) or request.get("protocol") != PROTOCOL:
            raise Unfit(f"this plugin speaks protocol {PROTOCOL} only")
        command = COMMANDS.get(request.get("command"))
        if command is None:
            raise Unfit(f"unknown command: {request.get('command')}")
        answer, code = {"status": "ok", **command(request)}, 0
    except Unfit as unfit:
        answer, code = {"status": "error", "error": str(unfit), "retry": False}, EXIT_CONFIG
    print(json.dumps(answer), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

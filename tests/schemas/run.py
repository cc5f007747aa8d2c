"""Runs schemathesis against a real server: every answer must be as /openapi.json tells.

The document is taken from the running server. Output is schemathesis' own, then one
`test <name> ... ok|FAILED` line per round; the exit code is 1 if one failed.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real_client"))
# The suite runs inside a source tree and must leave nothing behind in it.
sys.dont_write_bytecode = True

from agent import Agent  # noqa: E402
from server import ADMIN_SECRET, BUS_SECRET, METRICS_TOKEN, Server  # noqa: E402

# Operations that cannot be driven, and why.
EXCLUDED = {
    "followEvents": "a stream has no end; crates/intent/tests/it/events.rs reads it",
    "followAllEvents": "a stream has no end; crates/intent/tests/it/events.rs reads it",
    "beamEvents": "a stream has no end; crates/beam/tests/http reads it",
    "beamSocket": "a WebSocket is more than its handshake; crates/beam/tests/http/socket.rs opens it",
}
# What is not asked of the others, and why; see hooks.py and schemathesis.toml.
LIMITED = (
    "claim: a wait is at most 0.05 s, since longer ones are honoured",
    "settleBatch: a wrong item need not be refused by status, since it is refused in its place of a 200",
    "agent transactions: what fits the document need not be accepted, since nobody signed it",
    "Beam: what fits the document need not be accepted, nor the rest refused, since nobody signed the requests",
    "meshJoin: what fits the document need not be accepted, since nobody made the invite",
)
# With a key, requests from elsewhere reach the message bus.
BEAM_BUS_KEY = "the-key-of-the-message-bus"
# Agents' transactions are served too, and strangers may ask as often as they like.
SITE = {
    # Each case comes from an address of its own (hooks.py): wrong credentials are throttled by address.
    "BUS_TRUST_PROXY": "true",
    "ATP_SITE": "https://shop.example",
    "ATP_AGENT_KEYS": "open",
    "ATP_RAIL": "null",
    "ATP_PUBLIC_PER_MINUTE": "0",
    "ATP_WRITES_PER_MINUTE": "0",
    "ATP_WRITE_BYTES_PER_MINUTE": "0",
    "ATP_OPEN_PER_KEY": "0",
    "ATP_OPEN_MAX": "0",
    "BEAM_ADMIN_EMAILS": "ops@acme.example",
    "BEAM_BUS_API_KEY": BEAM_BUS_KEY,
}
# Driven by itself, last: it deletes what the others look at.
LAST = "purge"


def main():
    arguments = parse_arguments()
    # A proxy meant for the outside world would swallow requests to the loopback address.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    for operation, reason in EXCLUDED.items():
        print(f"not driven: {operation}: {reason}", flush=True)
    for limitation in LIMITED:
        print(f"limited: {limitation}", flush=True)

    passed = [on_a_server_of_its_own(arguments, *each) for each in rounds()]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


def on_a_server_of_its_own(arguments, *each):
    """What one round does to its server, such as draining it, is nothing to the next."""
    server = Server(
        str(pathlib.Path(arguments.consign).resolve()),
        signatures_required=False,
        variables=SITE,
    )
    try:
        server.start()
        with tempfile.TemporaryDirectory(prefix="consign-schemas-") as directory:
            passed = round_of(server, arguments, directory, *each)
        server.terminate()
        return passed
    finally:
        server.discard()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--consign", metavar="PATH", required=True, help="the server binary")
    parser.add_argument("--examples", metavar="N", type=int, default=80, help="cases per operation")
    parser.add_argument("--seed", metavar="S", type=int, default=1, help="repeats a run")
    return parser.parse_args()


def rounds():
    """Name, choice of operations, and what is done to the document first."""
    one_by_one = ["--phases", "examples,coverage,fuzzing"]
    # A run that cannot fail proves nothing.
    only_health = ["--include-operation-id", "health", *one_by_one]
    yield "schemas_a_wrong_document_is_noticed", only_health, deny_health
    others = [word for name in [*EXCLUDED, LAST] for word in ("--exclude-operation-id", name)]
    yield "schemas_every_answer_is_as_documented", others, None
    only_last = ["--include-operation-id", LAST, *one_by_one]
    yield "schemas_a_purge_is_as_documented", only_last, None


def deny_health(document):
    content = document["paths"]["/health"]["get"]["responses"]["200"]["content"]
    content["application/json"]["schema"]["properties"]["ok"]["const"] = False


def round_of(server, arguments, directory, name, filters, falsify):
    # The settings name the file with the ids, and it is looked for beside them.
    settings = shutil.copy(HERE / "schemathesis.toml", directory)
    known = {"ids": seeded(server.url)} | transacted(server.url, name)
    for kind, ids in known.items():
        pathlib.Path(directory, f"{kind}.txt").write_text("".join(f'"{id}"\n' for id in ids))
    told = json.loads(call(server.url, "GET", "/openapi.json"))
    if falsify:
        falsify(told)
    document = pathlib.Path(directory, "openapi.json")
    document.write_text(json.dumps(told))
    environment = dict(
        os.environ,
        CONSIGN_URL=server.url,
        CONSIGN_HOOKS=str(HERE / "hooks.py"),
        CONSIGN_API_KEY=BUS_SECRET,
        CONSIGN_ADMIN_TOKEN=ADMIN_SECRET,
        CONSIGN_METRICS_TOKEN=METRICS_TOKEN,
        CONSIGN_BEAM_BUS_KEY=BEAM_BUS_KEY,
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONUNBUFFERED="1",
    )
    command = [
        sys.executable, "-m", "schemathesis.cli",
        "--config-file", str(settings),
        "run", str(document), "--no-color",
        "--max-examples", str(arguments.examples),
        "--seed", str(arguments.seed),
        *filters,
    ]
    started = time.monotonic()
    ended = subprocess.run(
        command,
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        # A failure that is wanted would read like a real one.
        capture_output=falsify is not None,
        text=True,
    )
    if falsify:
        passed = ended.returncode == 1 and "Response violates schema" in ended.stdout
        if not passed:
            print(ended.stdout, ended.stderr)
    else:
        passed = ended.returncode == 0
    if not server.running():
        passed = False
        print("the server died", *server.output, sep="\n")
    took = time.monotonic() - started
    print(f"test {name} ... {'ok' if passed else 'FAILED'} ({took:.0f} s)", flush=True)
    return passed


def seeded(url):
    """Publishes intents and leaves them in every state; their ids."""
    ids = []
    for goal in ("fulfilled", "dead", "claimed", "open"):
        body = {"goal": f"seed-{goal}", "payload": {"seed": True}, "max_attempts": 1}
        ids.append(json.loads(call(url, "POST", "/intent", body))["id"])
        if goal == "open":
            continue
        job = json.loads(call(url, "POST", f"/claim?goal=seed-{goal}"))
        token = {"claim_token": job["claim_token"]}
        if goal == "fulfilled":
            call(url, "POST", f"/fulfill/{job['id']}", token | {"result": [1, "two"]})
        if goal == "dead":
            call(url, "POST", f"/fail/{job['id']}", token | {"error": "seeded"})
    return ids


def transacted(url, name):
    """Leaves agents' intents in several states, with transactions and receipts; the ids by kind."""
    agent = Agent()
    ids = {"intent_ids": [], "transaction_ids": [], "receipt_ids": []}
    for state in ("created", "authorized", "cancelled", "settled", "compensated"):
        intent = agent.intent(SITE["ATP_SITE"], f"{name}-{state}")
        named = {"intent_id": intent["intent_id"]}
        key = f"key-of-{intent['intent_id']}"
        ids["intent_ids"].append(intent["intent_id"])
        call(url, "POST", "/api/atp/intents", intent)
        if state == "created":
            continue
        call(url, "POST", "/api/atp/authorize", intent, key)
        if state == "cancelled":
            call(url, "POST", "/api/atp/cancel", named)
        if state in ("settled", "compensated"):
            settled = json.loads(call(url, "POST", "/api/atp/execute", named, key))
            ids["transaction_ids"].append(settled["transaction_id"])
            ids["receipt_ids"].append(settled["receipt"]["receipt_id"])
        if state == "compensated":
            call(url, "POST", "/api/atp/compensate", named | {"reason": "seeded"}, key)
    return ids


def call(url, method, path, body=None, key=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-API-KEY": BUS_SECRET, "Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    request = urllib.request.Request(url + path, data=data, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read()


if __name__ == "__main__":
    sys.exit(main())

"""Workers without any SDK: our POSIX shell worker and bare curl, both unsigned."""

import json
import os
import shutil
import subprocess
import time

from intent_bus import IntentBusLeaseLostError

from bus import HERE
from expect import equal, raises, within
from modes import unsigned_only
from server import ADMIN_SECRET, BUS_SECRET

SECURITY_HEADERS = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-intent-version": "2.1",
}


def shell_worker(bus, handler, **environment):
    """Runs worker.sh until its second empty claim in a row and returns its output lines."""
    run = subprocess.run(
        ["sh", str(HERE / "worker.sh")],
        env={
            "PATH": os.environ["PATH"],
            "BASE_URL": bus.server.url,
            "API_KEY": BUS_SECRET,
            "HANDLER": handler,
            "EMPTY_MAX": "2",
            **environment,
        },
        capture_output=True,
        encoding="utf-8",
        timeout=40,
    )
    equal(run.returncode, 0, f"exit code of worker.sh, which said {run.stdout}{run.stderr}")
    return run.stdout.splitlines()


def curl(bus, method, path, *arguments, key=BUS_SECRET):
    """One curl call; returns status, headers in lower case, and body text."""
    assert shutil.which("curl"), "curl is not installed"
    authentication = ["-H", f"X-API-KEY: {key}"] if key else []
    run = subprocess.run(
        ["curl", "-sS", "-i", "--noproxy", "*", "--max-time", "10", "-X", method,
         *authentication, *arguments, bus.server.url + path],
        capture_output=True,
        check=True,
        timeout=20,
    )
    head, _, body = run.stdout.decode("utf-8").partition("\r\n\r\n")
    while head.startswith("HTTP/1.1 100"):
        head, _, body = body.partition("\r\n\r\n")
    status_line, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(status_line.split()[1]), {k.lower(): v for k, v in headers.items()}, body


@unsigned_only
def curl_worker_ip_013_ip_103_ip_105_drains_the_queue_and_honours_retry_after(bus):
    first = bus.main.publish("shell task/é", {"n": 1}, namespace="ops").id
    decoy = {"id": "decoy", "claim_token": "decoy", "text": '{"id":"decoy"}\n{'}
    second = bus.main.publish("shell task/é", decoy, namespace="ops").id
    started = time.monotonic()
    lines = shell_worker(bus, "echo done $INTENT_ID", GOAL="shell task/é", NAMESPACE="ops")
    equal(lines[:2], [f"fulfill {first}", f"fulfill {second}"])
    equal(lines[2:], ["empty, waiting 1"] * 2)
    within(time.monotonic() - started, 1, 10, "seconds taken, one of them waited")
    for intent_id in (first, second):
        result = bus.main.get_result(intent_id)
        equal((result.result, result.result_type), (f"done {intent_id}", "text"))


@unsigned_only
def curl_worker_ip_014_ip_046_reports_a_failing_command(bus):
    intent_id = bus.main.publish("g", 1).id
    lines = shell_worker(bus, "echo no space left; exit 3", GOAL="g")
    equal(lines[0], f"fail {intent_id}")
    status = bus.main.get_status(intent_id)
    equal((status.status, status.error), ("open", "no space left"))


@unsigned_only
def curl_worker_ip_119_ip_123_stops_when_the_answer_is_404(bus):
    intent_id = bus.main.publish("g", 1).id
    cancel = (
        f"curl -sS -o /dev/null -X POST -H 'X-Admin-Token: {ADMIN_SECRET}' "
        "$BASE_URL/admin/intents/$INTENT_ID/cancel"
    )
    for suffix in ("", "; exit 1"):
        lines = shell_worker(bus, cancel + suffix, GOAL="g", BASE_URL=bus.server.url)
        equal(lines[0], f"lease_lost {intent_id}")
        bus.admin("POST", f"/admin/intents/{intent_id}/retry")


@unsigned_only
def curl_worker_ip_079_ip_081_ip_102_routes_by_worker_id_and_capabilities(bus):
    bus.main.publish("g", 1, target_worker="w1", required_capability="gpu")
    lines = shell_worker(bus, "true", GOAL="g", WORKER_ID="w2", CAPABILITIES="gpu", EMPTY_MAX="1")
    equal(lines, ["empty, waiting 1"])
    lines = shell_worker(bus, "true", GOAL="g", WORKER_ID="w1", CAPABILITIES="cpu,gpu")
    assert lines[0].startswith("fulfill "), lines
    bus.main.publish("g", 2, target_worker="w1", required_capability="gpu")
    status, _, body = curl(bus, "POST", "/claim?goal=g&worker_id=w1&capabilities=cpu,gpu")
    equal((status, json.loads(body)["payload"]), (200, 2))


@unsigned_only
def curl_worker_ip_084_ip_087_ip_088_publishing_by_hand(bus):
    """curl labels its bodies as form data unless told otherwise; null must mean absent."""
    full = {
        "goal": "g", "payload": "full", "namespace": "default", "visibility": "private",
        "priority": 200, "delay": 0, "max_attempts": 3, "backoff_base": 5.0,
        "target_worker": None, "required_capability": None,
    }
    for body in (full, {"goal": "g", "payload": "bare"}):
        status, _, answer = curl(bus, "POST", "/intent", "--data", json.dumps(body))
        equal((status, json.loads(answer)["status"]), (201, "published"))
    equal([bus.main.claim("g").payload, bus.main.claim("g").payload], ["full", "bare"])
    large = json.dumps({"goal": "g", "payload": "x" * 7000})
    status, _, _ = curl(bus, "POST", "/intent", "-H", "Expect: 100-continue", "--data", large)
    equal(status, 201, "a body announced with Expect")


@unsigned_only
def curl_worker_ip_089_ip_108_ip_114_ip_121_missing_fields_are_400(bus):
    intent_id = bus.main.publish("g", 1).id
    job = bus.main.claim("g")
    for route in ("extend_claim", "fulfill", "fail"):
        for body in ("{}", '{"claim_token":""}'):
            status, _, answer = curl(bus, "POST", f"/{route}/{intent_id}", "--data", body)
            expected = {"code": "invalid_request", "message": "Missing claim_token."}
            equal((status, json.loads(answer)["error"]), (400, expected))
    for body in ('{"goal":"g"}', '{"payload":1}'):
        status, _, answer = curl(bus, "POST", "/intent", "--data", body)
        equal((status, json.loads(answer)["error"]["code"]), (400, "invalid_request"))
    bus.main.fulfill(job.id, job.claim_token)
    with raises(IntentBusLeaseLostError):
        bus.main.fail(job.id, job.claim_token)


@unsigned_only
def curl_worker_ip_048_ip_152_ip_153_ip_154_ip_155_ip_156_headers_are_on_every_answer(bus):
    intent_id = bus.main.publish("g", 1).id
    answers = (
        (200, "GET", f"/status/{intent_id}", BUS_SECRET),
        (204, "POST", "/claim?goal=nothing", BUS_SECRET),
        (401, "POST", "/claim", None),
        (404, "GET", "/no/such/path", BUS_SECRET),
        (405, "GET", "/claim", BUS_SECRET),
        (200, "GET", "/health", None),
    )
    for expected, method, path, key in answers:
        status, headers, body = curl(bus, method, path, key=key)
        equal(status, expected, path)
        found = {name: headers.get(name) for name in SECURITY_HEADERS}
        equal(found, SECURITY_HEADERS, f"headers of {path}")
        if status >= 400:
            equal(set(json.loads(body)["error"]) >= {"code", "message"}, True, body)

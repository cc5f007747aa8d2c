"""Signatures: what the SDK puts on the wire, and what the server makes of it."""

import hashlib
import hmac
import json
import time
import urllib.parse

from intent_bus.client.auth import generate_signature

from expect import equal
from modes import signed_only
from server import BUS_SECRET
from wire_tap import WireTap, replay


def real_client_ip_058_ip_061_ip_062_the_client_signs_the_exact_bytes_it_sends(bus):
    """Recomputes every signature from the recorded bytes alone, without the package's code."""
    with WireTap(bus.server.port) as tap:
        client = bus.client(base_url=tap.url)
        client.publish("send email/now", {"z": 1.50, "a": "é", "nested": [None, True]})
        job = client.claim("send email/now")
        client.extend_claim(job.id, job.claim_token)
        client.fulfill(job.id, job.claim_token, {"b": 1, "a": 2})
        client.get_result(job.id)
        client.set("my ké", {"y": 1, "x": 2})
        client.get("my ké")
        sent = tap.requests()
    equal(len(sent), 7, "recorded requests")
    for request in sent:
        path, mark, query = request.target.partition("?")
        message = b"\n".join([
            request.method.encode(),
            (urllib.parse.unquote(path) + mark + query).encode(),
            request.headers["x-timestamp"].encode(),
            request.headers["x-nonce"].encode(),
            request.body,
        ])
        digest = hmac.new(BUS_SECRET.encode(), message, hashlib.sha256).hexdigest()
        equal(request.headers["x-signature"], digest, f"signature of {request.target}")


def real_client_ip_063_ip_066_goals_with_reserved_characters_are_claimable(bus):
    for goal in ("a b/c&d=é~+%", "ключ?#[]@!$'()*,;", "100%25", "%2F", "a=b&goal=c"):
        bus.main.publish(goal, goal, namespace="n.1_-")
        job = bus.main.claim(goal, namespace="n.1_-", publisher=BUS_SECRET)
        equal(job.goal, goal)


def real_client_ip_051_ip_055_ip_057_ip_060_replays_and_changed_bytes_are_refused(bus):
    with WireTap(bus.server.port) as tap:
        bus.client(base_url=tap.url).publish("g", {"amount": 100})
        (sent,) = tap.requests("/intent")
    tampered = sent.raw.replace(b'"amount":100', b'"amount":900')
    assert tampered != sent.raw, "nothing was tampered with"
    for raw, message in ((tampered, "Bad signature"), (sent.raw, "Replay detected")):
        status, answer = replay(bus.server.port, raw)
        equal(status, 403)
        assert "invalid_signature" in answer and message in answer, answer
    assert bus.main.claim("g"), "the original was accepted"
    assert not bus.main.claim("g"), "a refused request was processed"


def real_client_ip_008_ip_053_ip_054_timestamps_outside_five_minutes_are_stale(bus):
    now = int(time.time())
    for shift, accepted in ((-290, True), (290, True), (-302, False), (310, False)):
        reply = signed_claim(bus, BUS_SECRET, str(now + shift), f"nonce{shift:+}")
        equal(reply.status, 204 if accepted else 403, f"status at {shift:+} s")
        if not accepted:
            equal(error_of(reply), ("invalid_signature", "Stale timestamp"))


def real_client_ip_056_ip_067_nonces_belong_to_a_key_and_digests_are_lower_case(bus):
    timestamp = str(int(time.time()))
    keys = (BUS_SECRET, bus.tester_key())
    for key in keys:
        equal(signed_claim(bus, key, timestamp, "shared").status, 204)
    for key in keys:
        reply = signed_claim(bus, key, timestamp, "shared")
        equal(error_of(reply), ("invalid_signature", "Replay detected"))
    upper = signed_claim(bus, BUS_SECRET, timestamp, "fresh", change=str.upper)
    equal(error_of(upper), ("invalid_signature", "Bad signature"))


def signed_claim(bus, key, timestamp, nonce, change=str):
    """A claim signed by the package's own function, with a time and nonce of our choice."""
    signature = generate_signature(key, "POST", "/claim", timestamp, nonce, b"")
    return bus.http("POST", "/claim", {
        "X-API-KEY": key,
        "X-Timestamp": timestamp,
        "X-Nonce": nonce,
        "X-Signature": change(signature),
    })


def error_of(reply):
    error = json.loads(reply.body)["error"]
    return error["code"], error["message"]


@signed_only
def real_client_ip_052_unsigned_requests_are_refused_while_the_sdk_works(bus):
    for headers in ({}, {"X-Timestamp": str(int(time.time())), "X-Nonce": "n"}):
        reply = bus.http("POST", "/claim", {"X-API-KEY": BUS_SECRET, **headers})
        equal(reply.status, 403)
        equal(error_of(reply), ("invalid_signature", "Missing required signature headers."))
    equal(bus.http("GET", "/health", {}).status, 200, "health needs no signature")
    bus.main.publish("g", 1)
    assert bus.main.claim("g"), "signed requests pass"

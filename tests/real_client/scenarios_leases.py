"""Leases: holding, extending, losing them; what a worker must do when the answer is 404."""

import threading
import time

from intent_bus import IntentBusError, IntentBusLeaseLostError

from expect import equal, eventually, raises, within
from modes import mostly_waits
from wire_tap import WireTap

SHORTEST_LEASE = 10
PAST_THE_LEASE = 10.5


def claimed_with_short_lease(client, goal):
    job = client.claim(goal)
    equal(client.extend_claim(job.id, job.claim_token, SHORTEST_LEASE)["extended_by"], 10)
    return job


@mostly_waits
def real_client_ip_029_ip_030_ip_031_ip_110_an_expired_lease_is_lost(bus):
    bus.main.publish("g", 1)
    job = claimed_with_short_lease(bus.main, "g")
    time.sleep(PAST_THE_LEASE)
    for change in (bus.main.extend_claim, bus.main.fail, bus.main.fulfill):
        with raises(IntentBusLeaseLostError, "not_found: "):
            change(job.id, job.claim_token)


@mostly_waits
def real_client_ip_002_ip_016_ip_100_another_worker_takes_over_at_once(bus):
    bus.main.publish("g", "work")
    lost = claimed_with_short_lease(bus.main, "g")
    other = bus.client()
    assert not other.claim("g", worker_id="other"), "a live lease was given away"
    time.sleep(PAST_THE_LEASE)
    taken = other.claim("g", worker_id="other")
    equal((taken.id, taken.payload, taken.claim_attempts), (lost.id, "work", 2))
    assert taken.claim_token != lost.claim_token, "the token was reused"
    for change in (bus.main.fulfill, bus.main.fail, bus.main.extend_claim):
        with raises(IntentBusLeaseLostError):
            change(lost.id, lost.claim_token)
    other.fulfill(taken.id, taken.claim_token, "by the second")
    equal(bus.main.get_result(lost.id).result, "by the second")


@mostly_waits
def real_client_ip_017_ip_026_ip_099_expiry_of_the_last_attempt_is_death(bus):
    bus.main.publish("g", 1, max_attempts=1)
    job = claimed_with_short_lease(bus.main, "g")
    time.sleep(PAST_THE_LEASE)
    assert not bus.main.claim("g"), "offered beyond max_attempts"
    result = bus.main.get_result(job.id)
    equal(result.status, "dead")
    equal(bus.admin("GET", f"/admin/dead/{job.id}").body["reason"], "Max retries exceeded")


@mostly_waits
def real_client_ip_106_ip_111_a_worker_that_extends_keeps_a_long_job(bus):
    """The runtime has no heartbeat, so a long handler extends by itself through the envelope."""
    intent_id = bus.main.publish("long", 1, max_attempts=5).id
    started = threading.Event()
    worker_client = bus.client()

    def handler(job):
        for _ in range(4):
            worker_client.extend_claim(job["id"], job["claim_token"], SHORTEST_LEASE)
            started.set()
            time.sleep(3.5)
        return {"attempts": job["claim_attempts"]}

    with bus.worker("long", handler, full_envelope=True):
        assert started.wait(10), "the worker never started"
        deadline = time.monotonic() + 13
        while time.monotonic() < deadline:
            assert not bus.main.claim("long"), "the lease was lost while it was being extended"
            time.sleep(0.5)
        eventually(lambda: bus.main.get_status(intent_id).status == "fulfilled", 10, "fulfilled")
    equal(bus.main.get_result(intent_id).result, {"attempts": 1})


@mostly_waits
def real_client_ip_001_running_an_intent_twice_is_safe_for_an_idempotent_worker(bus):
    """A worker dies between its effect and its report; its successor must not repeat the effect."""
    effects = []

    def charge_once(client, job):
        marker = f"charged-{job['id']}"
        try:
            receipt = client.get(marker)
        except IntentBusError as error:
            assert str(error).startswith("not_found: "), error
            effects.append(job["payload"])
            receipt = f"receipt {len(effects)}"
            client.set(marker, receipt)
        return receipt

    intent_id = bus.main.publish("charge", "42 EUR").id
    first = claimed_with_short_lease(bus.main, "charge")
    charge_once(bus.main, first.data.to_dict())
    time.sleep(PAST_THE_LEASE)
    with raises(IntentBusLeaseLostError):
        bus.main.fulfill(first.id, first.claim_token, "too late")

    successor = bus.client()
    with bus.worker("charge", lambda job: charge_once(successor, job), full_envelope=True):
        eventually(lambda: bus.main.get_status(intent_id).status == "fulfilled", 10, "fulfilled")
    result = bus.main.get_result(intent_id)
    equal((result.result, result.claim_attempts), ("receipt 1", 2))
    equal(effects, ["42 EUR"], "effects")


@mostly_waits
def real_client_ip_112_ip_119_ip_123_lease_loss_is_permanent(bus):
    """The tap counts attempts: each 404 is final, whether the handler succeeds or fails."""
    bus.main.publish("g", "succeeds")
    bus.main.publish("g", "fails")
    seen = []
    with WireTap(bus.server.port) as tap:
        client = bus.client(base_url=tap.url)

        def handler(job):
            # Cancelling takes the lease away at once, so nothing has to wait for its end.
            equal(bus.admin("POST", f"/admin/intents/{job['id']}/cancel").status, 200)
            with raises(IntentBusLeaseLostError):
                client.extend_claim(job["id"], job["claim_token"])
            seen.append(job["payload"])
            if job["payload"] == "fails":
                raise RuntimeError("reported in vain")
            return "reported in vain"

        with bus.worker("g", handler, client=client, full_envelope=True):
            eventually(lambda: len(seen) == 2, 10, "both jobs handled")
            # A retrying runtime would try again after two seconds and a half at most.
            time.sleep(3)
        equal(sorted(seen), ["fails", "succeeds"])
        equal(len(tap.requests("/extend_claim/")), 2, "extend attempts")
        equal(len(tap.requests("/fulfill/")), 1, "fulfill attempts")
        equal(len(tap.requests("/fail/")), 1, "fail attempts")


def real_client_ip_007_ip_109_ip_118_ip_122_ip_188_a_lease_cannot_be_hijacked(bus):
    alice, bob = bus.tester("alice"), bus.tester("bob")
    alice.publish("g", 1, visibility="public")
    job = alice.claim("g")
    same_key = bus.client(alice.api_key)
    for thief, token in ((same_key, "0" * 32), (bob, job.claim_token), (bus.main, job.claim_token)):
        for change in (thief.extend_claim, thief.fail, thief.fulfill):
            with raises(IntentBusLeaseLostError, "not_found: "):
                change(job.id, token)
    equal(alice.get_status(job.id).status, "claimed")
    alice.fulfill(job.id, job.claim_token)
    with raises(IntentBusLeaseLostError):
        alice.fulfill(job.id, job.claim_token)


def real_client_ip_107_extending_counts_from_now(bus):
    bus.main.publish("g", 1)
    job = bus.main.claim("g")
    for seconds in (10, 60, 3600):
        before = time.time()
        answer = bus.main.extend_claim(job.id, job.claim_token, seconds)
        after = time.time()
        equal((answer["id"], answer["extended_by"]), (job.id, seconds))
        lease_end = bus.main.get_status(job.id).extra["claim_expires_at"]
        within(lease_end, before + seconds - 0.01, after + seconds + 0.01, "claim_expires_at")

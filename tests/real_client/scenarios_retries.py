"""After a failure: back-off, exhaustion, dead letters and the admin's second chance."""

import time

from expect import equal, eventually, within
from modes import mostly_waits

# A server may keep times in milliseconds, so a bound can be off by one of them.
TICK = 0.001


def real_client_ip_014_ip_022_ip_023_ip_046_failures_back_off_with_jitter(bus):
    jitters = []
    for number in range(6):
        bus.main.publish("g", number, backoff_base=3.0)
        jitters.append(jitter_of_a_failure(bus, "g", f"reason {number}", 3.0 * 2))
    largest_low, smallest_high = max(low for low, _ in jitters), min(high for _, high in jitters)
    assert largest_low > smallest_high, f"one jitter explains all six failures: {jitters}"
    assert not bus.main.claim("g"), "offered before run_at"


def jitter_of_a_failure(bus, goal, reason, delay):
    """Claims and fails one intent and checks its window; returns bounds of the jitter it got.

    Bounds, because only the server knows the moment it counted from.
    """
    job = bus.main.claim(goal)
    before = time.time()
    equal(bus.main.fail(job.id, job.claim_token, reason)["ok"], True)
    after = time.time()
    status = bus.main.get_status(job.id)
    equal((status.status, status.error), ("open", reason))
    within(status.run_at, before + delay - TICK, after + delay + 2 + TICK, "run_at")
    return status.run_at - after - delay, status.run_at - before - delay


@mostly_waits
def real_client_ip_021_ip_120_ip_165_back_off_doubles_and_the_intent_returns(bus):
    intent_id = bus.main.publish("g", 1, backoff_base=1.0).id
    jitter_of_a_failure(bus, "g", "first", 1.0 * 2)
    run_at = bus.main.get_status(intent_id).run_at
    job = eventually(lambda: bus.main.claim("g"), 8, "the failed intent is offered again")
    assert time.time() >= run_at - TICK, "offered before run_at"
    equal((job.id, job.claim_attempts), (intent_id, 2))
    before = time.time()
    bus.main.fail(job.id, job.claim_token, "second")
    after = time.time()
    run_at = bus.main.get_status(intent_id).run_at
    within(run_at, before + 4 - TICK, after + 4 + 2 + TICK, "second run_at")
    job = eventually(lambda: bus.main.claim("g"), 10, "the twice failed intent is offered again")
    equal(job.claim_attempts, 3)
    bus.main.fulfill(job.id, job.claim_token, "at last")
    result = bus.main.get_result(intent_id)
    equal((result.status, result.error), ("fulfilled", None), "fulfilling clears the error")


def real_client_ip_015_ip_025_ip_126_ip_146_ip_147_ip_166_exhausted_intents_are_archived(bus):
    intent_id = bus.main.publish("doomed", {"n": 1}, namespace="ns", max_attempts=1).id
    job = bus.main.claim("doomed", namespace="ns")
    bus.main.fail(job.id, job.claim_token, "cannot be done")
    result = bus.main.get_result(intent_id)
    equal((result.status, result.error), ("dead", "cannot be done"))
    assert not bus.main.claim("doomed", namespace="ns"), "a dead intent was offered"

    letters = bus.admin("GET", "/admin/dead").body
    equal([letter["intent_id"] for letter in letters], [intent_id])
    letter = bus.admin("GET", f"/admin/dead/{intent_id}").body
    equal(
        (letter["goal"], letter["namespace"], letter["attempts"], letter["reason"]),
        ("doomed", "ns", 1, "cannot be done"),
    )
    equal(letter["payload"], {"n": 1})


def real_client_ip_018_ip_145_admin_retry_revives_a_dead_intent(bus):
    intent_id = bus.main.publish("g", "again", max_attempts=1).id
    job = bus.main.claim("g")
    bus.main.fail(job.id, job.claim_token, "first life")
    equal(bus.admin("POST", f"/admin/intents/{intent_id}/retry").status, 200)
    revived = bus.main.get_status(intent_id)
    equal((revived.status, revived.claim_attempts, revived.error), ("open", 0, None))
    equal(bus.admin("GET", f"/admin/dead/{intent_id}").status, 404)
    job = bus.main.claim("g")
    equal((job.id, job.payload, job.claim_attempts), (intent_id, "again", 1))
    bus.main.fulfill(job.id, job.claim_token, "second life")
    equal(bus.main.get_result(intent_id).result, "second life")


def real_client_ip_019_ip_144_admin_cancel_kills_an_open_intent(bus):
    intent_id = bus.main.publish("g", 1).id
    equal(bus.admin("POST", f"/admin/intents/{intent_id}/cancel").body["status"], "dead")
    result = bus.main.get_result(intent_id)
    equal((result.status, result.error), ("dead", "Cancelled by admin"))
    assert not bus.main.claim("g"), "a cancelled intent was offered"
    letter = bus.admin("GET", f"/admin/dead/{intent_id}").body
    equal(letter["reason"], "Cancelled by admin")


def real_client_ip_027_ip_028_ip_044_ip_143_sdk_defaults_arrive_as_published(bus):
    intent_id = bus.main.publish("g", [1]).id
    detail = bus.admin("GET", f"/admin/intents/{intent_id}").body
    equal((detail["max_attempts"], detail["backoff_base"]), (3, 5.0))
    equal((detail["visibility"], detail["priority"], detail["payload"]), ("private", 100, [1]))
    equal(detail["expires_at"] - detail["created_at"], 86400, "life time")

"""From publish to result, idempotent publishing, access to results, and how errors surface."""

import re
import time

from intent_bus import IntentBusAuthError, IntentBusError, IntentBusLeaseLostError

from bus import answers_of
from expect import equal, raises, within

HEX_32 = re.compile(r"[0-9a-f]{32}")
PAYLOADS = [None, True, 0, -1.5, "tëxt ☃", [], {}, {"a": [1, {"b": None}], "z": "é\n\"\\"}]


def real_client_ip_012_ip_013_ip_043_ip_086_ip_103_ip_104_life_cycle(bus):
    published = bus.main.publish("resize", {"width": 640})
    equal(published.status, "published")
    equal(published.namespace, "default")
    assert HEX_32.fullmatch(published.id), published.id
    equal(bus.main.get_status(published.id).status, "open")

    job = bus.main.claim("resize")
    equal(job.id, published.id)
    equal(job.goal, "resize")
    equal(job.payload, {"width": 640})
    equal((job.namespace, job.priority, job.claim_attempts), ("default", 100, 1))
    equal((job.target_worker, job.required_capability), (None, None))
    assert HEX_32.fullmatch(job.claim_token), job.claim_token
    equal(bus.main.get_status(job.id).status, "claimed")

    equal(bus.main.fulfill(job.id, job.claim_token, {"ok": 1})["ok"], True)
    equal(bus.main.get_status(job.id).status, "fulfilled")
    result = bus.main.get_result(job.id)
    equal((result.status, result.result, result.result_type), ("fulfilled", {"ok": 1}, "json"))


def real_client_ip_125_a_result_has_its_fourteen_fields(bus):
    bus.main.publish("g", 1)
    job = bus.main.claim("g")
    bus.main.fulfill(job.id, job.claim_token, {"done": True})
    answers = answers_of(bus.main)
    bus.main.get_result(job.id)
    body = answers[-1].json()
    expected = {
        "id": job.id, "namespace": "default", "goal": "g", "status": "fulfilled", "priority": 100,
        "visibility": "private", "claim_attempts": 1, "claim_expires_at": None,
        "target_worker": None, "required_capability": None, "result": {"done": True},
        "result_type": "json",
    }
    missing = object()
    equal({name: body.get(name, missing) for name in expected}, expected)
    for name in ("run_at", "completed_at"):
        assert isinstance(body[name], (int, float)), f"{name} is {body[name]!r}"


def real_client_ip_009_ip_045_times_are_unix_seconds_and_the_lease_is_60(bus):
    before = time.time()
    bus.main.publish("g", 1)
    job = bus.main.claim("g")
    equal(job.claim_timeout, 60)
    lease_end = bus.main.get_status(job.id).extra["claim_expires_at"]
    within(lease_end, before + 60 - 0.01, time.time() + 60 + 0.01, "claim_expires_at")
    bus.main.fulfill(job.id, job.claim_token, "x")
    result = bus.main.get_result(job.id)
    within(result.completed_at, before - 0.01, time.time() + 0.01, "completed_at")
    within(result.run_at, before - 0.01, time.time() + 0.01, "run_at")
    equal(result.extra["claim_expires_at"], None, "claim_expires_at once fulfilled")


def real_client_ip_033_payloads_of_every_json_kind_reach_the_worker_unchanged(bus):
    for payload in PAYLOADS:
        bus.main.publish("echo", payload)
        job = bus.main.claim("echo")
        equal(job.payload, payload)
        bus.main.fulfill(job.id, job.claim_token)


def real_client_ip_047_ip_113_ip_116_results_come_back_as_json_or_text(bus):
    for result in PAYLOADS[1:]:
        stored = fulfilled_with(bus, result)
        equal((stored.result, stored.result_type), (result, "json"))
    stored = fulfilled_with(bus, '{"not": "decoded"}', "text")
    equal((stored.result, stored.result_type), ('{"not": "decoded"}', "text"))


def fulfilled_with(bus, result, result_type="json"):
    bus.main.publish("g", 0)
    job = bus.main.claim("g")
    bus.main.fulfill(job.id, job.claim_token, result, result_type)
    return bus.main.get_result(job.id)


def real_client_ip_010_ip_117_get_result_works_without_a_result(bus):
    """The SDK refuses a null result_type, so every state must answer with a proper one."""
    open_id = bus.main.publish("open", 0).id
    bus.main.publish("claimed", 0)
    claimed = bus.main.claim("claimed")
    bus.main.publish("bare", 0)
    bare = bus.main.claim("bare")
    bus.main.fulfill(bare.id, bare.claim_token)
    bus.main.publish("dead", 0, max_attempts=1)
    dead = bus.main.claim("dead")
    bus.main.fail(dead.id, dead.claim_token, "no way")

    expected = {open_id: "open", claimed.id: "claimed", bare.id: "fulfilled", dead.id: "dead"}
    for intent_id, status in expected.items():
        found = bus.main.get_result(intent_id)
        equal((found.status, found.result, found.result_type), (status, None, "json"))
    equal(bus.main.get_result(dead.id).error, "no way")


def real_client_ip_091_same_idempotency_key_and_body_is_one_intent(bus):
    first = bus.main.publish("g", {"a": 1, "b": 2}, idempotency_key="order-7")
    again = bus.main.publish("g", {"b": 2, "a": 1}, idempotency_key="order-7")
    equal(again.id, first.id)
    equal(again.status, "published")
    assert bus.main.claim("g"), "the one intent is claimable"
    assert not bus.main.claim("g"), "a replayed publish created a second intent"
    replayed_late = bus.main.publish("g", {"a": 1, "b": 2}, idempotency_key="order-7")
    equal(replayed_late.id, first.id, "the key answers the same once the intent is claimed")


def real_client_ip_092_ip_160_same_idempotency_key_with_another_body_conflicts(bus):
    answers = answers_of(bus.main)
    bus.main.publish("g", 1, idempotency_key="k")
    with raises(IntentBusError, "idempotency_conflict: "):
        bus.main.publish("g", 2, idempotency_key="k")
    equal([answer.status_code for answer in answers], [201, 422])
    with raises(IntentBusError, "idempotency_conflict: "):
        bus.main.publish("g", 1, priority=101, idempotency_key="k")


def real_client_ip_093_idempotency_keys_belong_to_one_api_key(bus):
    ids = {client.publish("g", 1, idempotency_key="k").id for client in (bus.main, bus.tester())}
    equal(len(ids), 2, "number of intents")


def real_client_ip_124_ip_127_results_are_for_publisher_claimer_and_main_key(bus):
    publisher, claimer, stranger = bus.tester("p"), bus.tester("c"), bus.tester("s")
    intent_id = publisher.publish("g", 1, visibility="public").id
    job = claimer.claim("g")
    for reader in (publisher, claimer, bus.main):
        equal(reader.get_status(intent_id).status, "claimed")
    claimer.fulfill(job.id, job.claim_token, "done")
    for reader in (publisher, claimer, bus.main):
        equal(reader.get_result(intent_id).result, "done")
    for read in (stranger.get_result, stranger.get_status):
        with raises(IntentBusAuthError, "forbidden: "):
            read(intent_id)
    assert "result" not in publisher.get_status(intent_id).extra, "status carries no result"


def real_client_ip_157_ip_158_errors_surface_as_code_and_message(bus):
    unknown = "0" * 32
    for read in (bus.main.get_status, bus.main.get_result):
        with raises(IntentBusError, "not_found: "):
            read(unknown)
    for change in (bus.main.fulfill, bus.main.fail, bus.main.extend_claim):
        with raises(IntentBusLeaseLostError, "not_found: "):
            change(unknown, "f" * 32)


def real_client_ip_049_ip_137_keys_work_from_creation_to_revocation(bus):
    with raises(IntentBusAuthError, "unauthorized: "):
        bus.client("tk_" + "0" * 40).claim("g")
    key = bus.tester_key("alice")
    assert re.fullmatch("tk_[0-9a-f]{40}", key), key
    client = bus.client(key)
    client.publish("g", 1)
    equal(bus.admin("POST", "/admin/revoke_key", {"api_key": key}).status, 200)
    with raises(IntentBusAuthError, "unauthorized: "):
        client.claim("g")


def real_client_ip_156_ip_186_the_client_sees_version_2_1(bus):
    bus.main.claim("g")
    bus.main.publish("g", 1)
    equal(bus.main.server_version, "2.1")

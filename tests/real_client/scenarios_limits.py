"""Limits the real client can run into, and numbers the server must clamp instead of refusing."""

from intent_bus import IntentBusError, IntentBusRateLimitError

from bus import answers_of
from expect import equal, raises


def real_client_ip_094_ip_176_the_61st_request_of_a_tester_is_limited(bus):
    """Ends with claim, which the SDK never retries; a publish would sit out its own retries."""
    tester = bus.tester()
    tester.publish("g", 1)
    for _ in range(59):
        tester.claim("nothing")
    with raises(IntentBusRateLimitError, "rate_limited: "):
        tester.claim("nothing")
    assert not bus.tester("other").claim("nothing"), "the limit is per key"


def real_client_ip_177_main_key_and_admin_are_not_rate_limited(bus):
    for _ in range(70):
        bus.main.claim("nothing")
        equal(bus.admin("GET", "/admin/dead").status, 200)


def real_client_ip_034_ip_160_payloads_up_to_7_kib_are_accepted(bus):
    answers = answers_of(bus.main)
    largest = "x" * (7168 - len('""'))
    bus.main.publish("g", largest)
    equal(bus.main.claim("g").payload, largest)
    with raises(IntentBusError, "payload_too_large: "):
        bus.main.publish("g", largest + "x")
    equal(answers[-1].status_code, 413)


def real_client_ip_034_payload_size_counts_utf_8_not_escapes(bus):
    """1200 times é is 2400 bytes of UTF-8, though the SDK sends 7200 bytes of escapes."""
    bus.main.publish("g", "é" * 1200)
    equal(bus.main.claim("g").payload, "é" * 1200)


def real_client_ip_090_bodies_over_8_kib_are_refused_with_a_readable_error(bus):
    answers = answers_of(bus.main)
    for size in (9_000, 60_000):
        with raises(IntentBusError, "payload_too_large: "):
            bus.main.publish("g", "x" * size)
        equal(answers[-1].status_code, 413)
    equal(bus.main.publish("g", "fits").status, "published", "the client stays usable")


def real_client_ip_113_ip_157_results_over_7_kib_are_refused_and_the_lease_stays(bus):
    bus.main.publish("g", 1)
    job = bus.main.claim("g")
    with raises(IntentBusError, "result_too_large: "):
        bus.main.fulfill(job.id, job.claim_token, "x" * 7167)
    bus.main.fulfill(job.id, job.claim_token, "x" * 7166)
    equal(len(bus.main.get_result(job.id).result), 7166)


def real_client_ip_032_ip_035_ip_159_invalid_fields_are_named(bus):
    attempts = (
        ("invalid_goal", {"goal": "g" * 257}),
        ("invalid_namespace", {"namespace": "no spaces"}),
        ("invalid_namespace", {"namespace": "n" * 65}),
        ("invalid_target_worker", {"target_worker": "no spaces"}),
        ("invalid_required_capability", {"required_capability": "a/b"}),
    )
    answers = answers_of(bus.main)
    for code, fields in attempts:
        with raises(IntentBusError, f"{code}: "):
            bus.main.publish(**{"goal": "g", "payload": 1, **fields})
        equal(answers[-1].status_code, 400)
    with raises(IntentBusError, "invalid_namespace: "):
        bus.main.claim("g", namespace="no spaces")
    assert not bus.main.claim(), "a refused publish left an intent behind"
    equal(bus.main.publish("g" * 256, 1).status, "published")


def real_client_ip_039_ip_040_out_of_range_numbers_are_clamped(bus):
    cases = (
        ({"max_attempts": 50}, "max_attempts", 20),
        ({"max_attempts": 20}, "max_attempts", 20),
        ({"backoff_base": 0.2}, "backoff_base", 1.0),
        ({"backoff_base": 99_999}, "backoff_base", 3600.0),
        ({"backoff_base": 3600}, "backoff_base", 3600.0),
    )
    for fields, name, effective in cases:
        intent_id = bus.main.publish("g", 1, **fields).id
        equal(bus.admin("GET", f"/admin/intents/{intent_id}").body[name], effective, str(fields))


def real_client_ip_107_lease_seconds_are_clamped_and_a_huge_ttl_is_accepted(bus):
    bus.main.publish("g", 1)
    job = bus.main.claim("g")
    for seconds, effective in ((5, 10), (1, 10), (9_999, 3600)):
        answer = bus.main.extend_claim(job.id, job.claim_token, seconds)
        equal(answer["extended_by"], effective)
    equal(bus.main.set("k", "v", ttl=999_999), {"ok": True})
    equal(bus.main.get("k"), "v")

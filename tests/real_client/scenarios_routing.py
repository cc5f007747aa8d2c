"""Which worker is offered which intent, and in which order."""

import time

from intent_bus import IntentBusAuthError

from expect import equal, eventually, raises


def real_client_ip_074_ip_075_ip_167_intents_stay_in_their_namespace(bus):
    publisher, stranger = bus.tester("p"), bus.tester("s")
    publisher.publish("g", "blue", namespace="blue")
    publisher.publish("g", "red", namespace="red", visibility="public")
    publisher.publish("g", "default")
    assert not stranger.claim("g"), "public does not mean every namespace"
    equal(publisher.claim("g").payload, "default")
    equal(publisher.claim("g", namespace="blue").payload, "blue")
    equal(stranger.claim("g", namespace="red").payload, "red")
    for namespace in ("default", "blue", "red"):
        assert not publisher.claim("g", namespace=namespace), f"{namespace} should be empty"


def real_client_ip_035_namespaces_with_dots_dashes_and_underscores_work(bus):
    for namespace in ("a", "A.b-c_9", "n" * 64):
        equal(bus.main.publish("g", namespace, namespace=namespace).namespace, namespace)
        equal(bus.main.claim("g", namespace=namespace).payload, namespace)


def real_client_ip_041_ip_079_ip_080_targeted_intents_wait_for_their_worker(bus):
    intent_id = bus.main.publish("g", 1, target_worker="w-1").id
    for worker in (None, "w-2", "w-11", "W-1"):
        assert not bus.main.claim("g", worker_id=worker), f"offered to {worker}"
    job = bus.main.claim("g", worker_id="w-1")
    equal((job.id, job.target_worker), (intent_id, "w-1"))
    bus.main.publish("g", 2)
    equal(bus.main.claim("g", worker_id="anyone").payload, 2)


def real_client_ip_042_ip_081_ip_082_capabilities_match_whole_and_case_sensitive(bus):
    bus.main.publish("g", 1, required_capability="gpu")
    for capabilities in (None, "GPU", ["gpu2"], "gp,u", ["cpu", "gpu-x"]):
        assert not bus.main.claim("g", capabilities=capabilities), f"offered to {capabilities}"
    job = bus.main.claim("g", capabilities=[" ocr ", "gpu"])
    equal((job.payload, job.required_capability), (1, "gpu"))
    bus.main.publish("g", 2)
    equal(bus.main.claim("g", capabilities="anything").payload, 2)


def real_client_ip_036_ip_076_ip_077_private_is_for_the_publisher_public_for_all(bus):
    alice, bob = bus.tester("alice"), bus.tester("bob")
    alice.publish("g", "private")
    alice.publish("g", "public", visibility="public")
    equal(bob.claim("g").payload, "public")
    assert not bob.claim("g"), "bob was offered alice's private intent"
    assert not bus.main.claim("g"), "the main key was offered alice's private intent"
    equal(alice.claim("g").payload, "private")


def real_client_ip_101_only_the_main_key_may_name_another_publisher(bus):
    alice, bob = bus.tester("alice"), bus.tester("bob")
    alice.publish("g", "private")
    bus.main.publish("g", "of the main key", visibility="public", priority=1000)
    with raises(IntentBusAuthError, "forbidden: "):
        bob.claim("g", publisher=alice.api_key)
    assert not bob.claim("g", publisher=bob.api_key), "bob published nothing"
    equal(bus.main.claim("g", publisher=alice.api_key).payload, "private")
    assert not alice.claim("g", publisher=alice.api_key), "already claimed"


def real_client_ip_096_goal_filters_exactly_when_given(bus):
    for goal in ("mail", "mail.send", "Mail"):
        bus.main.publish(goal, goal)
    equal(bus.main.claim("mail").goal, "mail")
    assert not bus.main.claim("mail"), "a prefix is not a match"
    equal({bus.main.claim().goal, bus.main.claim().goal}, {"mail.send", "Mail"})
    assert not bus.main.claim(), "everything is claimed"


def real_client_ip_037_ip_078_higher_priority_first_then_oldest(bus):
    published = ((10, "low"), (500, "mid 1"), (1000, "high"), (500, "mid 2"), (0, "nil"))
    for priority, payload in published:
        bus.main.publish("g", payload, priority=priority)
        # Equal priorities are told apart by run_at, so two publishes must not share a tick.
        time.sleep(0.01)
    order = [bus.main.claim("g") for _ in range(5)]
    equal([job.payload for job in order], ["high", "mid 1", "mid 2", "low", "nil"])
    equal([job.priority for job in order], [1000, 500, 500, 10, 0])


def real_client_ip_038_ip_097_ip_105_delayed_intents_are_offered_when_due(bus):
    published_at = time.time()
    intent_id = bus.main.publish("g", 1, delay=1.5).id
    nothing = bus.main.claim("g")
    equal((bool(nothing), nothing.status_code, nothing.retry_after), (False, 204, 1.0))
    job = eventually(lambda: bus.main.claim("g"), 5, "the delayed intent is offered")
    waited = time.time() - published_at
    equal(job.id, intent_id)
    assert waited >= 1.5, f"offered after {waited:.3f} s"

"""The key-value store as the SDK uses it."""

import time

from intent_bus import IntentBusError

from expect import equal, raises


def real_client_ip_128_ip_130_values_come_back(bus):
    equal(bus.main.set("greeting", "hello"), {"ok": True})
    equal(bus.main.get("greeting"), "hello")
    bus.main.set("greeting", "overwritten")
    equal(bus.main.get("greeting"), "overwritten")
    with raises(IntentBusError, "not_found: "):
        bus.main.get("missing")


def real_client_ip_128_dicts_and_lists_survive_as_json(bus):
    for value in ({}, [], {"a": [1, 2.5, None, True], "é": {"x": "y"}}, [{"n": 1}]):
        bus.main.set("value", value)
        equal(bus.main.get("value"), value)


def real_client_ip_128_scalars_come_back_as_text(bus):
    """Strings that look like other JSON stay strings; numbers come back as decimal text."""
    for value, text in ((5, "5"), (True, "true"), ("false", "false"), ("123", "123"), ("", "")):
        bus.main.set("scalar", value)
        equal(bus.main.get("scalar"), text)


def real_client_ip_058_unusual_keys_are_signed_and_stored(bus):
    """The SDK signs the path as written here, while the wire carries it percent-encoded."""
    keys = ("my ké", "ключ", "a+b", "a:b@c,d", "100%", "~tilde", "dots.and-dashes_")
    for number, key in enumerate(keys):
        equal(bus.main.set(key, f"value {number}", ttl=60), {"ok": True}, key)
    for number, key in enumerate(keys):
        equal(bus.main.get(key), f"value {number}", key)


def real_client_ip_058_a_key_already_percent_encoded_names_the_decoded_key(bus):
    bus.main.set("my%20key", "same")
    equal(bus.main.get("my key"), "same")


def real_client_ip_131_entries_are_gone_after_their_ttl(bus):
    bus.main.set("short", "1", ttl=1)
    bus.main.set("long", "1", ttl=60)
    equal(bus.main.get("short"), "1")
    time.sleep(1.3)
    with raises(IntentBusError, "not_found: "):
        bus.main.get("short")
    equal(bus.main.get("long"), "1")


def real_client_ip_132_keys_are_private_to_the_api_key(bus):
    alice, bob = bus.tester("alice"), bus.tester("bob")
    alice.set("k", "of alice")
    for other in (bob, bus.main):
        with raises(IntentBusError, "not_found: "):
            other.get("k")
    bob.set("k", "of bob")
    equal((alice.get("k"), bob.get("k")), ("of alice", "of bob"))

"""Many workers on one queue, also while the server is stopped or killed: nothing lost, no double.

Delivery is at-least-once, so across a crash a job may run twice; what must never happen is a job
that is gone, dead without reason, or held by two live leases.
"""

import collections
import contextlib
import threading
import time

from intent_bus import IntentBusError

from expect import equal, eventually

JOBS = 200
WORKERS = 8
JOBS_AROUND_A_RESTART = 120


class Tally:
    """Counts how often each payload was worked on, from many threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._counts = collections.Counter()

    def add(self, payload):
        with self._lock:
            self._counts[payload] += 1

    def total(self):
        with self._lock:
            return sum(self._counts.values())

    def counts(self):
        with self._lock:
            return dict(self._counts)


def real_client_ip_003_ip_004_ip_021_ip_163_workers_share_a_queue_without_doubles(bus):
    tally = Tally()
    ids = [bus.main.publish("drain", number).id for number in range(JOBS)]
    with working(bus, lambda number: tally.add(number)):
        eventually(lambda: tally.total() >= JOBS, 60, "the queue is drained")
    equal(tally.counts(), {number: 1 for number in range(JOBS)})
    for intent_id in ids:
        status = bus.main.get_status(intent_id)
        equal((status.status, status.claim_attempts), ("fulfilled", 1))


def real_client_ip_004_ip_095_one_of_many_racing_claimers_wins(bus):
    rounds = 15
    barrier = threading.Barrier(WORKERS)
    won = collections.defaultdict(list)

    def race(client):
        for number in range(rounds):
            barrier.wait(30)
            job = client.claim(f"race-{number}")
            if job:
                won[number].append(job.claim_token)

    for number in range(rounds):
        bus.main.publish(f"race-{number}", number)
    racers = [threading.Thread(target=race, args=(bus.client(),)) for _ in range(WORKERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    equal([len(won[number]) for number in range(rounds)], [1] * rounds, "winners per round")
    equal(len({token for tokens in won.values() for token in tokens}), rounds, "tokens")


def real_client_ip_002_ip_006_a_clean_restart_in_mid_drain_loses_nothing(bus):
    drain_through_a_stop(bus, bus.server.terminate)


def real_client_ip_002_ip_006_a_kill_in_mid_drain_loses_nothing(bus):
    drain_through_a_stop(bus, bus.server.kill)


def drain_through_a_stop(bus, stop):
    tally = Tally()
    expected = {
        bus.main.publish("drain", number, max_attempts=20).id: number
        for number in range(JOBS_AROUND_A_RESTART)
    }

    def handler(number):
        tally.add(number)
        time.sleep(0.05)
        return number * 2

    with working(bus, handler):
        eventually(lambda: tally.total() >= 20, 30, "the drain is under way")
        stop()
        assert tally.total() < JOBS_AROUND_A_RESTART, "stopped too late to prove anything"
        bus.server.start()
        unfinished = wait_while(bus, set(expected), ("open",), 30)
        # A worker that lost the connection reports again after two and four seconds.
        unfinished = wait_while(bus, unfinished, ("claimed",), 8)
        # What is left was claimed by an answer that never arrived. Its lease of 60 s would free
        # it; the admin frees it sooner.
        for intent_id in unfinished:
            bus.admin("POST", f"/admin/intents/{intent_id}/retry")
        unfinished = wait_while(bus, unfinished, ("open", "claimed"), 15)
    equal(unfinished, set(), "intents that never finished")
    for intent_id, number in expected.items():
        result = bus.main.get_result(intent_id)
        equal((result.status, result.result), ("fulfilled", number * 2))
    equal(set(tally.counts()), set(expected.values()), "payloads worked on")


def wait_while(bus, ids, statuses, seconds):
    """Waits until no intent is in `statuses` or time is up; returns those not yet fulfilled."""
    deadline = time.monotonic() + seconds
    while True:
        found = {intent_id: bus.main.get_status(intent_id).status for intent_id in ids}
        ids = {intent_id for intent_id, status in found.items() if status != "fulfilled"}
        if time.monotonic() > deadline or not any(found[i] in statuses for i in ids):
            return ids
        time.sleep(0.2)


def real_client_ip_006_ip_091_publishing_through_a_kill_creates_each_intent_once(bus):
    """Every call is repeated under its idempotency key until it is answered."""
    ids = {}

    def publish_all():
        client = bus.client()
        for number in range(JOBS_AROUND_A_RESTART):
            deadline = time.monotonic() + 30
            while number not in ids and time.monotonic() < deadline:
                with contextlib.suppress(IntentBusError):
                    ids[number] = client.publish("p", number, idempotency_key=f"key-{number}").id

    publisher = threading.Thread(target=publish_all)
    publisher.start()
    eventually(lambda: len(ids) >= 30, 30, "publishing is under way")
    bus.server.kill()
    assert len(ids) < JOBS_AROUND_A_RESTART, "killed too late to prove anything"
    bus.server.start()
    publisher.join(60)

    equal(sorted(ids), list(range(JOBS_AROUND_A_RESTART)), "answered publishes")
    claimed = {}
    while job := bus.main.claim("p"):
        assert job.payload not in claimed, f"payload {job.payload} exists twice"
        claimed[job.payload] = job.id
    equal(claimed, ids, "intents found after the kill")


@contextlib.contextmanager
def working(bus, handler):
    """Runs WORKERS real worker loops, each with a client of its own."""
    with contextlib.ExitStack() as stack:
        for number in range(WORKERS):
            stack.enter_context(bus.worker("drain", handler, worker_id=f"worker-{number}"))
        yield

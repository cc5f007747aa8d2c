"""WorkerRuntime, the package's polling loop: what each handler outcome becomes on the server."""

from expect import equal, eventually


def finished(bus, intent_id):
    """Waits until the worker has reported, one way or the other."""
    eventually(
        lambda: bus.main.get_status(intent_id).status in ("fulfilled", "dead"),
        10,
        f"intent {intent_id} is finished",
    )
    result = bus.main.get_result(intent_id)
    return result.status, result.result, result.result_type, result.error


def real_client_ip_013_ip_113_ip_117_handler_values_become_results(bus):
    outcomes = (
        (None, (None, "json")),
        ({"a": 1}, ({"a": 1}, "json")),
        (["list", 2], (["list", 2], "json")),
        (True, (True, "json")),
        (0, (0, "json")),
        ("text", ("text", "json")),
        ({"result": "plain", "result_type": "text"}, ("plain", "text")),
        ({"result": {"wrapped": 1}}, ({"wrapped": 1}, "json")),
        ({"result": 1, "more": 2}, ({"result": 1, "more": 2}, "json")),
    )
    ids = [bus.main.publish("g", number).id for number in range(len(outcomes))]
    with bus.worker("g", lambda number: outcomes[number][0]):
        for intent_id, (_, (result, result_type)) in zip(ids, outcomes):
            equal(finished(bus, intent_id), ("fulfilled", result, result_type, None))


def real_client_ip_015_ip_046_ip_120_rejections_and_crashes_become_failures(bus):
    def handler(payload):
        if payload == "crash":
            raise RuntimeError("disk full: /dev/sdé")
        return {"reject": False, "half an envelope": {"result_type": "text"}}[payload]

    errors = {
        "reject": "Worker handler returned False",
        "crash": "disk full: /dev/sdé",
        "half an envelope": "Handler returned 'result_type' without a 'result'",
    }
    ids = {name: bus.main.publish("g", name, max_attempts=1).id for name in errors}
    with bus.worker("g", handler):
        for name, error in errors.items():
            equal(finished(bus, ids[name]), ("dead", None, "json", error))


def real_client_ip_046_a_long_error_is_kept_and_of_a_very_long_one_its_ends(bus):
    def error_after(text):
        def handler(_):
            raise RuntimeError(text)

        intent_id = bus.main.publish("g", 1, max_attempts=1).id
        with bus.worker("g", handler):
            return finished(bus, intent_id)[3]

    equal(error_after("x" * 2000), "x" * 2000)
    kept = error_after("a" * 10_000 + "z" * 10_000)
    equal((kept[0], kept[-1], len(kept) <= 8192), ("a", "z", True))


def real_client_ip_103_full_envelope_hands_over_the_whole_claim(bus):
    seen = []
    intent_id = bus.main.publish(
        "g", {"n": 1}, namespace="ns", priority=7, target_worker="w1", required_capability="gpu"
    ).id
    options = {"namespace": "ns", "full_envelope": True, "worker_id": "w1", "capabilities": ["gpu"]}
    with bus.worker("g", lambda job: seen.append(job), **options):
        equal(finished(bus, intent_id)[0], "fulfilled")
    (job,) = seen
    equal(len(job.pop("claim_token")), 32)
    equal(job, {**job, **{
        "id": intent_id,
        "goal": "g",
        "payload": {"n": 1},
        "namespace": "ns",
        "claim_attempts": 1,
        "priority": 7,
        "claim_timeout": 60,
        "target_worker": "w1",
        "required_capability": "gpu",
    }})


def real_client_ip_014_a_worker_retries_a_failing_job_until_it_succeeds(bus):
    attempts = []

    def handler(job):
        attempts.append(job["claim_attempts"])
        if len(attempts) == 1:
            raise RuntimeError("flaky")
        return "recovered"

    intent_id = bus.main.publish("g", 1, backoff_base=1.0).id
    with bus.worker("g", handler, full_envelope=True):
        equal(finished(bus, intent_id), ("fulfilled", "recovered", "json", None))
    equal(attempts, [1, 2])


def real_client_ip_105_an_idle_worker_keeps_polling_and_sees_late_work(bus):
    with bus.worker("late", lambda payload: payload + 1):
        for number in range(3):
            equal(bus.main.claim("nothing").status_code, 204)
            intent_id = bus.main.publish("late", number).id
            equal(finished(bus, intent_id)[1], number + 1)

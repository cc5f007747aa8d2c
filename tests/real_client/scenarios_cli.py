"""The package's command line: it exits with 0 even after API errors, so its lines are checked."""

import json
import pathlib
import re
import signal
import subprocess

from expect import equal, eventually
from server import BUS_SECRET


def line_of(run, level, event):
    """The message of the one output line with this level and event."""
    pattern = rf"^\[\d\d:\d\d:\d\d\] {level:<5} \| {event:<12} \| (.*)$"
    found = re.findall(pattern, run.stdout, re.MULTILINE)
    assert len(found) == 1, f"no single {level} {event} line in:\n{run.stdout}{run.stderr}"
    return found[0]


def published_id(run):
    message = line_of(run, "INFO", "pub_done")
    found = re.fullmatch(r"ID: ([0-9a-f]{32}) \| Status: published", message)
    assert found, message
    return found.group(1)


def printed_json(run):
    """What the command line prints between its two rules."""
    return json.loads(run.stdout.split("─" * 40)[1])


def real_client_ip_012_ip_013_ip_086_cli_publish_listen_status_result(bus):
    payload = {"to": "é@example.org", "api_key": "hidden"}
    intent_id = published_id(bus.cli("publish", "mail", json.dumps(payload), "--priority", "900"))
    status = bus.cli("status", intent_id)
    equal(line_of(status, "INFO", "status"), f"ID: {intent_id} | State: open | Goal: mail")

    listen = bus.cli("listen", "mail", "--once", "-w", "cli-worker", "-c", "mail,sms")
    equal(listen.returncode, 0, listen.stderr)
    equal(line_of(listen, "INFO", "claiming"), f"ID: {intent_id}")
    equal(line_of(listen, "INFO", "fulfilled"), f"ID: {intent_id}")
    equal(printed_json(listen), {"to": "é@example.org", "api_key": "********"})

    result = bus.cli("result", intent_id)
    equal(line_of(result, "INFO", "result"), f"ID: {intent_id} | Type: json")
    equal(printed_json(result), {"status": "processed_by_cli"})


def real_client_ip_105_ip_117_cli_with_nothing_to_do_and_nothing_to_show(bus):
    listen = bus.cli("listen", "mail", "--once")
    equal(listen.returncode, 0, listen.stderr)
    equal(line_of(listen, "INFO", "idle"), "No jobs found for mail.")
    intent_id = bus.main.publish("mail", 1).id
    result = bus.cli("result", intent_id)
    equal(line_of(result, "INFO", "result"), f"ID: {intent_id} | Type: json")
    equal(printed_json(result), None)


def real_client_ip_046_ip_092_ip_157_cli_shows_errors_of_intents_and_server(bus):
    intent_id = bus.main.publish("mail", 1).id
    job = bus.main.claim("mail")
    bus.main.fail(job.id, job.claim_token, "mailbox full")
    equal(line_of(bus.cli("status", intent_id), "WARN", "error"), "Last Error: mailbox full")

    unknown = bus.cli("status", "0" * 32)
    assert line_of(unknown, "ERROR", "api_err").startswith("not_found: "), unknown.stdout
    published_id(bus.cli("publish", "mail", "1", "--idempotency", "k"))
    conflict = bus.cli("publish", "mail", "2", "--idempotency", "k")
    message = line_of(conflict, "ERROR", "pub_err")
    assert message.startswith("idempotency_conflict: "), message


def real_client_ip_049_cli_takes_its_key_from_the_home_directory(bus):
    home = pathlib.Path(bus.server.directory.name, "home")
    home.mkdir()
    key_file = home / ".apikey"
    key_file.touch(mode=0o600)
    key_file.write_text(BUS_SECRET + "\n")
    published_id(bus.cli("publish", "mail", "{}", key=None, home=home))
    key_file.write_text("unknown\n")
    refused = bus.cli("publish", "mail", "{}", key=None, home=home)
    assert line_of(refused, "ERROR", "pub_err").startswith("unauthorized: "), refused.stdout


def real_client_ip_079_ip_081_cli_options_reach_the_server(bus):
    intent_id = published_id(bus.cli(
        "publish", "render", '{"n": 1}', "-n", "media", "-p", "--priority", "7",
        "--max-attempts", "9", "--backoff", "2.5", "--target", "w1", "--capability", "gpu",
    ))
    detail = bus.admin("GET", f"/admin/intents/{intent_id}").body
    fields = ("namespace", "visibility", "priority", "max_attempts", "backoff_base")
    equal([detail[field] for field in fields], ["media", "public", 7, 9, 2.5])
    wrong = bus.cli("listen", "render", "--once", "-n", "media", "-w", "w2", "-c", "gpu")
    equal(line_of(wrong, "INFO", "idle"), "No jobs found for render.")
    right = bus.cli(
        "listen", "render", "--once", "-n", "media", "-w", "w1", "-c", "cpu,gpu",
        "--publisher", BUS_SECRET,
    )
    equal(line_of(right, "INFO", "fulfilled"), f"ID: {intent_id}")


def real_client_ip_013_cli_listen_works_until_interrupted(bus):
    worker = subprocess.Popen(
        bus.cli_command("listen", "mail", "--interval", "0.1"),
        env=bus.cli_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        # A run that was started in the background ignores interrupts, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        ids = [bus.main.publish("mail", {"n": number}).id for number in range(3)]
        for intent_id in ids:
            eventually(lambda: bus.main.get_status(intent_id).status == "fulfilled", 15, intent_id)
            equal(bus.main.get_result(intent_id).result, {"status": "processed_by_cli"})
        worker.send_signal(signal.SIGINT)
        stdout, stderr = worker.communicate(timeout=10)
        equal(worker.returncode, 0, stderr)
        assert "Target: default/mail" in stdout, stdout
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.communicate()

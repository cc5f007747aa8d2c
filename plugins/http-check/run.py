#!/usr/bin/env python3
"""http-check: tells when a web address stops or starts to answer as it should.

Each address has a thread and all of them share one deadline, so that no server can hold up the others or the plugin, however
slowly it speaks. The state is the last answer of each address; an event is a difference to it.
"""

import datetime
import json
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

PROTOCOL = 2
EXIT_CONFIG = 78
URLS_MAX = 100
# Addresses of payloads come and go; those not seen for longest are forgotten first.
STATE_MAX = 500
REDIRECTS_MAX = 5
REASON_CHARS_MAX = 300
CHUNK_BYTES = 64 * 1024


class Unfit(Exception):
    """A configuration or payload that no retry makes better."""


class Fault(Exception):
    """What makes an address down, in words for people."""


class Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = REDIRECTS_MAX
    max_repeats = 1


def poll(request):
    config = members(request, "config")
    return compare(request, targets(config, config.get("urls"), "config.urls"))


def handle(request):
    config = members(request, "config")
    payload = members(members(request, "event"), "payload")
    wanted = payload.get("urls") or ([payload["url"]] if payload.get("url") else None)
    if wanted is None:
        return poll(request)
    if config.get("allow_payload_urls") is not True:
        raise Unfit("the payload names addresses; set config.allow_payload_urls: true to have them asked")
    return compare(request, targets(config, wanted, "payload.urls"))


def health(request):
    config = members(request, "config")
    found = targets(config, config.get("urls"), "config.urls")
    return {"result": f"{len(found)} addresses configured"}


def targets(config, urls, where):
    """The addresses, each with what is expected of it."""
    if not isinstance(urls, list) or len(urls) > URLS_MAX:
        raise Unfit(f"{where} must be a list of at most {URLS_MAX} addresses")
    found = {}
    for item in urls:
        # An address of a payload chooses nothing but itself.
        own = item if isinstance(item, dict) and where.startswith("config") else {}
        url = own.get("url") if own else item
        check_url(url, where)
        keys = ("expected_status", "max_latency_ms", "contains")
        rule = {key: config.get(key) if own.get(key) is None else own[key] for key in keys}
        found[url] = check_rule(rule)
    return found


def check_url(url, where):
    try:
        parts = urllib.parse.urlsplit(url) if isinstance(url, str) else None
        fits = parts is not None and parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        fits = fits and parts.port != 0 and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        fits = False
    if not fits:
        raise Unfit(f"{where}: {url!r:.200} is no http or https address (without user and password)")


def check_rule(rule):
    status = 200 if rule["expected_status"] is None else rule["expected_status"]
    rule["expected_status"] = status if isinstance(status, list) else [status]
    if not all(is_number(one) and 100 <= one <= 599 for one in rule["expected_status"]):
        raise Unfit("expected_status must be a status such as 200, or a list of them")
    if rule["max_latency_ms"] is not None and not (is_number(rule["max_latency_ms"]) and rule["max_latency_ms"] > 0):
        raise Unfit("max_latency_ms must be a number above 0")
    if rule["contains"] is not None and not isinstance(rule["contains"], str):
        raise Unfit("contains must be a text")
    return rule


def compare(request, wanted):
    config = members(request, "config")
    known = members(members(request, "state"), "checks")
    answers = ask_all(wanted, bounded(config, "timeout_seconds", 10, 300), config)
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    checks, events = dict(known), []
    for url, answer in answers.items():
        before = known.get(url) if isinstance(known.get(url), dict) else {}
        changed = before.get("up") is not answer["up"]
        since = now if changed else before.get("since", now)
        checks[url] = {**answer, "since": since, "checked_at": now}
        # An address that is up from the start is no news.
        if changed and (before or not answer["up"]):
            kind = "http_check.up" if answer["up"] else "http_check.down"
            # The same change from the same state is the same event, however often it is found.
            key = f"{kind}:{url}:{before.get('since', 'first')}"
            events.append({"type": kind, "payload": {"url": url, **answer, "since": since}, "dedupe_key": key})
    down = sum(not answer["up"] for answer in answers.values())
    if config.get("allow_payload_urls") is not True:
        checks = {url: check for url, check in checks.items() if url in answers}
    return {
        "result": f"{len(answers) - down} of {len(answers)} addresses are up",
        "events": events,
        "state_updates": {"checks": newest(checks)},
    }


def newest(checks):
    checks = {url: check for url, check in checks.items() if isinstance(check, dict)}
    seen = sorted(checks, key=lambda url: str(checks[url].get("checked_at")), reverse=True)
    return {url: checks[url] for url in seen[:STATE_MAX]}


def ask_all(wanted, timeout_seconds, config):
    answers = {}
    threads = []
    for url, rule in wanted.items():
        def work(url=url, rule=rule):
            answers[url] = ask(url, rule, timeout_seconds, config)

        # A daemon, for a server that speaks slowly must not keep the process.
        threads.append(threading.Thread(target=work, daemon=True))
    deadline = time.monotonic() + timeout_seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    late = {"up": False, "status": None, "latency_ms": None, "reason": f"no whole answer within {timeout_seconds} s"}
    return {url: answers.get(url, late) for url in wanted}


def ask(url, rule, timeout_seconds, config):
    started = time.monotonic()
    status, reason = None, None
    try:
        with opened(url, timeout_seconds, config) as response:
            status = response.status
            body = beginning(response, bounded(config, "body_bytes_max", 1 << 20, 64 << 20))
        reason = fault(rule, status, body, (time.monotonic() - started) * 1000)
    except Fault as fault_found:
        reason = str(fault_found)
    except Exception as error:  # Whatever a server does to us makes it down, and nothing else.
        reason = f"{type(error).__name__}: {error}"
    return {
        "up": reason is None,
        "status": status,
        "latency_ms": round((time.monotonic() - started) * 1000),
        "reason": reason and reason.encode("ascii", "backslashreplace").decode()[:REASON_CHARS_MAX],
    }


def opened(url, timeout_seconds, config):
    # Without the handlers for files and FTP, to which a redirect could lead.
    opener = urllib.request.OpenerDirector()
    handlers = [
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ]
    if config.get("follow_redirects") is not False:
        handlers.append(Redirects())
    for handler in handlers:
        opener.add_handler(handler)
    opener.addheaders = [("User-Agent", "consign-http-check/1.0")]
    try:
        return opener.open(url, timeout=timeout_seconds)
    except urllib.error.HTTPError as error:
        if error.code in (301, 302, 303, 307, 308) and config.get("follow_redirects") is not False:
            raise Fault(f"more than {REDIRECTS_MAX} redirects, a loop of them, or one that leads nowhere") from error
        return error


def beginning(response, bytes_max):
    kept = b""
    while len(kept) < bytes_max:
        chunk = response.read(min(CHUNK_BYTES, bytes_max - len(kept)))
        if not chunk:
            # Read in portions, a body that was cut off looks like one that has ended.
            if getattr(response, "length", None):
                raise Fault("the body ended before its announced length")
            break
        kept += chunk
    return kept


def fault(rule, status, body, latency_ms):
    if status not in rule["expected_status"]:
        return f"status {status}"
    if rule["max_latency_ms"] is not None and latency_ms > rule["max_latency_ms"]:
        return f"answered after {latency_ms:.0f} ms, later than {rule['max_latency_ms']} ms"
    if rule["contains"] is not None and rule["contains"].encode() not in body:
        return f"the body does not contain {rule['contains']!r}"
    return None


def bounded(config, key, default, most):
    value = config.get(key)
    if value is None:
        return default
    if not is_number(value) or not 0 < value <= most:
        raise Unfit(f"config.{key} must be a number above 0 and at most {most}")
    return value


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def members(value, key):
    """The object under a key; what is absent, null or something else is empty."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


COMMANDS = {"poll": poll, "handle": handle, "health": health}


def main():
    try:
        request = json.load(sys.stdin)
        if not isinstance(request, dict) or request.get("protocol") != PROTOCOL:
            raise Unfit(f"this plugin speaks protocol {PROTOCOL} only")
        command = COMMANDS.get(request.get("command"))
        if command is None:
            raise Unfit(f"unknown command: {request.get('command')}")
        answer, code = {"status": "ok", **command(request)}, 0
    except Unfit as unfit:
        answer, code = {"status": "error", "error": str(unfit), "retry": False}, EXIT_CONFIG
    print(json.dumps(answer), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""What schemathesis must not do to the server, for its own sake."""

import itertools

import schemathesis

# Long polls are honoured, so a few honest waits would use up the whole budget.
LONGEST_WAIT_SECONDS = 0.05


clients = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    number = next(clients)
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    case.headers["X-Forwarded-For"] = address
    query = case.query or {}
    # Beam shortens a longer wait, and the others refuse it.
    longest = float("inf") if case.operation.path == "/v1/beam/poll" else 30
    try:
        too_long = LONGEST_WAIT_SECONDS < float(query.get("wait", 0)) <= longest
    except (TypeError, ValueError):
        return
    if too_long:
        query["wait"] = LONGEST_WAIT_SECONDS

#!/usr/bin/env python3
"""{{name}}: one request on standard input, one answer on standard output, then the end.

Standard error is kept with the job, so write there whatever helps to understand a failure.
"""

import json
import sys

PROTOCOL = 2
EXIT_CONFIG = 78  # Tells the core that a retry cannot help.


def poll(request):
    state = request.get("state") or {}
    polls = int(state.get("polls") or 0) + 1
    event = {"type": "{{name}}.polled", "payload": {"job_id": request.get("job_id"), "polls": polls}}
    return {"result": f"polled {polls} times", "events": [event], "state_updates": {"polls": polls}}


def handle(request):
    event = request.get("event") or {}
    return {"result": f"handled {event.get('type', 'an event')}"}


def health(request):
    return {"result": "healthy"}


COMMANDS = {"poll": poll, "handle": handle, "health": health}


def main():
    request = json.load(sys.stdin)
    if request.get("protocol") != PROTOCOL:
        answer = {"status": "error", "error": f"this plugin speaks protocol {PROTOCOL} only", "retry": False}
        print(json.dumps(answer))
        return EXIT_CONFIG
    command = COMMANDS.get(request.get("command"))
    if command is None:
        answer = {"status": "error", "error": f"unknown command: {request.get('command')}", "retry": False}
    else:
        answer = {"status": "ok", **command(request)}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""file-watch: tells which files are new, changed or gone since the last look.

A change is in the state only once it was told, so a flood is told in portions and nothing of it is lost. What cannot be read
is taken for unchanged: a directory that is unreadable for a while has not lost its files. Links are not followed.
"""

import datetime
import fnmatch
import json
import os
import stat
import sys

PROTOCOL = 2
EXIT_CONFIG = 78
PATHS_MAX = 100
# Looked at in all; a tree with more is not what this plugin is for.
ENTRIES_MAX = 200_000
# The core keeps a mebibyte of state for a plugin.
STATE_BYTES_MAX = 1_000_000


class Unfit(Exception):
    """A configuration that no retry makes better."""


def poll(request):
    config = members(request, "config")
    files_max = bounded(config, "files_max", 5_000, 20_000)
    events_max = bounded(config, "events_max", 100, 1_000)
    known = members(request, "state").get("files")
    is_first = not isinstance(known, dict)
    known = {} if is_first else {path: seen for path, seen in known.items() if is_mark(seen)}
    found, unread = look(config)
    logs = [{"level": "warn", "message": f"cannot be read, and is taken for unchanged: {path}"} for path in unread[:20]]
    for path, mark in known.items():
        if path not in found and any(path.startswith(directory) for directory in unread):
            found[path] = mark
    if len(found) > files_max:
        raise Unfit(f"{len(found)} files match, more than config.files_max ({files_max}); narrow `paths` or `glob`")

    if is_first and config.get("report_existing") is not True:
        return answer(found, [], 0, logs)
    changes = sorted(path for path in {*known, *found} if known.get(path) != found.get(path))
    left = max(0, len(changes) - events_max)
    snapshot, events = dict(known), []
    for path in changes[:events_max]:
        events.append(event(path, known.get(path), found.get(path)))
        snapshot.pop(path, None)
        if path in found:
            snapshot[path] = found[path]
    return answer(snapshot, events, left, logs)


def answer(snapshot, events, left, logs):
    state = {"files": snapshot}
    if len(json.dumps(state)) > STATE_BYTES_MAX:
        raise Unfit("the names of the files are too long to be kept; narrow `paths` or `glob`")
    rest = f", {left} more are told next time" if left else ""
    result = f"{len(snapshot)} files, {len(events)} changes{rest}"
    return {"result": result, "events": events, "state_updates": state, "logs": logs}


def event(path, before, after):
    kind = "removed" if after is None else "created" if before is None else "changed"
    payload = {"path": path}
    if after is not None:
        size, modified_ns = after
        payload.update(size=size, modified_at=instant(modified_ns))
    # No dedupe_key: the state is kept together with the events, and a file that comes again with its old time is news.
    return {"type": f"file_watch.{kind}", "payload": payload}


def instant(nanoseconds):
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    try:
        return (epoch + datetime.timedelta(microseconds=nanoseconds // 1000)).isoformat()
    except OverflowError:
        return None  # Files may have times that no calendar has.


def health(request):
    paths = watched(members(request, "config"))
    missing = [path for path in paths if not os.access(path, os.R_OK)]
    if missing:
        return {"status": "error", "error": f"cannot be read: {', '.join(missing)}", "retry": False}
    return {"result": f"{len(paths)} paths can be read"}


def look(config):
    """Size and time of every file that matches, and the directories that could not be read."""
    pattern = config.get("glob") or "*"
    if not isinstance(pattern, str):
        raise Unfit("config.glob must be a text such as *.csv")
    recursive = config.get("recursive") is not False
    found, unread, entries = {}, [], 0
    for root in watched(config):
        try:
            if stat.S_ISREG(os.stat(root).st_mode):
                found[shown(root)] = mark(os.stat(root))
                continue
        except OSError:
            # Gone, or a directory on a disk that is away. A file that was watched itself is gone; nothing lies below it.
            unread.append(shown(root) + os.sep)
            continue
        waiting = [root]
        while waiting:
            directory = waiting.pop()
            try:
                with os.scandir(directory) as listing:
                    for entry in listing:
                        entries += 1
                        if entries > ENTRIES_MAX:
                            raise Unfit(f"more than {ENTRIES_MAX} entries below config.paths; narrow it")
                        look_at(entry, root, pattern, found, waiting if recursive else [])
            except OSError:
                unread.append(shown(directory) + os.sep)
    return found, unread


def look_at(entry, root, pattern, found, waiting):
    try:
        if entry.is_dir(follow_symlinks=False):
            waiting.append(entry.path)
            return
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return  # It went away since it was listed.
    inside = os.path.relpath(entry.path, root) if "/" in pattern else entry.name
    if stat.S_ISREG(status.st_mode) and fnmatch.fnmatchcase(inside, pattern):
        found[shown(entry.path)] = mark(status)


def mark(status):
    return [status.st_size, status.st_mtime_ns]


def is_mark(seen):
    return isinstance(seen, list) and len(seen) == 2 and all(isinstance(part, int) for part in seen)


def shown(path):
    """A path as text; bytes that are none are written as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def watched(config):
    paths = config.get("paths")
    paths = [paths] if isinstance(paths, str) else paths
    if not isinstance(paths, list) or not 0 < len(paths) <= PATHS_MAX:
        raise Unfit(f"config.paths must be a list of 1 to {PATHS_MAX} paths")
    for path in paths:
        if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
            raise Unfit(f"config.paths: {path!r:.200} is no absolute path")
    return [os.path.normpath(path) for path in paths]


def bounded(config, key, default, most):
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
        raise Unfit(f"config.{key} must be a whole number from 1 to {most}")
    return value


def members(value, key):
    """The object under a key; what is absent, null or something else is empty."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


COMMANDS = {"poll": poll, "health": health}


def main():
    try:
        request = json.load(sys.stdin)
        if not isinstance(request, dict) or request.get("protocol") != PROTOCOL:
            raise Unfit(f"this plugin speaks protocol {PROTOCOL} only")
        command = COMMANDS.get(request.get("command"))
        if command is None:
            raise Unfit(f"unknown command: {request.get('command')}")
        answered, code = {"status": "ok", **command(request)}, 0
    except Unfit as unfit:
        answered, code = {"status": "error", "error": str(unfit), "retry": False}, EXIT_CONFIG
    print(json.dumps(answered), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""The few assertions scenarios share; each says what it saw when it fails."""

import contextlib
import time


def equal(actual, expected, what=""):
    assert actual == expected, f"{what or 'value'}: expected {expected!r}, got {actual!r}"


def within(value, low, high, what=""):
    """Half-open like the protocol's back-off window: low is allowed, high is not."""
    assert low <= value < high, f"{what or 'value'}: {value!r} is outside [{low!r}, {high!r})"


@contextlib.contextmanager
def raises(kind, text=""):
    """The block must raise exactly `kind` (no subclass), its text starting with `text`.

    Exactness matters: every SDK exception derives from IntentBusError, and callers branch on
    the most specific one.
    """
    try:
        yield
    except Exception as error:
        assert type(error) is kind, f"expected {kind.__name__}, got {type(error).__name__}: {error}"
        assert str(error).startswith(text), f"expected text starting {text!r}, got {str(error)!r}"
    else:
        raise AssertionError(f"expected {kind.__name__} {text!r}, but nothing was raised")


def eventually(condition, seconds, what):
    """Polls until `condition()` is truthy and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"still not true after {seconds} s: {what}"
        time.sleep(0.05)

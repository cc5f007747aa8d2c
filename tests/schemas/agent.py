"""An agent with a key: signs an intent as ATP asks for it.

Ed25519 as in RFC 8032, written out because Python has none of its own. It is slow and leaks its key by the time it takes,
which does not matter for a key that is made for one run.
"""

import base64
import datetime
import hashlib
import json
import os

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
CURVE = -121665 * pow(121666, PRIME - 2, PRIME) % PRIME
BASE_Y = 4 * pow(5, PRIME - 2, PRIME) % PRIME


def even_x(y):
    """The even x of the point with this y."""
    square = (y * y - 1) * pow(CURVE * y * y + 1, PRIME - 2, PRIME)
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if (x * x - square) % PRIME:
        x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    return x if x % 2 == 0 else PRIME - x


def add(one, other):
    (x1, y1), (x2, y2) = one, other
    product = CURVE * x1 * x2 * y1 * y2 % PRIME
    x = (x1 * y2 + x2 * y1) * pow(1 + product, PRIME - 2, PRIME)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, PRIME - 2, PRIME)
    return x % PRIME, y % PRIME


def times_base(scalar):
    found, power = (0, 1), (even_x(BASE_Y), BASE_Y)
    while scalar:
        if scalar % 2:
            found = add(found, power)
        power, scalar = add(power, power), scalar // 2
    return found


def encoded(point):
    x, y = point
    return (y | (x % 2) << 255).to_bytes(32, "little")


def number(*parts):
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


class Agent:
    def __init__(self, seed=None):
        digest = hashlib.sha512(seed or os.urandom(32)).digest()
        self.secret = int.from_bytes(digest[:32], "little") & (2**254 - 8) | 2**254
        self.prefix = digest[32:]
        self.public = encoded(times_base(self.secret))

    def sign(self, message):
        chosen = number(self.prefix, message) % ORDER
        point = encoded(times_base(chosen))
        answer = chosen + number(point, self.public, message) * self.secret
        return point + (answer % ORDER).to_bytes(32, "little")

    def intent(self, site, name):
        """A signed intent that is good for ten minutes."""
        now = datetime.datetime.now(datetime.timezone.utc)
        until = now + datetime.timedelta(minutes=10)
        printed = "%Y-%m-%dT%H:%M:%S.000Z"
        intent = {
            "type": "atp.intent.v1",
            "intent_id": name,
            "site": site,
            "agent_key": "ed25519:" + base64.b64encode(self.public).decode(),
            "purpose": "Fill a ledger",
            "scope": {"actions": ["pay"]},
            "amount_cents": 1500,
            "nonce": name,
            "issued_at": now.strftime(printed),
            "expires_at": until.strftime(printed),
        }
        # All of it is ASCII and whole numbers, for which this is the form of RFC 8785.
        form = json.dumps(intent, sort_keys=True, separators=(",", ":")).encode()
        signature = base64.b64encode(self.sign(form)).decode()
        return intent | {"signature": f"ed25519:{signature}"}

"""Verifies documents of a site offline, with rfc8785 and cryptography.

Reads {"keys": the site's list of keys, "documents": [text, ...]} and prints a verdict and the hash of each.
"""

import base64
import hashlib
import json
import sys

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def judge(signature, pinned, signed):
    if signature["algorithm"] != "ed25519":
        return "unsupported_algorithm"
    key = pinned.get(signature["key_id"])
    if key is None:
        return "unknown_key"
    try:
        key.verify(base64.b64decode(signature["value"]), signed)
    except InvalidSignature:
        return "signature_mismatch"
    return "good"


def main():
    asked = json.load(sys.stdin)
    pinned = {}
    for key in asked["keys"]["keys"]:
        if key["status"] in ("current", "previous"):
            raw = base64.b64decode(key["public_key"].removeprefix("ed25519:"))
            pinned[key["key_id"]] = Ed25519PublicKey.from_public_bytes(raw)
    found = []
    for text in asked["documents"]:
        document = json.loads(text)
        signature = document.pop("signature")
        signed = rfc8785.dumps(document)
        verdict = judge(signature, pinned, signed)
        if verdict == "good" and document["site"] != asked["keys"]["site"]:
            verdict = "site_mismatch"
        found.append({"verdict": verdict, "hash": "sha256:" + hashlib.sha256(signed).hexdigest()})
    json.dump(found, sys.stdout)


main()

"""Answers questions about signatures and boxes with libsodium: a JSON array on stdin, one answer per question on stdout."""

import base64
import json
import sys

from nacl import bindings, exceptions


def x_secret(seed):
    _, secret = bindings.crypto_sign_seed_keypair(bytes.fromhex(seed))
    return bindings.crypto_sign_ed25519_sk_to_curve25519(secret)


def x_public(seed):
    public, _ = bindings.crypto_sign_seed_keypair(bytes.fromhex(seed))
    return bindings.crypto_sign_ed25519_pk_to_curve25519(public)


def verifies(text, signature, public):
    try:
        bindings.crypto_sign_open(bytes.fromhex(signature) + text, public)
        return True
    except exceptions.BadSignatureError:
        return False


def sign(ask):
    text = bytes.fromhex(ask["text"])
    public, secret = bindings.crypto_sign_seed_keypair(bytes.fromhex(ask["seed"]))
    return {
        "public": public.hex(),
        "secret": secret.hex(),
        "signature": bindings.crypto_sign(text, secret)[:64].hex(),
        "verifies": verifies(text, ask["signature"], public),
        "rejects": not verifies(text + b"!", ask["signature"], public),
        "x_secret": x_secret(ask["seed"]).hex(),
        "x_public": x_public(ask["seed"]).hex(),
    }


def box(ask):
    nonce = bytes.fromhex(ask["nonce"])
    sealed, plain = bytes.fromhex(ask["sealed"]), bytes.fromhex(ask["plain"])
    own = bindings.crypto_box_beforenm(x_public(ask["sender"]), x_secret(ask["recipient"]))
    theirs = bindings.crypto_box_beforenm(x_public(ask["recipient"]), x_secret(ask["sender"]))
    return {
        "opened": bindings.crypto_box_open_afternm(sealed, nonce, own).hex(),
        "sealed": bindings.crypto_box_afternm(plain, nonce, theirs).hex(),
    }


def secretbox(ask):
    key, nonce = bytes.fromhex(ask["key"]), bytes.fromhex(ask["nonce"])
    return {
        "opened": bindings.crypto_secretbox_open(bytes.fromhex(ask["sealed"]), nonce, key).hex(),
        "sealed": bindings.crypto_secretbox(bytes.fromhex(ask["plain"]), nonce, key).hex(),
    }


def topic_key(ask):
    nonce = bytes.fromhex(ask["nonce"])
    text = base64.b64decode(ask["sealed"], validate=True)
    opened = bindings.crypto_box_open(text[32:], nonce, text[:32], x_secret(ask["recipient"]))
    sealed = bindings.crypto_box(
        bytes.fromhex(ask["plain"]), nonce, x_public(ask["recipient"]), x_secret(ask["sender"])
    )
    return {
        "opened": opened.hex(),
        "sealed": base64.b64encode(x_public(ask["sender"]) + sealed).decode(),
    }


def seal(ask):
    public, secret = x_public(ask["recipient"]), x_secret(ask["recipient"])
    opened = bindings.crypto_box_seal_open(bytes.fromhex(ask["sealed"]), public, secret)
    return {"opened": opened.hex(), "sealed": bindings.crypto_box_seal(bytes.fromhex(ask["plain"]), public).hex()}


def convert(ask):
    try:
        public = bindings.crypto_sign_ed25519_pk_to_curve25519(bytes.fromhex(ask["public"]))
        return {"x_public": public.hex()}
    except (exceptions.CryptoError, RuntimeError):
        return {"x_public": None}


ANSWERS = {
    "sign": sign,
    "box": box,
    "secretbox": secretbox,
    "topic_key": topic_key,
    "seal": seal,
    "convert": convert,
}

print(json.dumps([ANSWERS[ask["ask"]](ask) for ask in json.load(sys.stdin)]))

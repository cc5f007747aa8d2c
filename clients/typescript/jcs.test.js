// The corpus of canonical JSON and of fingerprints that daemon, broker and all clients share.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { NotCanonical, canonicalMeta, requestFingerprint } from "./index.js";

const corpus = JSON.parse(readFileSync(new URL("../jcs-corpus.json", import.meta.url), "utf8"));

test("canonical forms", () => {
  for (const { in: text, out } of corpus.canonical) {
    assert.equal(canonicalMeta(JSON.parse(text)), out, text);
  }
});

test("refusals", () => {
  for (const { in: text } of corpus.refused) {
    assert.throws(() => canonicalMeta(JSON.parse(text)), NotCanonical, text);
  }
});

test("fingerprints", () => {
  for (const vector of corpus.fingerprints) {
    const computed = requestFingerprint({
      kind: vector.kind,
      ref: vector.ref,
      body: Buffer.from(vector.body_hex, "hex"),
      priority: vector.priority,
      meta: JSON.parse(vector.meta ?? "null"),
      replyToId: vector.reply_to_id,
      envelopeVersion: vector.envelope_version,
    });
    assert.equal(computed, vector.fingerprint, vector.name);
  }
});

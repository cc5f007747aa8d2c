// Verifies documents of a site offline, with canonicalize and @noble/ed25519.
//
// Reads {"keys": the site's list of keys, "documents": [text, ...]} and prints a verdict and the hash of each.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import canonicalize from 'canonicalize';
import * as ed25519 from '@noble/ed25519';

const bytes = (base64) => new Uint8Array(Buffer.from(base64, 'base64'));

async function judge(signature, pinned, signed) {
  if (signature.algorithm !== 'ed25519') return 'unsupported_algorithm';
  const key = pinned.get(signature.key_id);
  if (!key) return 'unknown_key';
  const good = await ed25519.verifyAsync(bytes(signature.value), signed, key, { zip215: false });
  return good ? 'good' : 'signature_mismatch';
}

const asked = JSON.parse(readFileSync(0, 'utf8'));
const trusted = asked.keys.keys.filter((key) => ['current', 'previous'].includes(key.status));
const pinned = new Map(
  trusted.map((key) => [key.key_id, bytes(key.public_key.replace('ed25519:', ''))]),
);
const found = [];
for (const text of asked.documents) {
  const { signature, ...document } = JSON.parse(text);
  const signed = new Uint8Array(Buffer.from(canonicalize(document), 'utf8'));
  let verdict = await judge(signature, pinned, signed);
  if (verdict === 'good' && document.site !== asked.keys.site) verdict = 'site_mismatch';
  found.push({ verdict, hash: 'sha256:' + createHash('sha256').update(signed).digest('hex') });
}
console.log(JSON.stringify(found));

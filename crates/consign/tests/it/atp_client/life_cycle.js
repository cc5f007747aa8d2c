'use strict';

// node life_cycle.js CLIENT BASE SECRET: every operation of a client of the compatibility profile, against a server.

const assert = require('node:assert/strict');
const { createHmac } = require('node:crypto');

const [module_, baseUrl, secret] = process.argv.slice(2);
const { ATPClient } = require(module_);

function tokenOf(user, issuer = 'wab') {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const now = Math.floor(Date.now() / 1000);
  const claims = { id: user, iss: issuer, aud: 'wab:user', iat: now, exp: now + 600 };
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
}

const as = (user, issuer) => new ATPClient({ baseUrl, token: tokenOf(user, issuer) });
const refused = (call, status, code) =>
  assert.rejects(call, (error) => {
    assert.deepEqual([error.status, error.code], [status, code]);
    return true;
  });

async function authorized(client, more = {}) {
  const intent = await client.createIntent({
    purpose: 'Buy a book ≤ €30',
    scope: { actions: ['search', 'add_to_cart', 'checkout'], domains: ['shop.example'] },
    spend_cap_cents: 3000,
    ttl_seconds: 600,
    ...more,
  });
  assert.equal(intent.status, 'draft');
  const confirmed = await client.authorizeIntent(intent.id);
  assert.equal(confirmed.status, 'authorized');
  return intent.id;
}

async function toTheEnd(client) {
  const intent_id = await authorized(client);
  await refused(client.authorizeIntent(intent_id), 409, 'invalid_state');
  const order = { intent_id, amount_cents: 1500, summary: 'one book', idempotency_key: 'order-42' };
  const begun = await client.beginTransaction(order);
  assert.equal(begun.status, 'pending');
  await refused(client.transition(begun.id, 'settled'), 409, 'invalid_state');
  await client.transition(begun.id, 'executing');
  const step = await client.step(begun.id, { action: 'checkout.confirm', evidence: { order_id: 'X1' } });
  assert.equal(step.seq, 1);
  await client.transition(begun.id, 'executed', { summary: 'one book, paid' });
  const settled = await client.transition(begun.id, 'settled');
  assert.equal(settled.status, 'settled');

  // A retry after the settlement returns the same transaction.
  const retry = await client.beginTransaction(order);
  assert.deepEqual([retry.id, retry.status], [begun.id, 'settled']);
  const receipt = await client.issueReceipt(begun.id);
  assert.deepEqual(await client.issueReceipt(begun.id), receipt);
  assert.equal(receipt.body.rail.name, 'manual');
  assert.equal(receipt.body.transaction.summary, 'one book, paid');
  const fetched = await client.getReceipt(receipt.id);
  assert.deepEqual(fetched.body, receipt.body);
  assert.equal((await client.verifyReceipt(receipt.id)).verification.ok, true);
  assert.equal((await client.verifyReceipt(receipt.body)).verification.ok, true);
  receipt.body.transaction.amount_cents = 1;
  // The client treats `ok: false` in the body as an error, so an invalid receipt cannot be mistaken for a valid one.
  await assert.rejects(client.verifyReceipt(receipt.body), { status: 200 });
  return begun.id;
}

async function undone(client, id) {
  const compensated = await client.compensate(id, 'user_cancelled');
  assert.equal(compensated.status, 'compensated');
  await refused(client.compensate(id, 'once more'), 409, 'already_compensated');
  const shown = await client.getTransaction(id);
  assert.equal(shown.steps[0].action, 'checkout.confirm');
  const intent = await client.getIntent(shown.intent_id);
  assert.equal(intent.spent_cents, 0);
}

async function others(client, id) {
  await refused(as('user-2').getTransaction(id), 403, 'forbidden');
  await refused(as('user-1', 'somebody').listIntents(), 403, 'forbidden');
  await refused(new ATPClient({ baseUrl }).createIntent({}), 401, 'unauthorized');
  const revoked = await client.revokeIntent(await authorized(client), 'changed my mind');
  assert.equal(revoked.status, 'revoked');
  const capped = await authorized(client);
  const dear = { intent_id: capped, amount_cents: 3001, idempotency_key: 'k' };
  await refused(client.beginTransaction(dear), 409, 'spend_cap_exceeded');
  assert.equal((await client.listIntents({ limit: 2 })).length, 2);
}

async function main() {
  const client = as('user-1');
  const id = await toTheEnd(client);
  await undone(client, id);
  await others(client, id);
  console.log('done');
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});

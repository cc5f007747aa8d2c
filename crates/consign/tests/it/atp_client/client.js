'use strict';

// Sends the same requests as the published client (web-agent-bridge, sdk/atp.js), with the same method names, for machines on
// which that client is not installed. The token and the idempotency key are sent in the same requests.

const ROUTES = {
  createIntent: (body) => ['POST', '/intents', { body }],
  listIntents: (query = {}) => ['GET', '/intents', { query }],
  getIntent: (id) => ['GET', `/intents/${encodeURIComponent(id)}`],
  authorizeIntent: (id) => ['POST', `/intents/${encodeURIComponent(id)}/authorize`],
  revokeIntent: (id, reason) => ['POST', `/intents/${encodeURIComponent(id)}/revoke`, { body: { reason } }],
  beginTransaction: ({ idempotency_key: key, ...body }) => ['POST', '/transactions', { body, key }],
  getTransaction: (id) => ['GET', `/transactions/${encodeURIComponent(id)}`],
  step: (id, body) => ['POST', `/transactions/${encodeURIComponent(id)}/steps`, { body }],
  transition: (id, to, more = {}) => ['POST', `/transactions/${encodeURIComponent(id)}/transition`, { body: { to, ...more } }],
  compensate: (id, reason) => ['POST', `/transactions/${encodeURIComponent(id)}/compensate`, { body: { reason } }],
  issueReceipt: (id) => ['POST', `/transactions/${encodeURIComponent(id)}/receipt`],
  getReceipt: (id) => ['GET', `/receipts/${encodeURIComponent(id)}`, { open: true }],
  verifyReceipt: (asked) => [
    'POST',
    '/receipts/verify',
    { body: typeof asked === 'string' ? { id: asked } : { receipt: asked }, open: true },
  ],
};

class ATPClient {
  constructor({ baseUrl, token }) {
    for (const [name, route] of Object.entries(ROUTES)) {
      this[name] = (...args) => ask(baseUrl, token, ...route(...args));
    }
  }
}

async function ask(base, token, method, path, { body, query, key, open } = {}) {
  const headers = { 'content-type': 'application/json' };
  if (token && !open) headers.authorization = `Bearer ${token}`;
  if (key) headers['idempotency-key'] = key;
  const search = query && Object.keys(query).length ? `?${new URLSearchParams(query)}` : '';
  const answer = await fetch(`${base}/api/atp${path}${search}`, {
    method,
    headers,
    body: body && JSON.stringify(body),
  });
  const told = await answer.json();
  if (answer.ok && told.ok !== false) return told.data === undefined ? told : told.data;
  throw Object.assign(new Error(told.message), { status: answer.status, code: told.error });
}

module.exports = { ATPClient };

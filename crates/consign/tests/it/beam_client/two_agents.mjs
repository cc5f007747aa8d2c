// Two agents talk with the published SDK: node two_agents.mjs SDK_INDEX BASE_URL
import assert from 'node:assert/strict'
import { pathToFileURL } from 'node:url'

const [sdkIndex, directoryUrl] = process.argv.slice(2)
const { BeamIdentity, BeamClient, BeamDirectory } = await import(pathToFileURL(sdkIndex))

const client = (agentName) => {
  const identity = BeamIdentity.generate({ agentName, orgName: 'acme' })
  return new BeamClient({ identity: identity.export(), directoryUrl })
}
const alice = client('alice')
const bob = client('bob')
const directory = new BeamDirectory({ baseUrl: directoryUrl })

// Register, look up, search.
const registered = await alice.register('Alice', ['support', 'sales'])
assert.equal(registered.beamId, 'alice@acme.beam.directory')
assert.equal(registered.displayName, 'Alice')
assert.equal(registered.verified, false)
assert.ok(registered.trustScore > 0 && registered.trustScore <= 1, String(registered.trustScore))
assert.ok(!Number.isNaN(Date.parse(registered.createdAt)), registered.createdAt)
await bob.register('Bob', ['support'])
// A client that restarts registers again with the same key.
await bob.register('Bob', ['support'])
const found = await directory.lookup('bob@acme.beam.directory')
assert.equal(found.beamId, bob.beamId)
assert.deepEqual(found.capabilities, ['support'])
assert.equal(await directory.lookup('nobody@acme.beam.directory'), null)
const skilled = await directory.search({ org: 'acme', capabilities: ['support', 'sales'] })
assert.deepEqual(skilled.map((agent) => agent.beamId), [alice.beamId])
// `browse` of this version throws by itself, whatever the server answers.

// Nobody may send to Bob until a rule allows it.
const allow = async (targetBeamId, intentType, allowedFrom) => {
  const response = await fetch(`${directoryUrl}/acl`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ targetBeamId, intentType, allowedFrom })
  })
  assert.equal(response.status, 201, await response.text())
}
await assert.rejects(alice.talk(bob.beamId, 'hello'), /403/)
await allow(bob.beamId, 'conversation.message', alice.beamId)
await allow(alice.beamId, 'conversation.message', '*@acme.beam.directory')
await allow(bob.beamId, 'quote.request', '*')

// An agent that is not connected.
await assert.rejects(alice.talk(bob.beamId, 'hello'), /503/)

// Bob connects and answers; Alice sends over HTTP, then over her socket.
let handled = 0
bob.onTalk((message, from, respond, frame) => {
  handled += 1
  assert.equal(from, alice.beamId)
  assert.equal(frame.v, '1')
  respond(`re: ${message}`, { length: message.length, 10: 'ten', 2: 'two' })
})
bob.on('quote.request', (frame, respond) => {
  handled += 1
  if (frame.payload.quantity > 100) {
    return respond({ success: false, error: 'too many', errorCode: 'OUT_OF_STOCK' })
  }
  return respond({ success: true, payload: { totalPriceEur: 184.0 * frame.payload.quantity } })
})
await bob.connect()
for (const connectsFirst of [false, true]) {
  if (connectsFirst) await alice.connect()
  for (const text of ['hello', 'Grüße "Ω" 🚀\n\u0001/', 'x'.repeat(2000)]) {
    const reply = await alice.talk(bob.beamId, text)
    assert.equal(reply.message, `re: ${text}`)
    assert.equal(reply.structured.length, text.length)
    assert.equal(reply.raw.success, true)
  }
  const order = { sku: 'INV-240', quantity: 2, shipTo: 'Mannheim, DE', 10: 'ten', 2: 'two', small: 1e-7, big: 1e21 }
  const quote = await alice.send(bob.beamId, 'quote.request', order)
  assert.equal(quote.payload.totalPriceEur, 368)
  const refused = await alice.send(bob.beamId, 'quote.request', { ...order, quantity: 240 })
  assert.equal(refused.success, false)
  assert.equal(refused.errorCode, 'OUT_OF_STOCK')
}
assert.equal(handled, 10)

// Both directions at once, on threads.
alice.onTalk((message, _from, respond) => respond(`echo ${message}`))
const thread = bob.thread(alice.beamId)
const said = await Promise.all(['one', 'two', 'three'].map((text) => thread.say(text)))
assert.deepEqual(said.map((reply) => reply.message), ['echo one', 'echo two', 'echo three'])

alice.disconnect()
bob.disconnect()
console.log('done')
process.exit(0)

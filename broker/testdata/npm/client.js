// An MQTT client of others, driven by TestNodeClient: node client.js URL VERSION. It prints what it receives, one JSON
// object a line, and ends by itself.
'use strict'
const mqtt = require('mqtt')
const [url, version, secret, root, wills] = process.argv.slice(2)

const say = (what) => console.log(JSON.stringify(what))
const connect = (clientId, more) => mqtt.connectAsync(url, {
  clientId, username: 'dev', password: secret, protocolVersion: Number(version), reconnectPeriod: 0, connectTimeout: 10000, ...more
})

async function main () {
  const listener = await connect('listener')
  const waiting = []
  const come = []
  listener.on('message', (topic, payload, packet) => {
    const m = { topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain }
    const next = waiting.shift()
    if (next) next(m); else come.push(m)
  })
  const message = () => come.length ? Promise.resolve(come.shift()) : new Promise((resolve) => waiting.push(resolve))

  const granted = await listener.subscribeAsync([root + 'line1/#', 'plain/#'], { qos: 1 })
  say({ granted: granted.map((g) => g.qos) })

  const publisher = await connect('publisher')
  for (let i = 0; i < 20; i++) {
    await publisher.publishAsync(root + 'line1/js', JSON.stringify({ value: i }), { qos: i % 2 })
    say(await message())
  }
  await publisher.publishAsync('plain/large', 'x'.repeat(200000), { qos: 1 })
  say({ large: (await message()).payload.length })

  const open = [publisher, listener]
  await publisher.publishAsync('plain/kept', 'kept', { qos: 1, retain: true })
  say(await message())
  const late = await connect('late')
  const kept = new Promise((resolve) => late.once('message', (topic, payload, packet) => resolve({ topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain })))
  await late.subscribeAsync('plain/kept', { qos: 1 })
  say(await kept)
  open.push(late)

  if (wills === 'true') {
    const dying = await connect('dying', { will: { topic: 'plain/will', payload: Buffer.from('gone'), qos: 1, retain: false } })
    dying.on('error', () => {})
    dying.stream.destroy()
    say(await message())
  }

  // QoS 2 both ways, and a group of two that gets each message once
  for (let i = 0; i < 5; i++) {
    await listener.subscribeAsync('plain/#', { qos: 2 })
    await publisher.publishAsync('plain/twice', String(i), { qos: 2 })
    let m = await message()
    while (m.retain) m = await message() // the subscription made anew brings them again
    say({ twice: m.payload, qos: m.qos })
  }
  const group = []
  let full
  const whole = new Promise((resolve) => { full = resolve })
  for (const id of ['one', 'two']) {
    const c = await connect(id)
    c.on('message', (topic, payload) => { if (group.push(Number(payload.toString())) === 20) full() })
    await c.subscribeAsync('$share/g/group/#', { qos: 2 })
    open.push(c)
  }
  for (let i = 0; i < 20; i++) await publisher.publishAsync('group/a', String(i), { qos: i % 3 })
  await whole
  say({ group: group.sort((a, b) => a - b).join(' ') })

  for (const c of open) await c.endAsync()
  say({ end: true })
}

main().then(() => process.exit(0), (err) => { console.error(err); process.exit(1) })

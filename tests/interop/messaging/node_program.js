// What RocketMQ's Node.js client of the 5.x API does and sees; NODE_PATH has the client.
// node node_program.js ENDPOINTS scenes: one line of JSON.
// node node_program.js ENDPOINTS failover TOPIC GROUP: as interop/failover_clients.py has it.
const { createInterface } = require('readline');
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult } = require('rocketmq-client-nodejs');

const quiet = { info() {}, warn() {}, error() {}, debug() {} };
const [endpoints, play, topic = 'Scenes', group] = process.argv.slice(2);
const options = { endpoints, namespace: '', sslEnabled: false, logger: quiet };
const subscriptions = new Map([[topic, '*']]);

function message(body, more = {}) {
  const properties = new Map([['colour', 'red']]);
  return { topic, tag: 'tag', keys: ['key'], body: Buffer.from(body), properties, ...more };
}

const seenIn = (each) => [each.body.toString(), each.deliveryAttempt];
const sorted = (rows) => rows.sort((a, b) => (String(a) < String(b) ? -1 : 1));

// `again` is not acknowledged at first.
async function receive(consumerGroup, from, count, again = '') {
  const consumer = new SimpleConsumer({
    ...options, consumerGroup, subscriptions: new Map([[from, '*']]), awaitDuration: 3000,
  });
  await consumer.startup();
  const seen = [];
  const end = Date.now() + 40000;
  while (seen.length < count && Date.now() < end) {
    for (const each of await consumer.receive(32, 15000)) {
      seen.push(seenIn(each));
      if (each.body.toString() === again && each.deliveryAttempt === 1) {
        await consumer.changeInvisibleDuration(each, 1000);
      } else {
        await consumer.ack(each);
      }
    }
  }
  await consumer.shutdown();
  return sorted(seen);
}

// The message `fails` fails at its first deliveries.
async function push(consumerGroup, count, fails, times) {
  const seen = [];
  const consume = async (each) => {
    seen.push(seenIn(each));
    const tries = seen.filter(([body]) => body === fails).length;
    const failed = each.body.toString() === fails && tries <= times;
    return failed ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
  };
  const consumer = new PushConsumer({
    ...options, consumerGroup, subscriptions, messageListener: { consume },
  });
  await consumer.startup();
  const end = Date.now() + 40000;
  while (seen.length < count && Date.now() < end) await pause(100);
  await consumer.shutdown();
  return seen;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function scenes() {
  const COMMIT = 1;
  const checker = { check: async () => COMMIT };
  const producer = new Producer({ ...options, topics: [topic], checker });
  await producer.startup();
  await producer.send(message('normal'));
  for (let number = 0; number < 3; number++) {
    await producer.send(message(`fifo${number}`, { messageGroup: 'g' }));
  }
  const now = Date.now();
  await producer.send(message('delay', { deliveryTimestamp: new Date(now + 3000) }));
  const later = await producer.send(
    message('never', { deliveryTimestamp: new Date(now + 8000) }),
  );
  await producer.recallMessage(topic, later.recallHandle);
  for (const what of ['commit', 'rollback', 'check']) {
    const transaction = producer.beginTransaction();
    await producer.send(message(what), transaction);
    if (what === 'commit') await transaction.commit();
    if (what === 'rollback') await transaction.rollback();
  }
  const simple = await receive('simple', topic, 8, 'normal');
  const pushed = sorted(await push('push', 8, 'normal', 1));
  const ordered = await push('ordered', 9, 'fifo1', 2);
  const order = ordered.map(([body]) => body).filter((body) => body.startsWith('fifo'));
  await push('buried', 9, 'fifo0', 99);
  const dead = await receive('inspectors', '%DLQ%buried', 1);
  await producer.shutdown();
  return { simple, push: pushed, order, dead };
}

function tell(word, what = '') {
  process.stdout.write(`${word} ${Date.now()} ${what.slice(0, 200).replaceAll('\n', ' ')}\n`);
}

async function failover() {
  const producer = new Producer({ ...options, topics: [topic] });
  await producer.startup();
  const consume = async (each) => {
    tell('delivered', each.body.toString());
    return ConsumeResult.SUCCESS;
  };
  const consumer = new PushConsumer({
    ...options, consumerGroup: group, subscriptions, messageListener: { consume },
  });
  await consumer.startup();
  let ended = false;
  const input = createInterface({ input: process.stdin });
  input.on('line', () => { ended = true; });
  input.on('close', () => process.exit(0));
  for (let number = 0; !ended; number++) {
    try {
      await producer.send(message(`${number}`));
      tell('acknowledged', `${number}`);
    } catch (error) {
      tell('failed', String(error));
    }
    await pause(5);
  }
  tell('stopped');
}

if (play === 'scenes') {
  scenes().then((seen) => {
    console.log(JSON.stringify(seen));
    process.exit(0);
  });
} else {
  failover();
}

// What RocketMQ's Node.js client of the 5.x API does and sees: one line of JSON.
// node node_program.js ENDPOINTS TOPIC; NODE_PATH has the client.
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult } = require('rocketmq-client-nodejs');

const quiet = { info() {}, warn() {}, error() {}, debug() {} };
const [endpoints, topic] = process.argv.slice(2);
const options = { endpoints, namespace: '', sslEnabled: false, logger: quiet };
const subscriptions = new Map([[topic, '*']]);

async function main() {
  const producer = new Producer({ ...options, topics: [topic] });
  await producer.startup();
  for (let number = 0; number < 3; number++) {
    await producer.send({ topic, tag: 't', keys: ['k'], body: Buffer.from(`normal${number}`) });
  }
  await producer.send({ topic, messageGroup: 'g', body: Buffer.from('fifo') });
  const later = new Date(Date.now() + 2000);
  await producer.send({ topic, deliveryTimestamp: later, body: Buffer.from('delay') });
  const simple = new SimpleConsumer({
    ...options, consumerGroup: 'simple', subscriptions, awaitDuration: 3000,
  });
  await simple.startup();
  const received = [];
  const end = Date.now() + 40000;
  while (received.length < 5 && Date.now() < end) {
    for (const each of await simple.receive(20)) {
      received.push(each.body.toString());
      await simple.ack(each);
    }
  }
  await simple.shutdown();
  const pushed = [];
  const consume = async (each) => {
    pushed.push(each.body.toString());
    return ConsumeResult.SUCCESS;
  };
  const push = new PushConsumer({
    ...options, consumerGroup: 'push', subscriptions, messageListener: { consume },
  });
  await push.startup();
  while (pushed.length < 5 && Date.now() < end) await new Promise((done) => setTimeout(done, 100));
  await push.shutdown();
  await producer.shutdown();
  console.log(JSON.stringify({ received: received.sort(), pushed: pushed.sort() }));
  process.exit(0);
}

main();

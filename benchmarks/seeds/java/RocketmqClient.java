import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own client with its own settings, towards the name server that is its argument.
 *
 *     sync  PREFIX TOPICS SECONDS                  32 threads, each sends one message and waits
 *     async PREFIX TOPICS SECONDS                  one thread, up to 1,024 messages in flight
 *     batch PREFIX TOPICS SECONDS                  one thread, up to 64 batches of 32 in flight
 *     push  PREFIX TOPICS QUEUES MESSAGES NAME     a push consumer of the new group NAME reads so many of each queue
 *     pull  PREFIX TOPICS QUEUES MESSAGES          8 threads pull as many, 32 at a time
 *     paced PREFIX TOPICS QUEUES RATE SECONDS NAME from the send to the listener of a push consumer, of queues that the
 *                                                  group NAME alone has read to their ends
 */
final class RocketmqClient {
    private static final int BODY_BYTES = 128;
    private static final int BATCH = 32;
    private static final int SYNC_THREADS = 32;
    private static final int ASYNC_WINDOW = 1024;
    private static final int BATCH_WINDOW = 64;
    private static final int PULL_THREADS = 8;
    private static final int TIMEOUT_MS = 30_000;
    private static final int CONSUME_S = 120;

    private final String nameServer;
    private final DefaultMQProducer producer = new DefaultMQProducer("seeds-senders");
    private final DefaultMQPullConsumer puller = new DefaultMQPullConsumer("seeds-pullers");
    private final byte[] body = "x".repeat(BODY_BYTES).getBytes();

    private RocketmqClient(String nameServer) throws Exception {
        this.nameServer = nameServer;
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        // a send that fails is to be seen
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        puller.setNamesrvAddr(nameServer);
        puller.start();
    }

    public static void main(String[] arguments) throws Exception {
        RocketmqClient client = new RocketmqClient(arguments[0]);
        Measured.answerLines(client::answer);
    }

    private String answer(String[] words) throws Exception {
        int topics = Integer.parseInt(words[2]);
        int third = Integer.parseInt(words[3]);
        switch (words[0]) {
            case "sync":
                return sync(known(words[1], topics), third);
            case "async":
                return async(known(words[1], topics), third);
            case "batch":
                return batch(known(words[1], topics), third);
            case "push":
                return push(words[1], topics, third, Integer.parseInt(words[4]), words[5]);
            case "pull":
                return pull(words[1], topics, Integer.parseInt(words[4]));
            case "paced":
                return paced(known(words[1], topics), words, third);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** The topics, whose routes the producer has by then. */
    private String[] known(String prefix, int topics) throws Exception {
        String[] names = new String[topics];
        for (int i = 0; i < topics; i++) {
            names[i] = Measured.topic(prefix, i);
            producer.fetchPublishMessageQueues(names[i]);
        }
        return names;
    }

    private String sync(String[] topics, int seconds) throws Exception {
        Measured measured = new Measured();
        AtomicInteger next = new AtomicInteger();
        AtomicReference<Throwable> problem = new AtomicReference<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        inThreads(SYNC_THREADS, problem, thread -> {
            while (problem.get() == null && System.nanoTime() < end) {
                long began = System.nanoTime();
                SendResult result = producer.send(new Message(topic(topics, next), body));
                check(result);
                measured.sent(began, 1);
            }
        });
        measured.end();
        return measured.json();
    }

    private interface Part {
        void run(int thread) throws Exception;
    }

    private static void inThreads(int count, AtomicReference<Throwable> problem, Part part) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Thread thread = new Thread(() -> {
                try {
                    part.run(number);
                } catch (Throwable each) {
                    problem.compareAndSet(null, each);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread each : threads) {
            each.join();
        }
        raise(problem);
    }

    private static void raise(AtomicReference<Throwable> problem) {
        if (problem.get() != null) {
            throw new IllegalStateException(problem.get());
        }
    }

    private static String topic(String[] topics, AtomicInteger next) {
        return topics[(next.getAndIncrement() & Integer.MAX_VALUE) % topics.length];
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private String async(String[] topics, int seconds) throws Exception {
        return window(ASYNC_WINDOW, seconds, 1, topics, (topic, callback) -> producer.send(new Message(topic, body), callback));
    }

    private String batch(String[] topics, int seconds) throws Exception {
        return window(BATCH_WINDOW, seconds, BATCH, topics, (topic, callback) -> {
            List<Message> messages = new ArrayList<>(BATCH);
            for (int i = 0; i < BATCH; i++) {
                messages.add(new Message(topic, body));
            }
            producer.send(messages, callback);
        });
    }

    private interface Send {
        void send(String topic, SendCallback callback) throws Exception;
    }

    private String window(int window, int seconds, int messages, String[] topics, Send send) throws Exception {
        Measured measured = new Measured();
        Semaphore free = new Semaphore(window);
        AtomicInteger next = new AtomicInteger();
        AtomicReference<Throwable> problem = new AtomicReference<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (problem.get() == null && System.nanoTime() < end) {
            free.acquire();
            send.send(topic(topics, next), sent(measured, messages, free, problem));
        }
        if (!free.tryAcquire(window, TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("sends without an answer");
        }
        measured.end();
        raise(problem);
        return measured.json();
    }

    private static SendCallback sent(Measured measured, int messages, Semaphore free, AtomicReference<Throwable> problem) {
        long began = System.nanoTime();
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    measured.sent(began, messages);
                } else {
                    problem.compareAndSet(null, new IllegalStateException(result.toString()));
                }
                free.release();
            }

            @Override
            public void onException(Throwable fault) {
                problem.compareAndSet(null, fault);
                free.release();
            }
        };
    }

    private String push(String prefix, int topics, int queues, int messages, String group) throws Exception {
        Measured measured = new Measured((long) topics * queues * messages);
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(prefix, topics, group, (found, context) -> {
            if (measured.read(found.size())) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        // the start, with a question for each queue, is no part of the rate
        consumer.suspend();
        start(consumer, topics * queues);
        consumer.resume();
        if (!done.await(CONSUME_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(measured.messages() + " messages came");
        }
        consumer.shutdown();
        return measured.json();
    }

    private DefaultMQPushConsumer consumer(String prefix, int topics, String group, MessageListenerConcurrently listener)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (int i = 0; i < topics; i++) {
            consumer.subscribe(Measured.topic(prefix, i), "*");
        }
        consumer.registerMessageListener(listener);
        return consumer;
    }

    /** Returns when it has all queues. */
    private static void start(DefaultMQPushConsumer consumer, int queues) throws Exception {
        consumer.start();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(CONSUME_S);
        while (true) {
            long owned = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(each -> !each.getTopic().startsWith("%RETRY%")).count();
            if (owned == queues) {
                return;
            }
            if (System.nanoTime() > end) {
                throw new IllegalStateException("has " + owned + " of " + queues + " queues");
            }
            // one that is suspended does not do it by itself
            consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().doRebalance(false);
            Thread.sleep(20);
        }
    }

    private String pull(String prefix, int topics, int messages) throws Exception {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < topics; i++) {
            queues.addAll(puller.fetchSubscribeMessageQueues(Measured.topic(prefix, i)));
        }
        Measured measured = new Measured((long) queues.size() * messages);
        AtomicReference<Throwable> problem = new AtomicReference<>();
        inThreads(PULL_THREADS, problem, thread -> {
            for (int i = thread; i < queues.size() && problem.get() == null; i += PULL_THREADS) {
                for (long offset = 0; offset < messages; ) {
                    long began = System.nanoTime();
                    PullResult result = puller.pull(queues.get(i), "*", offset, BATCH);
                    List<MessageExt> found = result.getMsgFoundList();
                    if (found == null) {
                        throw new IllegalStateException(queues.get(i) + " at " + offset + ": " + result);
                    }
                    measured.latencies.add(System.nanoTime() - began);
                    measured.read((int) Math.min(found.size(), messages - offset));
                    offset = result.getNextBeginOffset();
                }
            }
        });
        return measured.json();
    }

    private String paced(String[] topics, String[] words, int queues) throws Exception {
        int rate = Integer.parseInt(words[4]);
        int all = rate * Integer.parseInt(words[5]);
        Measured measured = new Measured();
        CountDownLatch done = new CountDownLatch(all);
        long startNs = System.nanoTime();
        DefaultMQPushConsumer consumer = consumer(words[1], topics.length, words[6], (found, context) -> {
            for (MessageExt each : found) {
                long dueNs = ByteBuffer.wrap(each.getBody()).getLong();
                // what was read and not committed comes again
                if (dueNs >= startNs) {
                    measured.sent(dueNs, 1);
                    done.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        start(consumer, topics.length * queues);
        // until each queue has a pull that waits
        Thread.sleep(1000);
        AtomicReference<Throwable> problem = new AtomicReference<>();
        Semaphore free = new Semaphore(all);
        Measured acknowledged = new Measured();
        measured.begin();
        Pace.run(rate, all, (number, dueNs) -> {
            byte[] stamped = ByteBuffer.allocate(BODY_BYTES).putLong(dueNs).array();
            producer.send(new Message(topics[number % topics.length], stamped), sent(acknowledged, 1, free, problem));
        });
        if (!done.await(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(done.getCount() + " messages did not come", problem.get());
        }
        measured.end();
        consumer.shutdown();
        return measured.json();
    }
}

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client, with acks=1, towards the broker that is its argument; the work is that of RocketmqClient.
 *
 *     topics PREFIX TOPICS QUEUES
 *     fill  PREFIX TOPICS QUEUES MESSAGES
 *     sync  PREFIX TOPICS SECONDS                  32 threads of one producer without a linger
 *     async PREFIX TOPICS SECONDS                  one thread, with the linger of 5 ms and the buffer of 32 MB that it has
 *     read  PREFIX TOPICS QUEUES MESSAGES
 *     paced PREFIX TOPICS QUEUES RATE SECONDS      from the send to the consumer, without a linger
 */
final class KafkaClient {
    private static final int BODY_BYTES = 128;
    private static final int SYNC_THREADS = 32;
    private static final int CONSUME_S = 120;
    private static final Duration POLL = Duration.ofMillis(100);

    private final String servers;
    private final KafkaProducer<byte[], byte[]> prompt;
    private final KafkaProducer<byte[], byte[]> lingering;
    private final byte[] body = "x".repeat(BODY_BYTES).getBytes();

    private KafkaClient(String servers) {
        this.servers = servers;
        prompt = producer(0);
        lingering = producer(5);
    }

    public static void main(String[] arguments) throws Exception {
        KafkaClient client = new KafkaClient(arguments[0]);
        Measured.answerLines(client::answer);
    }

    private KafkaProducer<byte[], byte[]> producer(int lingerMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("acks", "1");
        settings.put("linger.ms", lingerMs);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private String answer(String[] words) throws Exception {
        int topics = Integer.parseInt(words[2]);
        int third = Integer.parseInt(words[3]);
        switch (words[0]) {
            case "topics":
                return make(words[1], topics, third);
            case "fill":
                return fill(words[1], topics, third, Integer.parseInt(words[4]));
            case "sync":
                return sync(known(words[1], topics, prompt), third);
            case "async":
                return async(known(words[1], topics, lingering), third);
            case "read":
                return read(words[1], topics, third, Integer.parseInt(words[4]));
            case "paced":
                return paced(words[1], topics, third, Integer.parseInt(words[4]), Integer.parseInt(words[5]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String make(String prefix, int topics, int queues) throws Exception {
        Measured measured = new Measured();
        try (Admin admin = Admin.create(settings())) {
            List<NewTopic> wanted = new ArrayList<>();
            for (int i = 0; i < topics; i++) {
                wanted.add(new NewTopic(Measured.topic(prefix, i), queues, (short) 1));
            }
            admin.createTopics(wanted).all().get(CONSUME_S, TimeUnit.SECONDS);
        }
        measured.end();
        return measured.json();
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        return settings;
    }

    private static String[] known(String prefix, int topics, KafkaProducer<byte[], byte[]> producer) {
        String[] names = new String[topics];
        for (int i = 0; i < topics; i++) {
            names[i] = Measured.topic(prefix, i);
            producer.partitionsFor(names[i]);
        }
        return names;
    }

    private String fill(String prefix, int topics, int queues, int messages) {
        String[] names = known(prefix, topics, lingering);
        Measured measured = new Measured();
        AtomicReference<Throwable> problem = new AtomicReference<>();
        for (int i = 0; i < messages; i++) {
            for (String each : names) {
                for (int queue = 0; queue < queues; queue++) {
                    lingering.send(new ProducerRecord<>(each, queue, null, body), sent(measured, problem));
                }
            }
        }
        return ended(lingering, measured, problem);
    }

    private static Callback sent(Measured measured, AtomicReference<Throwable> problem) {
        long began = System.nanoTime();
        return (metadata, fault) -> {
            if (fault == null) {
                measured.sent(began, 1);
            } else {
                problem.compareAndSet(null, fault);
            }
        };
    }

    private static String ended(KafkaProducer<byte[], byte[]> producer, Measured measured, AtomicReference<Throwable> problem) {
        producer.flush();
        measured.end();
        if (problem.get() != null) {
            throw new IllegalStateException(problem.get());
        }
        return measured.json();
    }

    private String sync(String[] topics, int seconds) throws Exception {
        Measured measured = new Measured();
        AtomicInteger next = new AtomicInteger();
        AtomicReference<Throwable> problem = new AtomicReference<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < SYNC_THREADS; i++) {
            Thread thread = new Thread(() -> {
                try {
                    while (problem.get() == null && System.nanoTime() < end) {
                        String topic = topics[(next.getAndIncrement() & Integer.MAX_VALUE) % topics.length];
                        long began = System.nanoTime();
                        prompt.send(new ProducerRecord<>(topic, body)).get();
                        measured.sent(began, 1);
                    }
                } catch (Throwable fault) {
                    problem.compareAndSet(null, fault);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread each : threads) {
            each.join();
        }
        return ended(prompt, measured, problem);
    }

    private String async(String[] topics, int seconds) {
        Measured measured = new Measured();
        AtomicReference<Throwable> problem = new AtomicReference<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        for (int i = 0; problem.get() == null && System.nanoTime() < end; i = (i + 1) % topics.length) {
            lingering.send(new ProducerRecord<>(topics[i], body), sent(measured, problem));
        }
        return ended(lingering, measured, problem);
    }

    private static List<TopicPartition> partitions(String prefix, int topics, int queues) {
        List<TopicPartition> found = new ArrayList<>();
        for (int i = 0; i < topics; i++) {
            for (int queue = 0; queue < queues; queue++) {
                found.add(new TopicPartition(Measured.topic(prefix, i), queue));
            }
        }
        return found;
    }

    private String read(String prefix, int topics, int queues, int messages) {
        Measured measured = new Measured((long) topics * queues * messages);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            List<TopicPartition> partitions = partitions(prefix, topics, queues);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(CONSUME_S);
            boolean done = false;
            while (!done) {
                int found = 0;
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(POLL)) {
                    // there may be more than was filled
                    found += each.offset() < messages ? 1 : 0;
                }
                done = measured.read(found);
                if (System.nanoTime() > end) {
                    throw new IllegalStateException(measured.messages() + " messages came");
                }
            }
        }
        return measured.json();
    }

    private String paced(String prefix, int topics, int queues, int rate, int seconds) throws Exception {
        int all = rate * seconds;
        String[] names = known(prefix, topics, prompt);
        Measured measured = new Measured();
        AtomicReference<Throwable> problem = new AtomicReference<>();
        CountDownLatch ready = new CountDownLatch(1);
        Thread reader = new Thread(() -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
                List<TopicPartition> partitions = partitions(prefix, topics, queues);
                consumer.assign(partitions);
                consumer.seekToEnd(partitions);
                partitions.forEach(consumer::position);
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(CONSUME_S);
                for (int left = all; left > 0 && System.nanoTime() < end; ) {
                    for (ConsumerRecord<byte[], byte[]> each : consumer.poll(POLL)) {
                        measured.sent(ByteBuffer.wrap(each.value()).getLong(), 1);
                        left--;
                    }
                    ready.countDown();
                }
            } catch (Throwable fault) {
                problem.compareAndSet(null, fault);
                ready.countDown();
            }
        });
        reader.start();
        ready.await();
        Thread.sleep(1000);
        Measured acknowledged = new Measured();
        measured.begin();
        Pace.run(rate, all, (number, dueNs) -> {
            byte[] stamped = ByteBuffer.allocate(BODY_BYTES).putLong(dueNs).array();
            prompt.send(new ProducerRecord<>(names[number % names.length], stamped), sent(acknowledged, problem));
        });
        reader.join(TimeUnit.SECONDS.toMillis(CONSUME_S));
        if (measured.messages() != all) {
            throw new IllegalStateException(measured.messages() + " of " + all + " messages came", problem.get());
        }
        return ended(prompt, measured, problem);
    }
}

import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a push consumer with the client's default settings, while things happen to the nodes.
 *
 * <pre>usage: Failover NAME_SERVERS TOPIC GROUP [pop]</pre>
 *
 * With "pop" the broker says how the consumer gets its messages; its group pops the topic.
 * The producer sends one message every 5 ms, each once, whose key and body are its number. The lines of
 * standard input: "mark" begins to measure gaps anew, "stats" is answered with what came of it so far, "stop"
 * ends the producer alone; the end of the input ends the program, with the same answer.
 */
public final class Failover {
    private static final long INTERVAL_NS = 5_000_000;
    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer consumer;
    private final String topic;
    private final Gap acknowledgements = new Gap();
    private final Gap deliveries = new Gap();
    private final Map<String, Boolean> acknowledged = new ConcurrentHashMap<>();
    private final Map<String, AtomicInteger> delivered = new ConcurrentHashMap<>();
    private final Map<String, Integer> failed = new TreeMap<>();
    private volatile boolean ended;

    /** The longest time between two events since a mark, and from the last one until now. */
    private static final class Gap {
        private long last = System.nanoTime();
        private long longest;

        synchronized void event() {
            long now = System.nanoTime();
            longest = Math.max(longest, now - last);
            last = now;
        }

        synchronized void mark() {
            longest = 0;
        }

        synchronized double longestMs() {
            return Math.max(longest, System.nanoTime() - last) / 100_000 / 10.0;
        }
    }

    private Failover(String nameServers, String topic, String group, boolean pop, int attempt) throws Exception {
        this.topic = topic;
        consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(Made.name("failover-consumer", attempt));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (pop) {
            Scene.call(consumer, "setClientRebalance", false);
        }
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                delivered.computeIfAbsent(each.getKeys(), key -> new AtomicInteger()).incrementAndGet();
                deliveries.event();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        producer = new DefaultMQProducer(group + "-producers");
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName(Made.name("failover-producer", attempt));
        producer.start();
    }

    public static void main(String[] arguments) {
        try {
            boolean pop = arguments.length > 3 && arguments[3].equals("pop");
            Made.of(attempt -> new Failover(arguments[0], arguments[1], arguments[2], pop, attempt)).run();
            System.exit(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private void run() throws Exception {
        Thread sender = new Thread(this::send);
        sender.start();
        print();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("mark")) {
                acknowledgements.mark();
                deliveries.mark();
            } else if (line.equals("stop")) {
                ended = true;
                sender.join();
            }
            print();
        }
        ended = true;
        sender.join();
        consumer.shutdown();
        producer.shutdown();
        print();
    }

    private void send() {
        long turn = System.nanoTime();
        for (int number = 0; !ended; number++) {
            LockSupport.parkNanos(turn - System.nanoTime());
            String key = Integer.toString(number);
            try {
                Message message = new Message(topic, "t", key, key.getBytes(StandardCharsets.UTF_8));
                if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                    acknowledged.put(key, true);
                    acknowledgements.event();
                } else {
                    failed("not SEND_OK");
                }
            } catch (Exception problem) {
                String text = String.valueOf(problem.getMessage());
                failed(problem.getClass().getSimpleName() + " " + text.substring(0, Math.min(text.length(), 200)));
            }
            // what was missed meanwhile is not sent all at once
            turn = Math.max(turn + INTERVAL_NS, System.nanoTime());
        }
    }

    private void failed(String what) {
        synchronized (failed) {
            failed.merge(what, 1, Integer::sum);
        }
    }

    private void print() {
        List<String> missing = new ArrayList<>();
        for (String key : acknowledged.keySet()) {
            if (!delivered.containsKey(key)) {
                missing.add(key);
            }
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("acknowledged", acknowledged.size());
        row.put("delivered", delivered.size());
        row.put("repeated", delivered.values().stream().filter(times -> times.get() > 1).count());
        row.put("missing", missing.size());
        row.put("some_missing", missing.subList(0, Math.min(missing.size(), 10)));
        row.put("acknowledgement_gap_ms", acknowledgements.longestMs());
        row.put("delivery_gap_ms", deliveries.longestMs());
        synchronized (failed) {
            row.put("failed", new TreeMap<>(failed));
        }
        if (ended) {
            row.put("acknowledged_keys", new ArrayList<>(acknowledged.keySet()));
        }
        System.out.println(JSON.toJSONString(row));
        System.out.flush();
    }
}

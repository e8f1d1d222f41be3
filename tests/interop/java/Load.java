import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileWriter;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer that never stops by itself: threads send, one message or one batch after the other, over
 * restarts of the broker too. No message is sent twice: after a failure the next one has its turn.
 *
 * <pre>usage: Load NAME_SERVER BROKER_NAME ORDER</pre>
 *
 * ORDER is JSON: topic, queues (0: the client chooses, by its route), threads, bytes (of a body), batch
 * (messages a send), rate (messages a second of all threads, 0: as fast as it goes), prefix (of the keys),
 * messages (of each thread, 0: no end), timeout_ms, file. Each SEND_OK is a line of the file: topic, queue id, queue offset, key,
 * message id, CRC-32 of the body, latency (ms), time (ms of the epoch). The line "stats" on standard
 * input is answered with what was sent so far; its end ends the program, with the same answer.
 */
public final class Load {
    private static final int BLOCK = 4 << 20;
    private static final int LATENCIES_A_MS = 10;
    private final DefaultMQProducer producer = new DefaultMQProducer("PID_load");
    private final Map<String, Long> statuses = new TreeMap<>();
    /** How many sends took so many tenths of a millisecond. */
    private final int[] latencies = new int[60_000 * LATENCIES_A_MS];
    private final byte[] random = new byte[BLOCK];
    private final BufferedWriter file;
    private final String broker;
    private final String topic;
    private final String prefix;
    private final int queues;
    private final int threads;
    private final int bytes;
    private final int batch;
    private final double rate;
    private final long messages;
    private final long timeout;
    private final List<Thread> senders = new ArrayList<>();
    private volatile boolean ended;

    private Load(String nameServer, String broker, JSONObject order, int attempt) throws Exception {
        this.broker = broker;
        topic = order.getString("topic");
        prefix = order.getString("prefix");
        queues = order.getIntValue("queues");
        threads = order.getIntValue("threads");
        bytes = order.getIntValue("bytes");
        batch = order.getIntValue("batch");
        rate = order.getDoubleValue("rate");
        messages = order.getLongValue("messages");
        timeout = order.getLongValue("timeout_ms");
        file = new BufferedWriter(new FileWriter(order.getString("file"), StandardCharsets.UTF_8), 1 << 20);
        new Random(prefix.hashCode()).nextBytes(random);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(Made.name("load-" + prefix, attempt));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setMaxMessageSize(64 << 20);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
    }

    public static void main(String[] arguments) {
        try {
            JSONObject order = JSON.parseObject(arguments[2]);
            Made.of(attempt -> new Load(arguments[0], arguments[1], order, attempt)).run();
            System.exit(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private void run() throws Exception {
        Made.reaches(producer, new MessageQueue(topic, broker, 0));
        for (int i = 0; i < threads; i++) {
            int number = i;
            senders.add(new Thread(() -> send(number)));
        }
        senders.forEach(Thread::start);
        Thread flusher = new Thread(this::flush);
        flusher.setDaemon(true);
        flusher.start();
        print(Map.of("started", true));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (in.readLine() != null) {
            print(summary());
        }
        ended = true;
        for (Thread sender : senders) {
            LockSupport.unpark(sender);
            sender.join();
        }
        synchronized (this) {
            file.close();
        }
        print(summary());
    }

    private static void print(Map<String, Object> answer) {
        System.out.println(JSON.toJSONString(answer));
        System.out.flush();
    }

    private void send(int thread) {
        long interval = rate > 0 ? (long) (1e9 * threads * batch / rate) : 0;
        long turn = System.nanoTime() + interval * thread / threads;
        int queue = thread;
        for (long number = 0; !ended && (messages == 0 || number < messages); number += batch) {
            List<Message> these = new ArrayList<>(batch);
            for (int i = 0; i < batch; i++) {
                these.add(message(thread, number + i));
            }
            for (long wait = turn - System.nanoTime(); wait > 0 && !ended; wait = turn - System.nanoTime()) {
                LockSupport.parkNanos(wait);
            }
            long begin = System.nanoTime();
            try {
                record(these, queues == 0 ? producer.send(these.get(0), timeout)
                    : sendTo(new MessageQueue(topic, broker, queue++ % queues), these), System.nanoTime() - begin);
            } catch (Exception problem) {
                count(describe(problem));
                LockSupport.parkNanos(50_000_000);
            }
            // what a broker missed while it was down is not sent all at once
            turn = Math.max(turn + interval, System.nanoTime() - 500_000_000);
        }
    }

    private SendResult sendTo(MessageQueue target, List<Message> these) throws Exception {
        return batch == 1 ? producer.send(these.get(0), target, timeout) : producer.send(these, target, timeout);
    }

    /** The body begins with the key; the rest is part of one block of random bytes. */
    private Message message(int thread, long number) {
        String key = prefix + "-" + thread + "-" + number;
        byte[] body = new byte[bytes];
        int from = (int) ((number * 7919 + thread * 104_729L) % (BLOCK - bytes));
        System.arraycopy(random, from, body, 0, bytes);
        byte[] start = (key + " ").getBytes(StandardCharsets.UTF_8);
        System.arraycopy(start, 0, body, 0, Math.min(start.length, bytes));
        Message message = new Message(topic, "tag-" + number % 3, key, body);
        message.putUserProperty("n", Long.toString(number));
        return message;
    }

    private void record(List<Message> sent, SendResult result, long nanos) throws Exception {
        long now = System.currentTimeMillis();
        String[] ids = result.getSendStatus() == SendStatus.SEND_OK ? result.getOffsetMsgId().split(",") : null;
        if (ids != null && ids.length != sent.size()) {
            throw new IllegalStateException(ids.length + " ids for " + sent.size() + " messages");
        }
        StringBuilder lines = new StringBuilder();
        for (int i = 0; ids != null && i < ids.length; i++) {
            Message message = sent.get(i);
            CRC32 crc = new CRC32();
            crc.update(message.getBody());
            lines.append(topic).append('\t').append(result.getMessageQueue().getQueueId()).append('\t')
                .append(result.getQueueOffset() + i).append('\t').append(message.getKeys()).append('\t')
                .append(ids[i]).append('\t').append(crc.getValue()).append('\t')
                .append(nanos / 100_000 / 10.0).append('\t').append(now).append('\n');
        }
        synchronized (this) {
            count(result.getSendStatus().name());
            if (ids != null) {
                latencies[(int) Math.min(nanos / (1_000_000 / LATENCIES_A_MS), latencies.length - 1)]++;
                file.append(lines);
            }
        }
    }

    private synchronized void count(String status) {
        statuses.merge(status, (long) batch, Long::sum);
    }

    private static String describe(Exception problem) {
        String name = problem.getClass().getSimpleName();
        if (problem instanceof MQBrokerException) {
            return name + " " + ((MQBrokerException) problem).getResponseCode();
        }
        return problem instanceof MQClientException ? name + " " + ((MQClientException) problem).getResponseCode() : name;
    }

    private void flush() {
        try {
            for (; !ended; Thread.sleep(100)) {
                synchronized (this) {
                    if (!ended) {
                        file.flush();
                    }
                }
            }
        } catch (Exception problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private synchronized Map<String, Object> summary() throws Exception {
        if (!ended) {
            file.flush();
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("sending", senders.stream().filter(Thread::isAlive).count());
        row.put("statuses", new TreeMap<>(statuses));
        row.put("p50_ms", latency(0.5));
        row.put("p99_ms", latency(0.99));
        row.put("max_ms", latency(1));
        return row;
    }

    private double latency(double part) {
        long count = 0;
        for (int each : latencies) {
            count += each;
        }
        long wanted = (long) Math.ceil(count * part);
        long seen = 0;
        for (int i = 0; i < latencies.length && wanted > 0; i++) {
            seen += latencies[i];
            if (seen >= wanted) {
                return (double) i / LATENCIES_A_MS;
            }
        }
        return 0;
    }
}

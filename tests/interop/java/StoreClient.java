import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * RocketMQ's own client behind a line protocol: a command a line on standard input, a JSON object a
 * line on standard output. One process answers many questions, since a JVM takes seconds to start.
 *
 * <pre>usage: StoreClient NAME_SERVER BROKER_NAME</pre>
 */
public final class StoreClient {
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("GID_store_client");
    private final DefaultMQProducer producer = new DefaultMQProducer("PID_store_client");
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();
    private final String broker;

    private StoreClient(String nameServer, String broker) throws Exception {
        this.broker = broker;
        for (var each : List.of(consumer, producer, admin)) {
            each.setNamesrvAddr(nameServer);
            each.setInstanceName("store-client-" + each.getClass().getSimpleName());
        }
        producer.setRetryTimesWhenSendFailed(0);
        consumer.start();
        producer.start();
        admin.start();
    }

    public static void main(String[] arguments) {
        try {
            StoreClient client = new StoreClient(arguments[0], arguments[1]);
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                Object answer;
                try {
                    answer = client.answer(line.split(" "));
                } catch (Exception problem) {
                    answer = Map.of("error", problem.getClass().getSimpleName() + ": " + problem.getMessage());
                }
                System.out.println(JSON.toJSONString(answer));
                System.out.flush();
            }
            System.exit(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private Object answer(String[] words) throws Exception {
        switch (words[0]) {
            case "range": {
                MessageQueue queue = queue(words[1], words[2]);
                return Map.of("min", admin.minOffset(queue), "max", admin.maxOffset(queue));
            }
            case "pull":
                return pull(queue(words[1], words[2]), words.length > 3 ? words[3] : "*");
            case "key":
                return key(words[1], words[2]);
            case "view": {
                MessageExt message = admin.viewMessage(words[1], words[2]);
                return Map.of("message", describe(message));
            }
            case "search": {
                MessageQueue queue = queue(words[1], words[2]);
                long time = Long.parseLong(words[3]);
                return Map.of(
                    "lower", admin.searchLowerBoundaryOffset(queue, time),
                    "upper", admin.searchUpperBoundaryOffset(queue, time));
            }
            case "send":
                return send(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), words[4]);
            case "fill":
                return fill(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), Long.parseLong(words[4]));
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private MessageQueue queue(String topic, String id) {
        return new MessageQueue(topic, broker, Integer.parseInt(id));
    }

    private Map<String, Object> pull(MessageQueue queue, String tags) throws Exception {
        List<Object> messages = new ArrayList<>();
        long offset = admin.minOffset(queue);
        long end = admin.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, tags, offset, 32, 20000);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    messages.add(describe(message));
                }
            } else if (result.getPullStatus() == PullStatus.NO_NEW_MSG || result.getNextBeginOffset() <= offset) {
                return Map.of("messages", messages, "stopped", result.getPullStatus().name() + " at " + offset);
            }
            offset = result.getNextBeginOffset();
        }
        return Map.of("messages", messages);
    }

    private Map<String, Object> key(String topic, String key) throws Exception {
        List<Object> messages = new ArrayList<>();
        QueryResult result = admin.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        for (MessageExt message : result.getMessageList()) {
            messages.add(describe(message));
        }
        return Map.of("messages", messages);
    }

    private Map<String, Object> send(String topic, int queueId, int count, String prefix) throws Exception {
        List<Object> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            byte[] body = (prefix + "-body-" + i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, "tag-" + i % 3, prefix + "-" + i, body);
            SendResult result = producer.send(message, queue(topic, Integer.toString(queueId)), 10000);
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("status", result.getSendStatus().name());
            row.put("queue_offset", result.getQueueOffset());
            row.put("offset_msg_id", result.getOffsetMsgId());
            row.put("key", prefix + "-" + i);
            sent.add(row);
        }
        return Map.of("sent", sent);
    }

    /** Messages of every ordinary kind: sizes, tags, keys, properties, batches, a few delayed ones. */
    private Map<String, Object> fill(String topic, int queues, int count, long seed) throws Exception {
        Random random = new Random(seed);
        String[] tags = {"TagA", "pay", "标签", ""};
        int stored = 0;
        while (stored < count) {
            int batch = random.nextInt(4) == 0 ? 1 + random.nextInt(8) : 1;
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < batch; i++) {
                byte[] body = new byte[1 + random.nextInt(random.nextInt(20) == 0 ? 6000 : 300)];
                random.nextBytes(body);
                Message message = new Message(topic, tags[random.nextInt(tags.length)], body);
                if (random.nextBoolean()) {
                    message.setKeys("k" + stored + (random.nextBoolean() ? "  订单" + stored : ""));
                }
                message.putUserProperty("n", Integer.toString(stored));
                messages.add(message);
                stored++;
            }
            MessageQueue queue = new MessageQueue(topic, broker, random.nextInt(queues));
            if (batch > 1) {
                producer.send(messages, queue);
            } else {
                if (random.nextInt(40) == 0) {
                    messages.get(0).setDelayTimeLevel(1);
                }
                producer.send(messages.get(0), queue);
            }
        }
        return Map.of("stored", stored);
    }

    private static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("physical_offset", message.getCommitLogOffset());
        row.put("offset_msg_id",
            message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("store_timestamp", message.getStoreTimestamp());
        row.put("length", message.getBody().length);
        row.put("sha256", sha256(message.getBody()));
        return row;
    }

    private static String sha256(byte[] bytes) throws Exception {
        StringBuilder text = new StringBuilder();
        for (byte each : MessageDigest.getInstance("SHA-256").digest(bytes)) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}

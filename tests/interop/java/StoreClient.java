import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
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
    /** ResponseCode.NO_MESSAGE, whose class changed its package with 5.1. */
    private static final int NO_MESSAGE = 208;
    /** For each request: a broker on a busy machine may stand still for seconds. RocketMQ's own are 3 to 6 s. */
    private static final int TIMEOUT_MS = 30_000;
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("GID_store_client");
    private final DefaultMQProducer producer = new DefaultMQProducer("PID_store_client");
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);
    private final List<String> popGroups = new ArrayList<>();
    private final String nameServer;
    private final String broker;

    private StoreClient(String nameServer, String broker, int attempt) throws Exception {
        this.nameServer = nameServer;
        this.broker = broker;
        for (var each : List.of(consumer, producer, admin)) {
            each.setNamesrvAddr(nameServer);
            each.setInstanceName(Made.name("store-client-" + each.getClass().getSimpleName(), attempt));
            each.setPollNameServerInterval(1000);
            each.setMqClientApiTimeout(TIMEOUT_MS);
        }
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setMaxMessageSize(64 << 20);
        consumer.start();
        producer.start();
        admin.start();
        for (var each : List.of(consumer, producer, admin)) {
            MQClientManager.getInstance().getOrCreateMQClientInstance(each).getMQAdminImpl().setTimeoutMillis(TIMEOUT_MS);
        }
    }

    public static void main(String[] arguments) {
        try {
            StoreClient client = Made.of(attempt -> new StoreClient(arguments[0], arguments[1], attempt));
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                Object answer;
                try {
                    // what "put" takes is JSON, which may have spaces
                    answer = client.answer(line.startsWith("put ") ? line.split(" ", 2) : line.split(" "));
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
            case "pull_once":
                return pullOnce(queue(words[1], words[2]), words[3], Long.parseLong(words[4]), Integer.parseInt(words[5]));
            case "records":
                return records(queue(words[1], words[2]), words[3]);
            case "create_topic": {
                int queues = Integer.parseInt(words[2]);
                admin.createAndUpdateTopicConfig(address(words, 3), new TopicConfig(words[1], queues, queues, 6));
                return Map.of("topic", words[1]);
            }
            case "delete_topic":
                admin.deleteTopicInBroker(Set.of(address(words, 2)), words[1]);
                return Map.of("deleted", words[1]);
            case "set_broker_config": {
                Properties properties = new Properties();
                properties.setProperty(words[1], words[2]);
                admin.updateBrokerConfig(address(words, 3), properties);
                return Map.of("set", words[1]);
            }
            case "consumer_offsets":
                return consumerOffsets(words[1], words[2], address(words, 3));
            case "key":
                return key(words[1], words[2]);
            case "view": {
                MessageExt message = admin.viewMessage(words[1], words[2]);
                return Map.of("message", describe(message));
            }
            case "search": {
                MessageQueue queue = queue(words[1], words[2]);
                long time = Long.parseLong(words[3]);
                return boundaries(queue, time);
            }
            case "flood":
                return flood(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "put":
                return put(JSON.parseObject(words[1]));
            case "transactions":
                return transactions(words[1], Integer.parseInt(words[2]));
            case "send_back":
                return sendBack(queue(words[1], words[2]), Long.parseLong(words[3]), words[4], Integer.parseInt(words[5]));
            case "consume":
                return consume(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "pop":
                setPop(words[1], words[2]);
                return consume(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
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

    /** The broker whose address is given as word `number`, else the master. */
    private String address(String[] words, int number) throws Exception {
        if (words.length > number) {
            return words[number];
        }
        return admin.examineBrokerClusterInfo().getBrokerAddrTable().get(broker).getBrokerAddrs().get(0L);
    }

    /** Asks the broker itself: the admin client wants a route of the group's retry topic first. */
    private Map<String, Object> consumerOffsets(String group, String topic, String address) throws Exception {
        var api = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        Map<String, Object> offsets = new TreeMap<>();
        api.getConsumeStats(address, group, topic, TIMEOUT_MS).getOffsetTable().forEach((queue, offset) ->
            offsets.put(Integer.toString(queue.getQueueId()), offset.getConsumerOffset()));
        return Map.of("offsets", offsets);
    }

    /** All messages of a queue into a file: topic, queue id, queue offset, key, message id, CRC-32 of the body. */
    private Map<String, Object> records(MessageQueue queue, String file) throws Exception {
        Made.reaches(consumer, queue);
        long offset = admin.minOffset(queue);
        long end = admin.maxOffset(queue);
        long count = 0;
        try (PrintWriter out = new PrintWriter(file, StandardCharsets.UTF_8)) {
            while (offset < end) {
                PullResult result = consumer.pull(queue, "*", offset, 1024, 20000);
                if (result.getPullStatus() != PullStatus.FOUND) {
                    throw new IllegalStateException(result.getPullStatus() + " at " + offset + " of " + end);
                }
                for (MessageExt message : result.getMsgFoundList()) {
                    CRC32 crc = new CRC32();
                    crc.update(message.getBody());
                    out.print(message.getTopic() + "\t" + message.getQueueId() + "\t" + message.getQueueOffset() + "\t"
                        + message.getKeys() + "\t" + offsetMsgId(message) + "\t" + crc.getValue() + "\n");
                    count++;
                }
                offset = result.getNextBeginOffset();
            }
        }
        return Map.of("count", count);
    }

    private static String offsetMsgId(MessageExt message) {
        return message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
    }

    /** Brokers before 5.0 know one answer for a time, 5.x clients ask for either boundary. */
    private Map<String, Object> boundaries(MessageQueue queue, long time) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (String name : List.of("lower", "upper")) {
            String method = "search" + name.substring(0, 1).toUpperCase() + name.substring(1) + "BoundaryOffset";
            try {
                Object offset = admin.getClass().getMethod(method, MessageQueue.class, long.class).invoke(admin, queue, time);
                found.put(name, offset);
            } catch (NoSuchMethodException old) {
                found.put("nearest", admin.searchOffset(queue, time));
            }
        }
        return found;
    }

    /**
     * Sends `messages` one by one, or as one batch where `batch` is true. Each has topic, queue_id,
     * and body (text) or length (random bytes; with `repeat` a text that compresses well); and may
     * have tags, keys, delay, flag, unit (any properties by name, reserved ones too).
     */
    private Map<String, Object> put(JSONObject order) throws Exception {
        List<Message> messages = new ArrayList<>();
        List<MessageQueue> queues = new ArrayList<>();
        JSONArray rows = order.getJSONArray("messages");
        for (int i = 0; i < rows.size(); i++) {
            JSONObject row = rows.getJSONObject(i);
            Message message = new Message(row.getString("topic"), row.getString("tags"), body(row));
            if (row.containsKey("keys")) {
                message.setKeys(row.getString("keys"));
            }
            if (row.containsKey("delay")) {
                message.setDelayTimeLevel(row.getIntValue("delay"));
            }
            message.setFlag(row.getIntValue("flag"));
            if (row.containsKey("properties")) {
                for (Map.Entry<String, Object> each : row.getJSONObject("properties").entrySet()) {
                    MessageAccessor.putProperty(message, each.getKey(), String.valueOf(each.getValue()));
                }
            }
            messages.add(message);
            queues.add(queue(row.getString("topic"), row.getString("queue_id")));
        }
        List<Object> sent = new ArrayList<>();
        if (order.getBooleanValue("batch")) {
            sent.add(producer.send(messages, queues.get(0), 20000).getSendStatus().name());
        } else {
            for (int i = 0; i < messages.size(); i++) {
                sent.add(producer.send(messages.get(i), queues.get(i), 20000).getSendStatus().name());
            }
        }
        return Map.of("sent", sent);
    }

    private static byte[] body(JSONObject row) {
        if (row.containsKey("body")) {
            return row.getString("body").getBytes(StandardCharsets.UTF_8);
        }
        byte[] body = new byte[row.getIntValue("length")];
        if (row.getBooleanValue("repeat")) {
            Arrays.fill(body, (byte) 'r');
        } else {
            new Random(row.getIntValue("length")).nextBytes(body);
        }
        return body;
    }

    /** Threads that send without an end: until the broker is gone. The answer comes at once. */
    private Map<String, Object> flood(String topic, int queues, int threads) {
        for (int i = 0; i < threads; i++) {
            int seed = i;
            Thread thread = new Thread(() -> {
                Random random = new Random(seed);
                try {
                    for (int number = 0; ; number++) {
                        byte[] body = new byte[1 + random.nextInt(300)];
                        random.nextBytes(body);
                        Message message = new Message(topic, "TagA", "flood-" + seed + "-" + number, body);
                        producer.send(message, queue(topic, Integer.toString(random.nextInt(queues))));
                    }
                } catch (Exception gone) {
                    System.err.println("flood ends: " + gone);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        return Map.of("threads", threads);
    }

    /** Transactions in turn committed, rolled back, and left open. */
    private Map<String, Object> transactions(String topic, int count) throws Exception {
        LocalTransactionState[] outcomes = LocalTransactionState.values();
        TransactionListener listener = new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return outcomes[(Integer) number % outcomes.length];
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        };
        TransactionMQProducer sender = Made.of(attempt -> {
            TransactionMQProducer made = new TransactionMQProducer("PID_transactions");
            made.setNamesrvAddr(nameServer);
            made.setInstanceName(Made.name("transactions", attempt));
            made.setTransactionListener(listener);
            made.start();
            return made;
        });
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "tx", "tx" + i, ("transaction " + i).getBytes(StandardCharsets.UTF_8));
            sender.sendMessageInTransaction(message, i);
        }
        sender.shutdown();
        return Map.of("sent", count);
    }

    /** What a consumer of `group` does that could not handle the message. */
    private Map<String, Object> sendBack(MessageQueue queue, long offset, String group, int level) throws Exception {
        Made.reaches(consumer, queue);
        MessageExt message = consumer.pull(queue, "*", offset, 1, 20000).getMsgFoundList().get(0);
        consumer.sendMessageBack(message, level, broker, group);
        return Map.of("sent_back", message.getKeys());
    }

    /** A push consumer that sends every third message back once, and ends after `count` messages. */
    private Map<String, Object> consume(String topic, String group, int count, int seconds) throws Exception {
        AtomicInteger taken = new AtomicInteger();
        MessageListenerConcurrently listener = (messages, context) -> {
            MessageExt message = messages.get(0);
            taken.incrementAndGet();
            context.setDelayLevelWhenNextConsume(1);
            return message.getQueueOffset() % 3 == 0 && message.getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        DefaultMQPushConsumer push = Made.of(attempt -> {
            DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
            made.setNamesrvAddr(nameServer);
            made.setInstanceName(Made.name("consume-" + group, attempt));
            made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            made.subscribe(topic, "*");
            made.registerMessageListener(listener);
            if (popGroups.contains(group)) {
                DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(made, false);
            }
            made.start();
            return made;
        });
        for (long end = System.nanoTime() + seconds * 1_000_000_000L; taken.get() < count && System.nanoTime() < end;) {
            Thread.sleep(50);
        }
        push.shutdown();
        return Map.of("taken", taken.get());
    }

    /** Tell the broker that this group gets its messages by POP (brokers since 5.0). */
    private void setPop(String topic, String group) throws Exception {
        Class<?> modes = Class.forName("org.apache.rocketmq.common.message.MessageRequestMode");
        String address = admin.examineBrokerClusterInfo().getBrokerAddrTable().get(broker).selectBrokerAddr();
        admin.getClass()
            .getMethod("setMessageRequestMode", String.class, String.class, String.class, modes, int.class, long.class)
            .invoke(admin, address, topic, group, modes.getField("POP").get(null), 8, 5000L);
        popGroups.add(group);
    }

    private Map<String, Object> pull(MessageQueue queue, String tags) throws Exception {
        Made.reaches(consumer, queue);
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

    private Map<String, Object> pullOnce(MessageQueue queue, String tags, long offset, int count) throws Exception {
        PullResult result = consumer.pull(queue, tags, offset, count, 20000);
        List<Long> offsets = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            result.getMsgFoundList().forEach(message -> offsets.add(message.getQueueOffset()));
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getPullStatus().name());
        row.put("next_begin_offset", result.getNextBeginOffset());
        row.put("min_offset", result.getMinOffset());
        row.put("max_offset", result.getMaxOffset());
        row.put("offsets", offsets);
        return row;
    }

    private Map<String, Object> key(String topic, String key) throws Exception {
        List<Object> messages = new ArrayList<>();
        try {
            QueryResult result = admin.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
            for (MessageExt message : result.getMessageList()) {
                messages.add(describe(message));
            }
        } catch (MQClientException none) {
            if (none.getResponseCode() != NO_MESSAGE) {
                throw none;
            }
        }
        return Map.of("messages", messages);
    }

    private Map<String, Object> send(String topic, int queueId, int count, String prefix) throws Exception {
        Made.reaches(producer, queue(topic, Integer.toString(queueId)));
        List<Object> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            byte[] body = (prefix + "-body-" + i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, "tag-" + i % 3, prefix + "-" + i, body);
            SendResult result = producer.send(message, queue(topic, Integer.toString(queueId)), TIMEOUT_MS);
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
        row.put("offset_msg_id", offsetMsgId(message));
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

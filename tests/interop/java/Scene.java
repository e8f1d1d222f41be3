import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What one scenario has: topics and groups of its own, clients that end with it, and what it saw.
 *
 * What is random is written down as what it is: a message id as its length, a time not at all. Names of
 * topics and groups end in a suffix of the client's version, which is taken out of what is printed.
 */
final class Scene {
    /** What a scenario waits for comes in time on a busy machine too. */
    static final long WAIT_MS = 60_000;
    private static final AtomicInteger CLIENTS = new AtomicInteger();
    /** These depend on when a message was sent or pulled. */
    private static final Set<String> RANDOM = Set.of("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "INSTANCE_ID");
    /** These are ids. */
    private static final Set<String> IDS = Set.of("UNIQ_KEY", "ORIGIN_MESSAGE_ID", "__transactionId__", "CORRELATION_ID",
        "REPLY_TO_CLIENT", "TRAN_PREPARED_QUEUE_OFFSET", "DLQ_ORIGIN_MESSAGE_ID", "POP_CK");
    /** These are times in milliseconds of the epoch. */
    private static final Set<String> TIMES = Set.of("ARRIVE_TIME", "PUSH_REPLY_TIME", "TIMER_DELIVER_MS", "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TRAN_CHECK_TIME", "REPLY_MESSAGE_ARRIVE_TIME", "1ST_POP_TIME");
    final String nameServer;
    final String broker;
    final String suffix;
    private final String name;
    private final Map<String, Object> seen = new LinkedHashMap<>();
    private final Deque<Runnable> ends = new ArrayDeque<>();

    Scene(String name, String nameServer, String broker, String suffix) {
        this.name = name;
        this.nameServer = nameServer;
        this.broker = broker;
        this.suffix = suffix;
    }

    /** Adds what was seen of `what`. */
    void saw(String what, Object value) {
        seen.put(what, value);
    }

    String line(String problem) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("scenario", name);
        row.put("problem", problem);
        row.put("seen", seen);
        return JSON.toJSONString(row, SerializerFeature.WriteMapNullValue,
            SerializerFeature.WriteNonStringKeyAsString, SerializerFeature.DisableCircularReferenceDetect)
            .replace(suffix, "");
    }

    /** Ends the clients, the newest first. */
    void close() {
        while (!ends.isEmpty()) {
            ends.pop().run();
        }
    }

    String topic(String end) {
        return "T-" + name + "-" + end + suffix;
    }

    String group(String end) {
        return "G-" + name + "-" + end + suffix;
    }

    MessageQueue queue(String topic, int queueId) {
        return new MessageQueue(topic, broker, queueId);
    }

    /** A topic of the scenario that the broker has and tells of. */
    String created(String end, int queues) throws Exception {
        String topic = topic(end);
        DefaultMQAdminExt admin = admin();
        create(admin, topic, queues);
        return topic;
    }

    void create(DefaultMQAdminExt admin, String topic, int queues) throws Exception {
        until("the route of " + topic, () -> {
            admin.createAndUpdateTopicConfig(brokerAddress(), new TopicConfig(topic, queues, queues, 6));
            return queues(topic) == queues;
        });
    }

    /** One for the scenario: made where it is needed first. */
    private DefaultMQAdminExt admin;

    DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            admin = Made.of(attempt -> {
                DefaultMQAdminExt made = configured(new DefaultMQAdminExt(30_000), attempt);
                made.start();
                return made;
            });
            ends.push(admin::shutdown);
        }
        return admin;
    }

    /** How many queues can be read, by the route. */
    int queues(String topic) throws Exception {
        int count = 0;
        for (var each : admin().examineTopicRouteInfo(topic).getQueueDatas()) {
            count += each.getReadQueueNums();
        }
        return count;
    }

    /** Where administrators' requests go. */
    String brokerAddress() throws Exception {
        return admin().examineBrokerClusterInfo().getBrokerAddrTable().get(broker).getBrokerAddrs().get(0L);
    }

    DefaultMQProducer producer() throws Exception {
        return started(new DefaultMQProducer(group("producers")));
    }

    <T extends DefaultMQProducer> T started(T producer) throws Exception {
        configured(producer, 1);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        ends.push(producer::shutdown);
        return producer;
    }

    DefaultMQPullConsumer puller(String group) throws Exception {
        DefaultMQPullConsumer consumer = configured(new DefaultMQPullConsumer(group), 1);
        consumer.start();
        ends.push(consumer::shutdown);
        return consumer;
    }

    /** A push consumer that is to be started by `start`: it reads from the first message on. */
    DefaultMQPushConsumer pusher(String group) {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(group), 1);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setAwaitTerminationMillisWhenShutdown(2000);
        return consumer;
    }

    void start(DefaultMQPushConsumer consumer) throws Exception {
        consumer.start();
        ends.push(consumer::shutdown);
    }

    DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer consumer = configured(new DefaultLitePullConsumer(group), 1);
        consumer.setPullBatchSize(32);
        ends.push(consumer::shutdown);
        return consumer;
    }

    private <T extends ClientConfig> T configured(T client, int attempt) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName(Made.name("scene-" + CLIENTS.incrementAndGet(), attempt));
        // a consumer that waits for a route asks for it each second, not after 30 s
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setMqClientApiTimeout(30_000); // a busy machine may stand still for seconds
        return client;
    }

    static Message message(String topic, String tags, String key, String body) {
        return new Message(topic, tags, key, body.getBytes(StandardCharsets.UTF_8));
    }

    /** Polls until `true`; a problem on the way is one of the last things tried. */
    void until(String what, Callable<Boolean> holds) throws Exception {
        long end = System.nanoTime() + WAIT_MS * 1_000_000;
        while (true) {
            Exception problem = null;
            try {
                if (holds.call()) {
                    return;
                }
            } catch (Exception error) {
                problem = error;
            }
            if (System.nanoTime() - end > 0) {
                throw new IllegalStateException("waited for: " + what, problem);
            }
            Thread.sleep(50);
        }
    }

    static Map<String, Object> sent(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("topic", result.getMessageQueue().getTopic());
        row.put("broker", result.getMessageQueue().getBrokerName());
        row.put("queue_id", result.getMessageQueue().getQueueId());
        row.put("queue_offset", result.getQueueOffset());
        row.put("message_ids", lengths(result.getMsgId()));
        row.put("offset_message_ids", lengths(result.getOffsetMsgId()));
        row.put("transaction_id", result.getTransactionId() == null ? null : lengths(result.getTransactionId()));
        row.put("region", result.getRegionId());
        row.put("trace", result.isTraceOn());
        return row;
    }

    private static List<Integer> lengths(String ids) {
        List<Integer> found = new ArrayList<>();
        for (String each : ids == null ? new String[0] : ids.split(",")) {
            found.add(each.length());
        }
        return found;
    }

    static Map<String, Object> received(MessageExt message) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("times", message.getReconsumeTimes());
        row.put("flag", message.getFlag());
        row.put("sys_flag", message.getSysFlag());
        row.put("prepared", message.getPreparedTransactionOffset() != 0);
        row.put("born_host", message.getBornHostString());
        row.put("body", body(message.getBody()));
        row.put("message_id", lengths(message.getMsgId()));
        row.put("properties", properties(message.getProperties()));
        return row;
    }

    static Object body(byte[] body) {
        if (body == null) {
            return null;
        }
        if (body.length <= 64) {
            return new String(body, StandardCharsets.UTF_8);
        }
        CRC32 crc = new CRC32();
        crc.update(body);
        return body.length + " bytes, " + Long.toHexString(crc.getValue());
    }

    static Map<String, String> properties(Map<String, String> all) {
        Map<String, String> found = new TreeMap<>();
        all.forEach((key, value) -> {
            if (IDS.contains(key)) {
                found.put(key, "an id");
            } else if (key.equals("TRANSACTION_CHECK_TIMES")) {
                found.put(key, "a count");
            } else if (TIMES.contains(key)) {
                found.put(key, "a time");
            } else if (!RANDOM.contains(key)) {
                found.put(key, value);
            }
        });
        return found;
    }

    /** The code of a refusal, or what else came of the call. */
    static Object outcome(Callable<?> call) {
        try {
            call.call();
            return "done";
        } catch (MQBrokerException problem) {
            return "broker refuses: " + problem.getResponseCode();
        } catch (MQClientException problem) {
            Throwable cause = problem.getCause();
            return cause instanceof MQBrokerException ? "broker refuses: " + ((MQBrokerException) cause).getResponseCode()
                : "client refuses: " + problem.getResponseCode();
        } catch (Exception problem) {
            return problem.getClass().getSimpleName();
        }
    }

    /** Calls a method that only some versions have. */
    static Object call(Object target, String method, Object... values) throws Exception {
        for (Method each : target.getClass().getMethods()) {
            if (each.getName().equals(method) && each.getParameterCount() == values.length) {
                return each.invoke(target, values);
            }
        }
        throw new NoSuchMethodException(method);
    }

    /** The constant of an enum whose package changed between the versions; `any` is one of it. */
    static <E extends Enum<E>> E constant(E any, String name) {
        return Enum.valueOf(any.getDeclaringClass(), name);
    }
}

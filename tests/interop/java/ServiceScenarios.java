import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What a broker does beside storing: delays, transactions, requests with a reply. */
final class ServiceScenarios {
    /** What the producer decides only when it is asked. A broker may take 3 s to note down the rest. */
    private static final Set<String> LATER = Set.of("later committed", "later rolled back");

    private ServiceScenarios() {
    }

    /** A consumer that notes what arrives, and when. */
    private static List<MessageExt> arriving(Scene scene, String topic, Map<String, Long> at) throws Exception {
        List<MessageExt> rows = PushScenarios.list();
        DefaultMQPushConsumer consumer = scene.pusher(scene.group("arriving"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> at.put(each.getKeys(), System.currentTimeMillis()));
            rows.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        return rows;
    }

    static void delayed(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        Map<String, Long> at = new ConcurrentHashMap<>();
        List<MessageExt> rows = arriving(scene, topic, at);
        DefaultMQProducer producer = scene.producer();
        List<Object> sent = new ArrayList<>();
        long begin = System.currentTimeMillis();
        for (int level : new int[] {0, 1, 2}) {
            Message message = Scene.message(topic, "t", "level" + level, "body");
            message.setDelayTimeLevel(level);
            Map<String, Object> result = Scene.sent(producer.send(message, scene.queue(topic, 1)));
            // of the queue of the level, which all scenarios share
            result.put("queue_offset", "shared");
            sent.add(result);
        }
        scene.until("three messages", () -> rows.size() >= 3);
        scene.saw("sent", sent);
        scene.saw("arrived", PushScenarios.sorted(rows));
        scene.saw("not early", at.get("level1") - begin >= 1000 && at.get("level2") - begin >= 5000);
    }

    /** A time of its own for each message, and one that is called back. Only 5.x can. */
    static void timed(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        Map<String, Long> at = new ConcurrentHashMap<>();
        List<MessageExt> rows = arriving(scene, topic, at);
        DefaultMQProducer producer = scene.producer();
        List<Object> sent = new ArrayList<>();
        Message recalled = Scene.message(topic, "t", "recalled", "body");
        Scene.call(recalled, "setDelayTimeSec", 5L);
        SendResult recall = producer.send(recalled, scene.queue(topic, 0));
        // at once: on a busy machine its time would come while the others are sent
        String handle = (String) Scene.call(recall, "getRecallHandle");
        scene.saw("handle", handle != null && !handle.isEmpty());
        scene.saw("recalled id", ((String) Scene.call(producer, "recallMessage", topic, handle)).equals(recall.getMsgId()));
        long begin = System.currentTimeMillis();
        Message seconds = Scene.message(topic, "t", "seconds", "body");
        Scene.call(seconds, "setDelayTimeSec", 2L);
        sent.add(Scene.sent(producer.send(seconds, scene.queue(topic, 0))));
        Message millis = Scene.message(topic, "t", "millis", "body");
        Scene.call(millis, "setDelayTimeMs", 2500L);
        sent.add(Scene.sent(producer.send(millis, scene.queue(topic, 0))));
        Message deliver = Scene.message(topic, "t", "deliver", "body");
        // from now: a time that is over when the message comes makes an ordinary message of it
        long due = System.currentTimeMillis() + 4000;
        Scene.call(deliver, "setDeliverTimeMs", due);
        sent.add(Scene.sent(producer.send(deliver, scene.queue(topic, 0))));
        for (Object each : sent) {
            ((Map<String, Object>) each).put("queue_offset", "shared");
        }
        scene.saw("sent", sent);
        Message far = Scene.message(topic, "t", "far", "body");
        Scene.call(far, "setDelayTimeSec", 4L * 24 * 3600);
        producer.setRetryTimesWhenSendFailed(0);
        scene.saw("four days", Scene.outcome(() -> producer.send(far, scene.queue(topic, 0))));
        scene.until("three messages", () -> rows.size() >= 3);
        Thread.sleep(Math.max(0, due + 3000 - System.currentTimeMillis()));
        scene.saw("keys", PushScenarios.keys(rows));
        List<MessageExt> byKey = new ArrayList<>(rows);
        byKey.sort((a, b) -> a.getKeys().compareTo(b.getKeys()));
        List<Object> arrived = new ArrayList<>();
        for (MessageExt each : byKey) {
            Map<String, Object> row = Scene.received(each);
            row.put("queue_offset", "by time");
            arrived.add(row);
        }
        scene.saw("arrived", arrived);
        // the wheel has slots of a second
        scene.saw("not early", at.get("seconds") - begin >= 1000 && at.get("deliver") >= due - 1000);
    }

    /** Committed, rolled back, and two of which the producer knows only when it is asked. */
    static void transactions(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        Map<String, Long> at = new ConcurrentHashMap<>();
        List<MessageExt> rows = arriving(scene, topic, at);
        TransactionMQProducer producer = new TransactionMQProducer(scene.group("transactions"));
        Map<String, AtomicInteger> checks = new ConcurrentHashMap<>();
        List<MessageExt> asked = PushScenarios.list();
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.add(message);
                checks.computeIfAbsent(message.getKeys(), key -> new AtomicInteger()).incrementAndGet();
                return message.getKeys().equals("later committed") ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        scene.started(producer);
        List<Object> sent = new ArrayList<>();
        for (Map.Entry<String, LocalTransactionState> each : new TreeMap<>(Map.of(
            "committed", LocalTransactionState.COMMIT_MESSAGE, "rolled back", LocalTransactionState.ROLLBACK_MESSAGE,
            "later committed", LocalTransactionState.UNKNOW, "later rolled back", LocalTransactionState.UNKNOW)).entrySet()) {
            Message message = Scene.message(topic, "t", "", "body");
            message.setKeys(each.getKey());
            message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "5");
            TransactionSendResult result = producer.sendMessageInTransaction(message, each.getValue());
            Map<String, Object> row = Scene.sent(result);
            row.put("queue_offset", "shared");
            row.put("state", result.getLocalTransactionState().name());
            sent.add(row);
        }
        scene.saw("sent", sent);
        scene.until("the one that is committed at once", () -> rows.size() >= 1);
        scene.until("both questions", () -> checks.keySet().containsAll(LATER));
        scene.until("two messages", () -> rows.size() >= 2);
        Thread.sleep(500);
        scene.saw("arrived", PushScenarios.sorted(rows));
        Map<String, Object> questions = new TreeMap<>();
        for (MessageExt each : asked) {
            Map<String, Object> row = Scene.received(each);
            row.put("queue_offset", "shared");
            if (LATER.contains(each.getKeys())) {
                questions.putIfAbsent(each.getKeys(), row); // the first: a broker may ask again
            }
        }
        scene.saw("questions", questions);
    }

    static void requests(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        DefaultMQProducer replier = scene.producer();
        DefaultMQPushConsumer consumer = scene.pusher(scene.group("answering"));
        consumer.subscribe(topic, "*");
        List<MessageExt> asked = PushScenarios.list();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                asked.add(each);
                try {
                    byte[] body = ("answer to " + new String(each.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                    if (!"nobody".equals(each.getKeys())) {
                        scene.saw("reply", Scene.sent(replier.send(MessageUtil.createReplyMessage(each, body), 30_000)).get("status"));
                    }
                } catch (Exception problem) {
                    scene.saw("reply failed", problem.toString());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        DefaultMQProducer asking = scene.producer();
        Message answer = asking.request(Scene.message(topic, "t", "k", "question"), 30_000);
        scene.saw("answer", Scene.body(answer.getBody()));
        scene.saw("properties of the answer", Scene.properties(answer.getProperties()));
        CountDownLatch done = new CountDownLatch(1);
        asking.request(Scene.message(topic, "t", "k", "second"), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                scene.saw("second answer", Scene.body(message.getBody()));
                done.countDown();
            }

            @Override
            public void onException(Throwable problem) {
                scene.saw("second failed", problem.toString());
                done.countDown();
            }
        }, 30_000);
        scene.saw("second in time", done.await(Scene.WAIT_MS, TimeUnit.MILLISECONDS));
        scene.saw("no answer", Scene.outcome(() -> asking.request(Scene.message(topic, "t", "nobody", "x"), 1500)));
        scene.until("three requests", () -> asked.size() >= 3);
        scene.saw("requests", PushScenarios.sorted(asked));
    }
}

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends of every kind, and what is stored of them. */
final class SendScenarios {
    private SendScenarios() {
    }

    static void sync(Scene scene) throws Exception {
        String topic = scene.created("a", 4);
        DefaultMQProducer producer = scene.producer();
        List<Object> sent = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            Message message = Scene.message(topic, "tag" + i % 2, "key" + i + " other" + i, "body " + i);
            message.putUserProperty("number", Integer.toString(i));
            message.setFlag(i);
            sent.add(Scene.sent(producer.send(message, scene.queue(topic, i % 4))));
        }
        Message plain = new Message(topic, new byte[0]);
        plain.setBody("no tag, no key".getBytes(StandardCharsets.UTF_8));
        plain.setWaitStoreMsgOK(false);
        plain.setBuyerId("a buyer");
        sent.add(Scene.sent(producer.send(plain, scene.queue(topic, 3))));
        scene.saw("sent", sent);
        scene.saw("stored", stored(scene, topic, 4));
        TreeSet<Integer> chosen = new TreeSet<>();
        for (int i = 0; i < 4; i++) {
            chosen.add(producer.send(Scene.message(topic, null, null, "round " + i)).getMessageQueue().getQueueId());
        }
        scene.saw("queues in turn", chosen);
    }

    static void async(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        DefaultMQProducer producer = scene.producer();
        int count = 64;
        CountDownLatch answers = new CountDownLatch(count);
        Map<String, Object> failed = new ConcurrentHashMap<>();
        Map<Integer, TreeSet<Long>> offsets = new TreeMap<>(Map.of(0, new TreeSet<>(), 1, new TreeSet<>()));
        for (int i = 0; i < count; i++) {
            producer.send(Scene.message(topic, "t", "key" + i, "body " + i), scene.queue(topic, i % 2), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    synchronized (offsets) {
                        offsets.get(result.getMessageQueue().getQueueId()).add(result.getQueueOffset());
                    }
                    answers.countDown();
                }

                @Override
                public void onException(Throwable problem) {
                    failed.put(problem.toString(), true);
                    answers.countDown();
                }
            });
        }
        scene.saw("answered", answers.await(Scene.WAIT_MS, TimeUnit.MILLISECONDS));
        scene.saw("failed", failed.keySet());
        scene.saw("offsets", offsets);
    }

    static void oneway(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        DefaultMQProducer producer = scene.producer();
        for (int i = 0; i < 5; i++) {
            producer.sendOneway(Scene.message(topic, "t", "key" + i, "body"), scene.queue(topic, 0));
            long after = i + 1; // or the next one may overtake it in the broker
            scene.until("what was sent oneway", () -> scene.admin().maxOffset(scene.queue(topic, 0)) == after);
        }
        scene.saw("stored", stored(scene, topic, 1));
    }

    static void batch(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        DefaultMQProducer producer = scene.producer();
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            Message message = Scene.message(topic, "tag" + i % 3, "key" + i, "body " + i);
            message.putUserProperty("number", Integer.toString(i));
            message.setFlag(i);
            messages.add(message);
        }
        scene.saw("sent", Scene.sent(producer.send(messages, scene.queue(topic, 1))));
        scene.saw("again", Scene.sent(producer.send(messages.subList(0, 3), scene.queue(topic, 1))));
        scene.saw("stored", stored(scene, topic, 2));
    }

    static void selector(Scene scene) throws Exception {
        String topic = scene.created("a", 4);
        DefaultMQProducer producer = scene.producer();
        List<Object> sent = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            sent.add(Scene.sent(producer.send(Scene.message(topic, "t", "order" + i / 2, "step " + i), (queues, message, order) -> {
                queues.sort(null);
                return queues.get((Integer) order % queues.size());
            }, i / 2)));
        }
        scene.saw("sent", sent);
    }

    /** 3 MB of noise, which nothing makes smaller, and text that the client compresses. */
    static void bodies(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        DefaultMQProducer producer = scene.producer();
        byte[] noise = new byte[3 << 20];
        new Random(7).nextBytes(noise);
        byte[] text = "all work and no play ".repeat(1000).getBytes(StandardCharsets.UTF_8);
        List<Object> sent = new ArrayList<>();
        for (byte[] body : List.of(noise, text, new byte[] {0, 1, 2})) {
            sent.add(Scene.sent(producer.send(new Message(topic, "t", body), scene.queue(topic, 0))));
        }
        List<Message> large = Arrays.asList(new Message(topic, "t", text), new Message(topic, "t", text));
        sent.add(Scene.sent(producer.send(large, scene.queue(topic, 0))));
        scene.saw("sent", sent);
        scene.saw("stored", stored(scene, topic, 1));
    }

    /** The first send creates the topic as the template has it. */
    static void autoCreated(Scene scene) throws Exception {
        String topic = scene.topic("none");
        DefaultMQProducer producer = scene.producer();
        producer.setDefaultTopicQueueNums(3);
        SendResult result = producer.send(Scene.message(topic, "t", "k", "first"));
        scene.saw("status", result.getSendStatus().name());
        scene.saw("offset", result.getQueueOffset());
        scene.until("its route", () -> scene.queues(topic) == 3);
        scene.saw("to read", scene.queues(topic));
        DefaultMQProducer sensible = scene.producer();
        TreeSet<Integer> chosen = new TreeSet<>();
        for (int i = 0; i < 3; i++) {
            chosen.add(sensible.send(Scene.message(topic, "t", "k", "next")).getMessageQueue().getQueueId());
        }
        scene.saw("queues in turn", chosen);
    }

    /** What a broker does not take, by code. */
    static void refused(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        DefaultMQProducer producer = scene.producer();
        producer.setRetryTimesWhenSendFailed(0);
        scene.saw("queue that is not there", Scene.outcome(() ->
            producer.send(Scene.message(topic, "t", "k", "x"), scene.queue(topic, 9))));
        scene.saw("5 MB", Scene.outcome(() ->
            producer.send(new Message(topic, new byte[5 << 20]), scene.queue(topic, 0))));
        Message wide = Scene.message(topic, "t", "k", "x");
        wide.putUserProperty("wide", "x".repeat(40_000));
        scene.saw("40,000 bytes of properties", Scene.outcome(() -> producer.send(wide, scene.queue(topic, 0))));
        scene.saw("topic of the system", Scene.outcome(() ->
            producer.send(Scene.message("TBW102", "t", "k", "x"), scene.queue("TBW102", 0))));
        scene.saw("topic with a name of 200", Scene.outcome(() ->
            producer.send(Scene.message("x".repeat(200), "t", "k", "x"))));
        scene.saw("stored", stored(scene, topic, 2));
    }

    /** Every message of the topic's queues, as a pull gets it. */
    static Map<Integer, List<Object>> stored(Scene scene, String topic, int queues) throws Exception {
        DefaultMQPullConsumer consumer = scene.puller(scene.group("stored"));
        Map<Integer, List<Object>> found = new TreeMap<>();
        for (int queueId = 0; queueId < queues; queueId++) {
            List<Object> rows = new ArrayList<>();
            long next = consumer.minOffset(scene.queue(topic, queueId));
            long end = consumer.maxOffset(scene.queue(topic, queueId));
            while (next < end) {
                PullResult result = consumer.pull(scene.queue(topic, queueId), "*", next, 32);
                if (result.getMsgFoundList() != null) {
                    for (MessageExt each : result.getMsgFoundList()) {
                        rows.add(Scene.received(each));
                    }
                }
                if (result.getNextBeginOffset() <= next) {
                    Thread.sleep(50); // what was acknowledged is not in its queue yet
                }
                next = result.getNextBeginOffset();
            }
            found.put(queueId, rows);
        }
        return found;
    }
}

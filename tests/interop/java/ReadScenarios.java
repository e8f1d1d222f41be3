import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads that a program asks for itself: pulls, lite pulls, queries, searches. */
final class ReadScenarios {
    private ReadScenarios() {
    }

    private static Object pulled(PullResult result) {
        Map<String, Object> row = new TreeMap<>();
        row.put("status", result.getPullStatus().name());
        row.put("next", result.getNextBeginOffset());
        row.put("min", result.getMinOffset());
        row.put("max", result.getMaxOffset());
        List<String> keys = new ArrayList<>();
        for (MessageExt each : result.getMsgFoundList() == null ? List.<MessageExt>of() : result.getMsgFoundList()) {
            keys.add(each.getKeys() + " of " + each.getProperty("MIN_OFFSET") + ".." + each.getProperty("MAX_OFFSET"));
        }
        row.put("keys", keys);
        return row;
    }

    /** `count` messages in queue 0, with tags a, b and c in turn and a number. */
    private static List<SendResult> fill(Scene scene, String topic, int count) throws Exception {
        DefaultMQProducer producer = scene.producer();
        List<SendResult> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = Scene.message(topic, "" + "abc".charAt(i % 3), "key" + i, "body " + i);
            message.putUserProperty("number", Integer.toString(i));
            sent.add(producer.send(message, scene.queue(topic, 0)));
        }
        DefaultMQPullConsumer consumer = scene.puller(scene.group("filled"));
        scene.until("the last message to be read", () ->
            consumer.pull(scene.queue(topic, 0), "*", count - 1, 1).getMsgFoundList() != null);
        return sent;
    }

    static void pull(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        fill(scene, topic, 12);
        DefaultMQPullConsumer consumer = scene.puller(scene.group("pull"));
        MessageQueue queue = scene.queue(topic, 0);
        MessageQueue empty = scene.queue(topic, 1);
        scene.saw("queues", consumer.fetchSubscribeMessageQueues(topic).size());
        scene.saw("range", List.of(consumer.minOffset(queue), consumer.maxOffset(queue), consumer.minOffset(empty),
            consumer.maxOffset(empty)));
        scene.saw("all", pulled(consumer.pull(queue, "*", 0, 32)));
        scene.saw("five", pulled(consumer.pull(queue, "*", 3, 5)));
        scene.saw("tag b", pulled(consumer.pull(queue, "b", 0, 32)));
        scene.saw("tags a and c", pulled(consumer.pull(queue, "a || c", 0, 4)));
        scene.saw("a tag that none has", pulled(consumer.pull(queue, "z", 0, 32)));
        scene.saw("at the end", pulled(consumer.pull(queue, "*", 12, 32)));
        scene.saw("above the end", pulled(consumer.pull(queue, "*", 40, 32)));
        scene.saw("below the start", Scene.outcome(() -> consumer.pull(queue, "*", -3, 32)));
        scene.saw("an empty queue", pulled(consumer.pull(empty, "*", 0, 32)));
        scene.saw("an empty queue above its end", pulled(consumer.pull(empty, "*", 7, 32)));
        scene.saw("a topic that is not there", Scene.outcome(() ->
            consumer.pull(scene.queue(scene.topic("none"), 0), "*", 0, 32)));
        scene.saw("a queue that is not there", Scene.outcome(() -> consumer.pull(scene.queue(topic, 9), "*", 0, 32)));
        scene.until("the broker's version, without which the client asks for no SQL", () ->
            consumer.pull(queue, MessageSelector.bySql("TRUE"), 0, 1) != null);
        scene.saw("number > 8", pulled(consumer.pull(queue, MessageSelector.bySql("number > 8"), 0, 32)));
        scene.saw("no SQL", Scene.outcome(() -> consumer.pull(queue, MessageSelector.bySql("number >"), 0, 32)));
        waits(scene, consumer, queue);
        scene.saw("no offset yet", consumer.fetchConsumeOffset(queue, false));
        consumer.updateConsumeOffset(queue, 5);
        consumer.getOffsetStore().persist(queue);
        scene.until("the offset to be stored", () -> consumer.fetchConsumeOffset(queue, true) == 5);
        scene.saw("offset", consumer.fetchConsumeOffset(queue, true));
    }

    /** A pull that waits is answered as soon as there is a message. */
    private static void waits(Scene scene, DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        Thread late = new Thread(() -> {
            try {
                Thread.sleep(300);
                scene.producer().send(Scene.message(queue.getTopic(), "late", "late", "x"), queue);
            } catch (Exception problem) {
                scene.saw("late send", problem.toString());
            }
        });
        late.start();
        long begin = System.nanoTime();
        scene.saw("a pull that waits", pulled(consumer.pullBlockIfNotFound(queue, "*", 12, 32)));
        late.join();
        scene.saw("it waited less than 5 s", System.nanoTime() - begin < 5_000_000_000L);
    }

    static void litePull(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        fill(scene, topic, 9);
        MessageQueue queue = scene.queue(topic, 0);
        DefaultLitePullConsumer assigned = scene.lite(scene.group("assigned"));
        assigned.setAutoCommit(false);
        assigned.start();
        scene.saw("queues", assigned.fetchMessageQueues(topic).size());
        assigned.assign(Collections.singletonList(queue));
        assigned.seek(queue, 4);
        List<Object> rows = new ArrayList<>();
        scene.until("five messages", () -> {
            assigned.poll(500).forEach(each -> rows.add(Scene.received(each)));
            return rows.size() >= 5;
        });
        scene.saw("from 4 on", rows);
        assigned.commitSync();
        scene.until("the commit", () -> assigned.committed(queue) == 9);
        scene.saw("committed", assigned.committed(queue));
        assigned.seekToBegin(queue);
        scene.until("the first message again", () ->
            assigned.poll(500).stream().anyMatch(each -> each.getQueueOffset() == 0));

        DefaultLitePullConsumer member = scene.lite(scene.group("subscribed"));
        member.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.subscribe(topic, "b");
        member.start();
        List<String> keys = new ArrayList<>();
        scene.until("three messages", () -> {
            member.poll(500).forEach(each -> keys.add(each.getKeys()));
            return keys.size() >= 3;
        });
        scene.saw("tag b", keys);
    }

    static void queries(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        List<SendResult> sent = fill(scene, topic, 4);
        DefaultMQProducer producer = scene.producer();
        producer.send(Scene.message(topic, "x", "key1 more", "the second with key1"), scene.queue(topic, 0));
        long begin = System.currentTimeMillis() - 600_000;
        long end = System.currentTimeMillis() + 600_000;
        scene.until("two messages by key", () ->
            producer.queryMessage(topic, "key1", 32, begin, end).getMessageList().size() == 2);
        QueryResult found = producer.queryMessage(topic, "key1", 32, begin, end);
        List<Object> rows = new ArrayList<>();
        found.getMessageList().stream().sorted((a, b) -> Long.compare(a.getQueueOffset(), b.getQueueOffset()))
            .forEach(each -> rows.add(Scene.received(each)));
        scene.saw("by key", rows);
        scene.saw("index is known", found.getIndexLastUpdateTimestamp() > 0);
        scene.saw("by a key that none has", Scene.outcome(() -> producer.queryMessage(topic, "none", 32, begin, end)));
        scene.saw("in a time of nothing", Scene.outcome(() -> producer.queryMessage(topic, "key1", 32, 1000, 2000)));
        scene.saw("at most one", producer.queryMessage(topic, "key1", 1, begin, end).getMessageList().size());
        scene.saw("by offset id", Scene.received(scene.admin().viewMessage(topic, sent.get(2).getOffsetMsgId())));
        scene.saw("by unique id", Scene.received(scene.admin().viewMessage(topic, sent.get(3).getMsgId())));
        scene.saw("by an id that none has", Scene.outcome(() ->
            scene.admin().viewMessage(topic, "0".repeat(16) + "00000000FFFFFF00")));
    }

    static void times(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        DefaultMQProducer producer = scene.producer();
        MessageQueue queue = scene.queue(topic, 0);
        for (int i = 0; i < 3; i++) {
            producer.send(Scene.message(topic, "t", "key" + i, "x"), queue);
            Thread.sleep(60);
        }
        DefaultMQPullConsumer consumer = scene.puller(scene.group("times"));
        List<MessageExt> stored = consumer.pull(queue, "*", 0, 32).getMsgFoundList();
        List<Long> found = new ArrayList<>();
        for (MessageExt each : stored) {
            for (int around = -1; around <= 1; around++) {
                found.add(consumer.searchOffset(queue, each.getStoreTimestamp() + around));
            }
        }
        scene.saw("around each message", found);
        scene.saw("long ago", consumer.searchOffset(queue, 1000));
        scene.saw("much later", consumer.searchOffset(queue, System.currentTimeMillis() + 3_600_000));
        scene.saw("in an empty queue", consumer.searchOffset(scene.queue(topic, 1), 1000));
        scene.saw("earliest is the first", consumer.earliestMsgStoreTime(queue) == stored.get(0).getStoreTimestamp());
        scene.saw("earliest of an empty queue", consumer.earliestMsgStoreTime(scene.queue(topic, 1)));
    }
}

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers: groups that share, resume, retry, keep an order, or each get everything. */
final class PushScenarios {
    private PushScenarios() {
    }

    /** Takes each message, and notes it in `rows`. */
    private static MessageListenerConcurrently noting(List<MessageExt> rows) {
        return (messages, context) -> {
            rows.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    static List<MessageExt> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    /** By queue and offset. */
    static List<Object> sorted(List<MessageExt> messages) {
        List<MessageExt> copy;
        synchronized (messages) {
            copy = new ArrayList<>(messages);
        }
        copy.sort((a, b) -> a.getQueueId() != b.getQueueId() ? Integer.compare(a.getQueueId(), b.getQueueId())
            : Long.compare(a.getQueueOffset(), b.getQueueOffset()));
        List<Object> rows = new ArrayList<>();
        copy.forEach(each -> rows.add(Scene.received(each)));
        return rows;
    }

    static Set<String> keys(List<MessageExt> messages) {
        Set<String> keys = new TreeSet<>();
        synchronized (messages) {
            messages.forEach(each -> keys.add(each.getKeys()));
        }
        return keys;
    }

    static void send(Scene scene, String topic, int from, int to, int queues) throws Exception {
        DefaultMQProducer producer = scene.producer();
        for (int i = from; i < to; i++) {
            Message message = Scene.message(topic, "" + "abc".charAt(i % 3), String.format("key%03d", i), "body " + i);
            message.putUserProperty("number", Integer.toString(i));
            producer.send(message, scene.queue(topic, i % queues));
        }
    }

    static void filtered(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        List<MessageExt> tagged = list();
        DefaultMQPushConsumer tags = scene.pusher(scene.group("tags"));
        tags.subscribe(topic, "a || c");
        tags.registerMessageListener(noting(tagged));
        scene.start(tags);
        List<MessageExt> selected = list();
        DefaultMQPushConsumer sql = scene.pusher(scene.group("sql"));
        sql.subscribe(topic, MessageSelector.bySql("number BETWEEN 3 AND 8 AND TAGS <> 'a'"));
        sql.registerMessageListener(noting(selected));
        scene.start(sql);
        send(scene, topic, 0, 12, 2);
        scene.until("eight messages by tags", () -> tagged.size() >= 8);
        scene.until("four messages by SQL", () -> selected.size() >= 4);
        Thread.sleep(500);
        scene.saw("by tags", sorted(tagged));
        scene.saw("by SQL", sorted(selected));
    }

    static void shared(Scene scene) throws Exception {
        int queues = 8;
        String topic = scene.created("a", queues);
        String group = scene.group("shared");
        List<MessageExt> first = list();
        List<MessageExt> second = list();
        DefaultMQPushConsumer one = scene.pusher(group);
        one.subscribe(topic, "*");
        one.registerMessageListener(noting(first));
        scene.start(one);
        DefaultMQPushConsumer other = scene.pusher(group);
        other.subscribe(topic, "*");
        other.registerMessageListener(noting(second));
        other.start();
        scene.until("four queues each", () -> owned(one, topic) == 4 && owned(other, topic) == 4);
        send(scene, topic, 0, 64, queues);
        scene.until("all messages", () -> first.size() + second.size() >= 64);
        scene.saw("to each", List.of(keys(first).size(), keys(second).size()));
        Set<String> all = new HashSet<>(keys(first));
        all.addAll(keys(second));
        scene.saw("in all", all.size());
        scene.saw("members", scene.admin().examineConsumerConnectionInfo(group).getConnectionSet().size());
        other.shutdown();
        scene.until("all queues again", () -> owned(one, topic) == queues);
        int before = first.size();
        send(scene, topic, 64, 80, queues);
        scene.until("16 more", () -> first.size() >= before + 16);
        Thread.sleep(300);
        scene.saw("more to the first", first.size() - before);
        scene.saw("to the second in all", keys(second).size());
    }

    private static int owned(DefaultMQPushConsumer consumer, String topic) {
        int count = 0;
        for (var queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            count += queue.getTopic().equals(topic) ? 1 : 0;
        }
        return count;
    }

    /** A consumer goes on where the last one of its group ended. */
    static void resumed(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        send(scene, topic, 0, 10, 2);
        List<MessageExt> first = list();
        DefaultMQPushConsumer one = scene.pusher(scene.group("resumed"));
        one.subscribe(topic, "*");
        one.registerMessageListener(noting(first));
        one.start();
        scene.until("ten messages", () -> first.size() >= 10);
        Thread.sleep(300);
        one.shutdown();
        send(scene, topic, 10, 16, 2);
        List<MessageExt> second = list();
        DefaultMQPushConsumer next = scene.pusher(scene.group("resumed"));
        next.subscribe(topic, "*");
        next.registerMessageListener(noting(second));
        scene.start(next);
        scene.until("six messages", () -> second.size() >= 6);
        Thread.sleep(500);
        scene.saw("first", keys(first));
        scene.saw("second", keys(second));
    }

    /** Each message fails twice; the third delivery is taken. */
    static void retried(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        List<MessageExt> rows = list();
        DefaultMQPushConsumer consumer = scene.pusher(scene.group("retried"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            rows.addAll(messages);
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() < 2 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        // the topic for retries is there before the first of them
        scene.until("the queues of retries", () -> 
            scene.queues("%RETRY%" + scene.group("retried")) > 0);
        send(scene, topic, 0, 1, 1);
        scene.until("three deliveries", () -> rows.size() >= 3);
        Thread.sleep(1500);
        List<Object> seen = new ArrayList<>();
        rows.forEach(each -> seen.add(Scene.received(each)));
        scene.saw("deliveries", seen);
    }

    static void dead(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        String group = scene.group("dead");
        AtomicInteger deliveries = new AtomicInteger();
        DefaultMQPushConsumer consumer = scene.pusher(group);
        consumer.subscribe(topic, "*");
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            deliveries.addAndGet(messages.size());
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        scene.start(consumer);
        send(scene, topic, 0, 1, 1);
        String letters = "%DLQ%" + group;
        scene.until("a dead letter", () -> scene.admin().maxOffset(scene.queue(letters, 0)) == 1);
        scene.saw("deliveries", deliveries.get());
        scene.saw("dead", SendScenarios.stored(scene, letters, 1));
        scene.saw("perm", scene.admin().examineTopicConfig(scene.brokerAddress(), letters).getPerm());
    }

    /** Two members; each queue in order, and once again from a message that was put off. */
    static void orderly(Scene scene) throws Exception {
        int queues = 4;
        String topic = scene.created("a", queues);
        Map<Integer, List<String>> seen = new ConcurrentHashMap<>();
        Set<String> putOff = ConcurrentHashMap.newKeySet();
        AtomicInteger taken = new AtomicInteger();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            DefaultMQPushConsumer consumer = scene.pusher(scene.group("orderly"));
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                MessageExt message = messages.get(0);
                // not how often: a queue that moves to the other member is counted from 0 again
                seen.computeIfAbsent(message.getQueueId(), id -> list0()).add(message.getKeys());
                if (message.getQueueOffset() == 2 && putOff.add(message.getKeys())) {
                    context.setSuspendCurrentQueueTimeMillis(100);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                taken.addAndGet(messages.size());
                return ConsumeOrderlyStatus.SUCCESS;
            });
            scene.start(consumer);
            members.add(consumer);
        }
        // A queue that changes its member while a message is handled is read twice, at a broker too.
        scene.until("two queues each", () -> members.stream().allMatch(each -> owned(each, topic) == 2));
        send(scene, topic, 0, 40, queues);
        scene.until("40 messages", () -> taken.get() >= 40);
        Thread.sleep(300);
        scene.saw("taken", taken.get());
        scene.saw("in each queue", new TreeMap<>(seen));
    }

    private static List<String> list0() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    static void broadcast(Scene scene) throws Exception {
        String topic = scene.created("a", 2);
        List<List<MessageExt>> each = List.of(list(), list());
        for (List<MessageExt> rows : each) {
            DefaultMQPushConsumer consumer = scene.pusher(scene.group("broadcast"));
            consumer.setMessageModel(Scene.constant(consumer.getMessageModel(), "BROADCASTING"));
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(noting(rows));
            scene.start(consumer);
            scene.until("both queues", () -> owned(consumer, topic) == 2);
        }
        send(scene, topic, 0, 10, 2);
        scene.until("ten each", () -> each.get(0).size() >= 10 && each.get(1).size() >= 10);
        Thread.sleep(300);
        scene.saw("each", List.of(keys(each.get(0)), keys(each.get(1))));
        scene.saw("deliveries", List.of(each.get(0).size(), each.get(1).size()));
    }

    /** Where groups begin that are new: first, last (which is the first as long as all is young), a time. */
    static void begins(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        send(scene, topic, 0, 3, 1);
        Thread.sleep(2000);
        String time = new java.text.SimpleDateFormat("yyyyMMddHHmmss").format(new java.util.Date());
        Thread.sleep(1000);
        send(scene, topic, 3, 6, 1);
        Map<String, Object> seen = new TreeMap<>();
        for (ConsumeFromWhere from : List.of(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)) {
            List<MessageExt> rows = list();
            DefaultMQPushConsumer consumer = scene.pusher(scene.group(from.name()));
            consumer.setConsumeFromWhere(from);
            consumer.setConsumeTimestamp(time);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(noting(rows));
            scene.start(consumer);
            scene.until("the queue", () -> owned(consumer, topic) == 1);
            scene.until("something", () -> !rows.isEmpty());
            Thread.sleep(300);
            seen.put(from.name(), keys(rows));
        }
        send(scene, topic, 6, 7, 1);
        Thread.sleep(500);
        scene.saw("begins", seen);
    }
}

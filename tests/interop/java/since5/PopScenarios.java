import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Groups in POP mode: push consumers that are given messages one by one, and pops by themselves. */
final class PopScenarios {
    private static final long TIMEOUT_MS = 30_000;
    private static final int FROM_FIRST = 0;

    private PopScenarios() {
    }

    private static String group(Scene scene, String end, boolean orderly) throws Exception {
        String group = scene.group(end);
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        config.setConsumeMessageOrderly(orderly);
        scene.admin().createAndUpdateSubscriptionGroupConfig(scene.brokerAddress(), config);
        return group;
    }

    private static DefaultMQPushConsumer popper(Scene scene, String group, String topic, List<MessageExt> rows)
        throws Exception {
        DefaultMQPushConsumer consumer = scene.pusher(group);
        consumer.setClientRebalance(false);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            rows.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        return consumer;
    }

    private static int popped(DefaultMQPushConsumer consumer, String topic) {
        Set<String> found = new HashSet<>();
        for (MessageQueue each : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getPopProcessQueueTable()
            .keySet()) {
            if (each.getTopic().equals(topic)) {
                found.add(each.getBrokerName() + each.getQueueId());
            }
        }
        return found.size();
    }

    private static int pulled(DefaultMQPushConsumer consumer, String topic) {
        int count = 0;
        for (MessageQueue each : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
            .keySet()) {
            count += each.getTopic().equals(topic) ? 1 : 0;
        }
        return count;
    }

    /** A queue's messages go to whoever asks: two members of one topic, and nothing twice. */
    static void popped(Scene scene) throws Exception {
        String topic = scene.created("a", 4);
        String group = group(scene, "popped", false);
        scene.saw("mode of no topic", Scene.outcome(() -> {
            scene.admin().setMessageRequestMode(scene.brokerAddress(), scene.topic("none"), group,
                MessageRequestMode.POP, 0, TIMEOUT_MS);
            return null;
        }));
        scene.saw("mode of no group", Scene.outcome(() -> {
            scene.admin().setMessageRequestMode(scene.brokerAddress(), topic, scene.group("none"),
                MessageRequestMode.POP, 0, TIMEOUT_MS);
            return null;
        }));
        scene.admin().setMessageRequestMode(scene.brokerAddress(), topic, group, MessageRequestMode.POP, 0, TIMEOUT_MS);
        PushScenarios.send(scene, topic, 0, 12, 4);
        List<MessageExt> first = PushScenarios.list();
        DefaultMQPushConsumer one = popper(scene, group, topic, first);
        scene.until("twelve messages", () -> first.size() >= 12);
        scene.saw("pops", popped(one, topic));
        scene.saw("pulls", pulled(one, topic));
        scene.saw("first", PushScenarios.sorted(first));
        List<MessageExt> second = PushScenarios.list();
        DefaultMQPushConsumer other = popper(scene, group, topic, second);
        scene.until("a second member", () -> popped(other, topic) == 1);
        PushScenarios.send(scene, topic, 12, 44, 4);
        scene.until("all messages", () -> first.size() + second.size() >= 44);
        Thread.sleep(1000);
        Set<String> all = new TreeSet<>(PushScenarios.keys(first));
        all.addAll(PushScenarios.keys(second));
        scene.saw("keys", all.size());
        scene.saw("deliveries", first.size() + second.size());
        scene.saw("members", scene.admin().examineConsumerConnectionInfo(group).getConnectionSet().size());
    }

    /** What failed comes again, with its number, after the pause that the client asks for. */
    static void retried(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        String group = group(scene, "retried", false);
        scene.admin().setMessageRequestMode(scene.brokerAddress(), topic, group, MessageRequestMode.POP, 0, TIMEOUT_MS);
        List<MessageExt> rows = PushScenarios.list();
        List<Long> times = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = scene.pusher(group);
        consumer.setClientRebalance(false);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            rows.addAll(messages);
            times.add(System.currentTimeMillis());
            return messages.get(0).getReconsumeTimes() < 1 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        PushScenarios.send(scene, topic, 0, 1, 1);
        scene.until("two deliveries", () -> rows.size() >= 2);
        Thread.sleep(2000);
        List<Object> seen = new ArrayList<>();
        rows.forEach(each -> seen.add(Scene.received(each)));
        scene.saw("deliveries", seen);
        scene.saw("after its pause", times.get(1) - times.get(0) >= 9_000);
    }

    /** Members of a group that pulls, whose queues the broker deals out. */
    static void assigned(Scene scene) throws Exception {
        String topic = scene.created("a", 5);
        String group = group(scene, "assigned", false);
        List<MessageExt> first = PushScenarios.list();
        List<MessageExt> second = PushScenarios.list();
        DefaultMQPushConsumer one = popper(scene, group, topic, first);
        DefaultMQPushConsumer other = popper(scene, group, topic, second);
        // the first has all of them until it asks again, so there are other shares on the way
        scene.until("two queues and three", () ->
            Set.of(2, 3).equals(new TreeSet<>(List.of(pulled(one, topic), pulled(other, topic)))));
        scene.saw("pops", List.of(popped(one, topic), popped(other, topic)));
        PushScenarios.send(scene, topic, 0, 20, 5);
        scene.until("all messages", () -> first.size() + second.size() >= 20);
        scene.saw("retries are pulled", pulled(one, "%RETRY%" + group) + pulled(other, "%RETRY%" + group));
    }

    /** Pops, acknowledgements and changes one by one. */
    static void direct(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        String group = group(scene, "direct", false);
        sent(scene, topic, 6);
        Api api = new Api(scene, topic, group, false);
        scene.saw("no topic", api.code(new Api(scene, scene.topic("none"), group, false).header(-1, 1, 0)));
        PopMessageRequestHeader many = api.header(0, 33, 0);
        scene.saw("too many", api.code(many));
        scene.saw("too many, too late", api.code(many, -2 * Api.GRACE_MS));
        scene.saw("no queue", api.code(api.header(7, 1, 0)));
        PopResult popped = api.pop(api.header(0, 4, 0));
        scene.saw("status", popped.getPopStatus().name());
        scene.saw("first", Api.rows(popped));
        scene.saw("rest", popped.getRestNum());
        scene.saw("invisible", popped.getInvisibleTime());
        List<MessageExt> messages = popped.getMsgFoundList();
        scene.saw("acknowledged", api.ack(messages.get(0).getProperty("POP_CK")));
        scene.saw("again", api.ack(messages.get(0).getProperty("POP_CK")));
        AckResult changed = api.change(messages.get(1).getProperty("POP_CK"), 2_000);
        scene.saw("changed", changed.getStatus().name());
        scene.saw("in batches", api.ackAll(List.of(messages.get(2).getProperty("POP_CK"),
            messages.get(3).getProperty("POP_CK"))));
        scene.saw("others", Api.rows(api.pop(api.header(0, 32, 0))));
        scene.saw("none left", api.pop(api.header(0, 32, 0)).getPopStatus().name());
        PopResult again = api.popped(1);
        scene.saw("after the change", Api.rows(again));
        AckResult more = api.change(again.getMsgFoundList().get(0).getProperty("POP_CK"), 60_000);
        scene.saw("by the receipt of a change", api.ack(more.getExtraInfo()));
        // nothing comes again: not what was acknowledged, nor what is invisible
        scene.saw("at the end", api.pop(api.header(-1, 32, 3_000)).getPopStatus().name());
    }

    /** The first messages of queue 0, once pops find them: a send is answered a moment before. */
    private static void sent(Scene scene, String topic, int count) throws Exception {
        PushScenarios.send(scene, topic, 0, count, 1);
        scene.until("all messages in the queue", () -> scene.admin().maxOffset(scene.queue(topic, 0)) == count);
    }

    /** Tags are chosen where the messages are. */
    static void filtered(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        Api api = new Api(scene, topic, group(scene, "filtered", false), false);
        sent(scene, topic, 9);
        PopMessageRequestHeader header = api.header(-1, 32, 0);
        header.setExpType("TAG");
        header.setExp("a || c");
        scene.saw("by tags", Api.rows(api.pop(header)));
        Api sql = new Api(scene, topic, group(scene, "sql", false), false);
        header = sql.header(-1, 32, 0);
        header.setExpType("SQL92");
        header.setExp("number BETWEEN 2 AND 5");
        scene.saw("by SQL", Api.rows(sql.pop(header)));
        header.setExp("number >");
        scene.saw("no SQL", sql.code(header));
    }

    /** One delivery of a queue at a time, and from the first message that is not done. */
    static void orderly(Scene scene) throws Exception {
        String topic = scene.created("a", 1);
        Api api = new Api(scene, topic, group(scene, "orderly", true), true);
        sent(scene, topic, 6);
        PopResult first = api.pop(api.header(0, 2, 0));
        scene.saw("first", Api.rows(first));
        scene.saw("while it is out", api.pop(api.header(0, 2, 0)).getPopStatus().name());
        scene.saw("acknowledged", api.ack(first.getMsgFoundList().get(0).getProperty("POP_CK")));
        scene.saw("while half of it is out", api.pop(api.header(0, 2, 0)).getPopStatus().name());
        scene.saw("the other half", api.ack(first.getMsgFoundList().get(1).getProperty("POP_CK")));
        PopMessageRequestHeader short_ = api.header(0, 2, 0);
        short_.setInvisibleTime(2_000);
        PopResult second = api.pop(short_);
        scene.saw("second", Api.rows(second));
        PopResult again = api.popped(1);
        scene.saw("after its time", Api.rows(again).subList(0, 1));
        scene.saw("changed", api.change(again.getMsgFoundList().get(0).getProperty("POP_CK"), 1_000).getStatus().name());
        PopMessageRequestHeader attempt = api.header(0, 2, 0);
        attempt.setAttemptId("an attempt");
        PopResult third = api.popped(attempt, 1);
        scene.saw("third", Api.rows(third).subList(0, 1));
        scene.saw("the same attempt", Api.rows(api.pop(attempt)).subList(0, 1));
        scene.saw("another attempt", api.pop(api.header(0, 2, 0)).getPopStatus().name());
    }

    /** The requests of a client of POP, without its consumers. */
    private static final class Api {
        /**
         * A broker answers every pop with "nothing", before it looks at the rest, that was born more than its time to
         * wait and this ago: PopMessageRequestHeader.isTimeoutTooMuch. A client's first pop takes longer on a busy machine.
         */
        static final long GRACE_MS = 500;
        private final Scene scene;
        private final String topic;
        private final String group;
        private final boolean order;
        private final MQClientAPIImpl calls;
        private final String address;

        Api(Scene scene, String topic, String group, boolean order) throws Exception {
            this.scene = scene;
            this.topic = topic;
            this.group = group;
            this.order = order;
            calls = scene.admin().getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
            address = scene.brokerAddress();
        }

        PopMessageRequestHeader header(int queueId, int count, long waitMs) {
            PopMessageRequestHeader header = new PopMessageRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(topic);
            header.setQueueId(queueId);
            header.setMaxMsgNums(count);
            header.setInvisibleTime(60_000);
            header.setInitMode(FROM_FIRST);
            header.setOrder(order);
            header.setPollTime(waitMs);
            header.setBornTime(System.currentTimeMillis());
            header.setExpType("TAG");
            header.setExp("*");
            header.setBrokerName(scene.broker);
            return header;
        }

        PopResult pop(PopMessageRequestHeader header) throws Exception {
            // a broker has an answer at once for a pop that does not wait, and for one of the future too
            return pop(header, header.getPollTime() > 0 ? 0 : TIMEOUT_MS);
        }

        /** As if the client's clock were ahead. */
        PopResult pop(PopMessageRequestHeader header, long aheadMs) throws Exception {
            header.setBornTime(System.currentTimeMillis() + aheadMs);
            CompletableFuture<PopResult> found = new CompletableFuture<>();
            calls.popMessageAsync(scene.broker, address, header, TIMEOUT_MS, new PopCallback() {
                @Override
                public void onSuccess(PopResult result) {
                    found.complete(result);
                }

                @Override
                public void onException(Throwable problem) {
                    found.completeExceptionally(problem);
                }
            });
            try {
                return found.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            } catch (java.util.concurrent.ExecutionException problem) {
                throw (Exception) problem.getCause();
            }
        }

        Object code(PopMessageRequestHeader header) {
            return Scene.outcome(() -> pop(header));
        }

        Object code(PopMessageRequestHeader header, long aheadMs) {
            return Scene.outcome(() -> pop(header, aheadMs));
        }

        PopResult popped(int least) throws Exception {
            return popped(header(order ? 0 : -1, 2, 1_000), least);
        }

        /** Once there is something. */
        PopResult popped(PopMessageRequestHeader header, int least) throws Exception {
            PopResult[] found = new PopResult[1];
            scene.until("a message that comes again", () -> {
                found[0] = pop(header);
                return found[0].getMsgFoundList() != null && found[0].getMsgFoundList().size() >= least;
            });
            return found[0];
        }

        String ack(String receipt) throws Exception {
            String[] parts = ExtraInfoUtil.split(receipt);
            AckMessageRequestHeader header = new AckMessageRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
            header.setQueueId(ExtraInfoUtil.getQueueId(parts));
            header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
            header.setExtraInfo(receipt);
            Acked acked = new Acked();
            calls.ackMessageAsync(address, TIMEOUT_MS, acked, header);
            return acked.result().getStatus().name();
        }

        String ackAll(List<String> receipts) throws Exception {
            Acked acked = new Acked();
            calls.batchAckMessageAsync(address, TIMEOUT_MS, acked, topic, group, receipts);
            return acked.result().getStatus().name();
        }

        AckResult change(String receipt, long ms) throws Exception {
            String[] parts = ExtraInfoUtil.split(receipt);
            ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
            header.setQueueId(ExtraInfoUtil.getQueueId(parts));
            header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
            header.setExtraInfo(receipt);
            header.setInvisibleTime(ms);
            Acked acked = new Acked();
            calls.changeInvisibleTimeAsync(scene.broker, address, header, TIMEOUT_MS, acked);
            return acked.result();
        }

        /** What a consumer sees of each message. */
        static List<Object> rows(PopResult result) {
            List<Object> rows = new ArrayList<>();
            for (MessageExt each : result.getMsgFoundList() == null ? List.<MessageExt>of() : result.getMsgFoundList()) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("key", each.getKeys());
                row.put("topic", each.getTopic());
                row.put("times", each.getReconsumeTimes());
                row.put("receipt", each.getProperty("POP_CK") != null);
                row.put("first", each.getProperty("1ST_POP_TIME") != null);
                rows.add(row);
            }
            return rows;
        }
    }

    private static final class Acked implements AckCallback {
        private final CompletableFuture<AckResult> found = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult result) {
            found.complete(result);
        }

        @Override
        public void onException(Throwable problem) {
            found.completeExceptionally(problem);
        }

        AckResult result() throws Exception {
            return found.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
    }
}

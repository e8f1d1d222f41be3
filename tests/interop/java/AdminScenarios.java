import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What an administrator's program asks. */
final class AdminScenarios {
    private AdminScenarios() {
    }

    static void topics(Scene scene) throws Exception {
        DefaultMQAdminExt admin = scene.admin();
        String address = scene.brokerAddress();
        var cluster = admin.examineBrokerClusterInfo();
        scene.saw("clusters", cluster.getClusterAddrTable());
        scene.saw("master is id 0", cluster.getBrokerAddrTable().get(scene.broker).getBrokerAddrs().get(0L) != null);
        String topic = scene.topic("made");
        TopicConfig config = new TopicConfig(topic, 3, 5, 6);
        admin.createAndUpdateTopicConfig(address, config);
        scene.until("its route", () -> admin.examineTopicRouteInfo(topic).getQueueDatas().size() == 1);
        var queues = admin.examineTopicRouteInfo(topic).getQueueDatas().get(0);
        scene.saw("route", List.of(queues.getBrokerName(), queues.getReadQueueNums(), queues.getWriteQueueNums(),
            queues.getPerm(), queues.getTopicSysFlag()));
        TopicConfig stored = admin.examineTopicConfig(address, topic);
        scene.saw("config", List.of(stored.getReadQueueNums(), stored.getWriteQueueNums(), stored.getPerm(),
            stored.isOrder(), stored.getTopicFilterType().name(), stored.getTopicSysFlag()));
        config.setPerm(4);
        admin.createAndUpdateTopicConfig(address, config);
        scene.until("no permission to write", () -> admin.examineTopicConfig(address, topic).getPerm() == 4);
        DefaultMQProducer producer = scene.producer();
        producer.setRetryTimesWhenSendFailed(0);
        scene.saw("send to what is for reading", Scene.outcome(() ->
            producer.send(Scene.message(topic, "t", "k", "x"), scene.queue(topic, 0))));
        scene.saw("in the list", admin.fetchAllTopicList().getTopicList().contains(topic));
        scene.saw("system topics", known(admin.fetchAllTopicList().getTopicList()));
        scene.saw("route of none", Scene.outcome(() -> admin.examineTopicRouteInfo(scene.topic("none"))));
        admin.deleteTopicInBroker(Set.of(address), topic);
        forget(admin, Set.of(scene.nameServer), topic, cluster.getClusterAddrTable().keySet().iterator().next());
        scene.until("no route", () -> "client refuses: 17".equals(Scene.outcome(() -> admin.examineTopicRouteInfo(topic))));
        scene.saw("after deletion", Scene.outcome(() -> admin.examineTopicConfig(address, topic)));
        var runtime = admin.fetchBrokerRuntimeStats(address).getTable();
        scene.saw("runtime", runtime.containsKey("brokerVersionDesc") && runtime.containsKey("putTps")
            && runtime.containsKey("bootTimestamp"));
        scene.saw("settings", admin.getBrokerConfig(address).getProperty("brokerName"));
    }

    private static void forget(DefaultMQAdminExt admin, Set<String> nameServers, String topic, String cluster) throws Exception {
        try {
            Scene.call(admin, "deleteTopicInNameServer", nameServers, topic);
        } catch (NoSuchMethodException problem) {
            // 4.x has one more argument, and takes its last two for one another
            admin.deleteTopicInNameServer(nameServers, topic, cluster);
        }
    }

    private static TreeSet<String> known(Set<String> topics) {
        TreeSet<String> found = new TreeSet<>(topics);
        found.retainAll(List.of("TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC",
            "OFFSET_MOVED_EVENT", "BenchmarkTest"));
        return found;
    }

    static void groups(Scene scene) throws Exception {
        DefaultMQAdminExt admin = scene.admin();
        String address = scene.brokerAddress();
        String topic = scene.created("a", 2);
        String group = scene.group("members");
        List<MessageExt> rows = PushScenarios.list();
        DefaultMQPushConsumer consumer = scene.pusher(group);
        consumer.subscribe(topic, "a || b");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            rows.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        PushScenarios.send(scene, topic, 0, 9, 2);
        scene.until("six messages", () -> rows.size() >= 6);
        var members = admin.examineConsumerConnectionInfo(group);
        scene.saw("members", List.of(members.getConnectionSet().size(), members.getConsumeType().name(),
            members.getMessageModel().name(), members.getConsumeFromWhere().name()));
        scene.saw("subscriptions", new TreeMap<>(members.getSubscriptionTable()).keySet());
        var subscription = members.getSubscriptionTable().get(topic);
        scene.saw("subscription", List.of(subscription.getSubString(), new TreeSet<>(subscription.getTagsSet()),
            subscription.getExpressionType()));
        scene.until("the offsets", () -> admin.examineConsumeStats(group, topic).computeTotalDiff() == 0);
        Map<Integer, Object> offsets = new TreeMap<>();
        admin.examineConsumeStats(group, topic).getOffsetTable().forEach((queue, each) ->
            offsets.put(queue.getQueueId(), List.of(each.getBrokerOffset(), each.getConsumerOffset(), each.getLastTimestamp() > 0)));
        scene.saw("offsets", offsets);
        Map<Integer, Object> ranges = new TreeMap<>();
        admin.examineTopicStats(topic).getOffsetTable().forEach((queue, each) ->
            ranges.put(queue.getQueueId(), List.of(each.getMinOffset(), each.getMaxOffset(), each.getLastUpdateTimestamp() > 0)));
        scene.saw("ranges", ranges);
        scene.saw("who reads", new TreeSet<>(admin.queryTopicConsumeByWho(topic).getGroupList()));
        scene.saw("running", admin.getConsumerRunningInfo(group, consumer.buildMQClientId(), false).getSubscriptionSet().size());
        var config = admin.examineSubscriptionGroupConfig(address, group);
        scene.saw("group", List.of(config.getGroupName(), config.isConsumeEnable(), config.isConsumeBroadcastEnable(),
            config.getRetryQueueNums(), config.getRetryMaxTimes(), config.getWhichBrokerWhenConsumeSlowly()));
        config.setRetryMaxTimes(3);
        admin.createAndUpdateSubscriptionGroupConfig(address, config);
        scene.saw("group changed", admin.examineSubscriptionGroupConfig(address, group).getRetryMaxTimes());
        scene.saw("members of none", Scene.outcome(() -> admin.examineConsumerConnectionInfo(scene.group("none"))));
        reset(scene, admin, topic, group, consumer);
        admin.deleteSubscriptionGroup(address, group);
        scene.saw("deleted", !admin.getAllSubscriptionGroup(address, 30_000).getSubscriptionGroupTable().containsKey(group));
    }

    /** Offsets of a group that has no member, set back to a time and to one offset. */
    private static void reset(Scene scene, DefaultMQAdminExt admin, String topic, String group,
        DefaultMQPushConsumer consumer) throws Exception {
        consumer.shutdown();
        scene.until("no member", () -> !"done".equals(Scene.outcome(() -> admin.examineConsumerConnectionInfo(group))));
        Map<Integer, Object> rolled = new TreeMap<>();
        admin.resetOffsetByTimestampOld(group, topic, System.currentTimeMillis() - 3_600_000, true).forEach(each ->
            rolled.put((int) each.getQueueId(), List.of(each.getBrokerOffset(), each.getConsumerOffset(), each.getRollbackOffset())));
        scene.saw("set back", rolled);
        Map<Integer, Long> offsets = new TreeMap<>();
        admin.examineConsumeStats(group, topic).getOffsetTable().forEach((queue, each) ->
            offsets.put(queue.getQueueId(), each.getConsumerOffset()));
        scene.saw("offsets after that", offsets);
        MessageQueue queue = scene.queue(topic, 1);
        admin.updateConsumeOffset(scene.brokerAddress(), group, queue, 2);
        scene.saw("one offset set", admin.examineConsumeStats(group, topic).getOffsetTable().get(queue).getConsumerOffset());
    }
}

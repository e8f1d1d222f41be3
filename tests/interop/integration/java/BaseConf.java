package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.MQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPushConsumer;
import org.apache.rocketmq.client.producer.MQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.clientinterface.MQConsumer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.MQAdminExt;

/**
 * What RocketMQ's integration tests extend, here for a cluster that runs in other processes.
 *
 * <p>It stands before the class of this name in the class path, so that the released test classes
 * run as they are. RocketMQ's starts a name server and three brokers in this process; this one
 * takes where they are from system properties: name.servers (HOST:PORT;...), cluster.name and
 * broker.name. All three brokers of the tests are the master of that one. Its controller only says what a client could know: name, address and configuration; it is
 * never started, and has no store, so a test that looks into a broker fails.
 */
public class BaseConf {
    static {
        System.setProperty(
            RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
    }

    public static final String NAMESRV_ADDR = System.getProperty("name.servers");
    protected static final String CLUSTER_NAME = System.getProperty("cluster.name");
    protected static final String BROKER1_NAME = System.getProperty("broker.name");
    protected static final String BROKER2_NAME = BROKER1_NAME;
    protected static final String BROKER3_NAME = BROKER1_NAME;
    // the compiled tests have RocketMQ's values of these in them
    protected static final int BROKER_NUM = 3;
    protected static final int WAIT_TIME = 5;
    protected static final int CONSUME_TIME = 2 * 60 * 1000;
    protected static final int QUEUE_NUMBERS = 8;

    private static final int TRIES = 20;

    protected static NamesrvController namesrvController;
    protected static BrokerController brokerController1 = described();
    protected static BrokerController brokerController2 = brokerController1;
    protected static BrokerController brokerController3 = brokerController1;
    protected static List<BrokerController> brokerControllerList = List.of(brokerController1);
    protected static Map<String, BrokerController> brokerControllerMap =
        Map.of(BROKER1_NAME, brokerController1);
    protected static List<Object> mqClients = new ArrayList<>();
    protected static boolean debug;

    private static BrokerController described() {
        IntegrationTestBase.initMQAdmin(NAMESRV_ADDR);
        ClusterInfo cluster = null;
        for (int i = 0; cluster == null && i < TRIES; i++) {
            cluster = MQAdminTestUtils.getCluster(NAMESRV_ADDR); // null if it takes long
        }
        String[] address =
            cluster.getBrokerAddrTable().get(BROKER1_NAME).selectBrokerAddr().split(":");
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName(BROKER1_NAME);
        broker.setBrokerClusterName(CLUSTER_NAME);
        broker.setBrokerIP1(address[0]);
        broker.setListenPort(Integer.parseInt(address[1]));
        broker.setNamesrvAddr(NAMESRV_ADDR);
        broker.setRecallMessageEnable(true);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(Integer.parseInt(address[1]));
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(System.getProperty("java.io.tmpdir") + "/described");
        return new BrokerController(broker, server, new NettyClientConfig(), store);
    }

    /** The cluster serves before this process starts. */
    public static void waitBrokerRegistered(String servers, String cluster, int brokers) {
    }

    /** Until the master has dispatched all that it has: false where that takes longer. */
    public boolean awaitDispatchMs(long timeMs) throws Exception {
        DefaultMQAdminExt admin = getAdmin(NAMESRV_ADDR);
        admin.start();
        long end = System.currentTimeMillis() + timeMs;
        do {
            Map<String, String> stats =
                admin.fetchBrokerRuntimeStats(brokerController1.getBrokerAddr()).getTable();
            if ("0".equals(stats.get("dispatchBehindBytes"))) {
                return true;
            }
            Thread.sleep(100);
        } while (System.currentTimeMillis() < end);
        return false;
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopic(TopicMessageType type) {
        return initTopicWithName(MQRandomUtils.getRandomTopic(), type);
    }

    public static String initTopicOnSampleTopicBroker(String sample) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sample);
    }

    public static String initTopicOnSampleTopicBroker(String sample, TopicMessageType type) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sample, type);
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicWithName(String topic, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, type);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String topic, String sample) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sample, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(
        String topic, String sample, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sample, type);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        return initConsumerGroup(config);
    }

    public static String initConsumerGroup(SubscriptionGroupConfig config) {
        MQAdminTestUtils.createSub(NAMESRV_ADDR, CLUSTER_NAME, config);
        return config.getGroupName();
    }

    public static DefaultMQAdminExt getAdmin(String servers) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3_000);
        admin.setNamesrvAddr(servers);
        admin.setPollNameServerInterval(100);
        return kept(admin);
    }

    public static RMQNormalProducer getProducer(String servers, String topic) {
        return getProducer(servers, topic, false);
    }

    public static RMQNormalProducer getProducer(String servers, String topic, boolean tls) {
        return kept(new RMQNormalProducer(servers, topic, tls));
    }

    public static RMQNormalProducer getProducer(
        String servers, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(servers, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
        String servers, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(servers, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String servers, String topic) {
        return kept(new RMQAsyncSendProducer(servers, topic));
    }

    public static RMQNormalConsumer getConsumer(
        String servers, String topic, String expression, AbstractListener listener) {
        return getConsumer(servers, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String servers, String topic, String expression, AbstractListener listener, boolean tls) {
        return getConsumer(servers, initConsumerGroup(), topic, expression, listener, tls);
    }

    public static RMQNormalConsumer getConsumer(
        String servers, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(servers, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String servers,
        String group,
        String topic,
        String expression,
        AbstractListener listener,
        boolean tls) {
        return kept(
            ConsumerFactory.getRMQNormalConsumer(
                servers, group, topic, expression, listener, tls));
    }

    public static Set<String> getBrokers() {
        return Set.of(BROKER1_NAME);
    }

    public static void shutdown() {
        List<Object> clients = List.copyOf(mqClients);
        mqClients.clear();
        shutdown(clients);
    }

    public static void shutdown(List<Object> clients) {
        clients.forEach(BaseConf::shutdown);
    }

    private static <Client> Client kept(Client client) {
        mqClients.add(client);
        return client;
    }

    private static void shutdown(Object client) {
        if (client instanceof AbstractMQProducer) {
            ((AbstractMQProducer) client).shutdown();
        } else if (client instanceof AbstractMQConsumer) {
            ((AbstractMQConsumer) client).shutdown();
        } else if (client instanceof MQAdminExt) {
            ((MQAdminExt) client).shutdown();
        } else if (client instanceof MQProducer) {
            ((MQProducer) client).shutdown();
        } else if (client instanceof MQPullConsumer) {
            ((MQPullConsumer) client).shutdown();
        } else if (client instanceof MQPushConsumer) {
            ((MQPushConsumer) client).shutdown();
        } else if (client instanceof MQConsumer) {
            ((MQConsumer) client).shutdown();
        }
    }
}

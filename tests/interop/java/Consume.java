import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileWriter;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer of a group that goes on over restarts of the broker.
 *
 * <pre>usage: Consume NAME_SERVER ORDER</pre>
 *
 * ORDER is JSON: topic, group, name (of this member of the group), threads, commit_ms, file. Each message is a line
 * of the file before its offset is committed: key, queue id, queue offset. The line "stats" on standard
 * input is answered with how many it handled; its end commits and ends the program, with the same answer.
 */
public final class Consume {
    private final DefaultMQPushConsumer consumer;
    private final FileWriter file;
    private long handled;

    private Consume(String nameServer, JSONObject order, int attempt) throws Exception {
        file = new FileWriter(order.getString("file"), StandardCharsets.UTF_8, true);
        consumer = new DefaultMQPushConsumer(order.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(Made.name(order.getString("name"), attempt));
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(order.getIntValue("commit_ms"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMax(order.getIntValue("threads"));
        consumer.setConsumeThreadMin(order.getIntValue("threads"));
        consumer.setConsumeMessageBatchMaxSize(32);
        // those that are being handled are committed too
        consumer.setAwaitTerminationMillisWhenShutdown(5000);
        consumer.subscribe(order.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            StringBuilder lines = new StringBuilder();
            for (MessageExt each : messages) {
                lines.append(each.getKeys()).append('\t').append(each.getQueueId()).append('\t')
                    .append(each.getQueueOffset()).append('\n');
            }
            record(lines.toString(), messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    public static void main(String[] arguments) {
        try {
            // or it looks for its queues every 20 s
            System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
            JSONObject order = JSON.parseObject(arguments[1]);
            Made.of(attempt -> new Consume(arguments[0], order, attempt)).run();
            System.exit(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private void run() throws Exception {
        print(Map.of("started", true));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (in.readLine() != null) {
            print(summary());
        }
        consumer.shutdown();
        print(summary());
    }

    private synchronized void record(String lines, int count) {
        try {
            file.write(lines);
            file.flush();
            handled += count;
        } catch (Exception problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private synchronized Map<String, Object> summary() {
        return Map.of("handled", handled);
    }

    private static void print(Map<String, Object> answer) {
        System.out.println(JSON.toJSONString(answer));
        System.out.flush();
    }
}

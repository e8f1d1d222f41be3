import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a push consumer, as a program of RocketMQ has them: nothing in it knows of tandemlog.
 *
 * <pre>usage: Demo MESSAGES</pre>
 *
 * NAMESRV_ADDR has the name servers, which are the nodes; KEY_FILE has accessKey and secretKey. It ends
 * with code 0 when each message that it sent was acknowledged and has come.
 */
public final class Demo {
    private static final String TOPIC = "Demo";
    private static final long WAIT_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        int code = 1;
        try {
            code = run(Integer.parseInt(arguments[0]));
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.exit(code); // threads of the client would go on
    }

    private static int run(int messages) throws Exception {
        AclClientRPCHook signs = signature(Path.of(System.getenv("KEY_FILE")));
        DefaultMQProducer producer = new DefaultMQProducer("demo-producers", signs);
        producer.start();
        Set<String> sent = ConcurrentHashMap.newKeySet();
        for (int number = 0; number < messages; number++) {
            String body = "hello " + number;
            if (producer.send(new Message(TOPIC, body.getBytes(StandardCharsets.UTF_8))).getSendStatus()
                == SendStatus.SEND_OK) {
                sent.add(body);
            }
        }
        System.out.println(sent.size() + " messages acknowledged");

        Set<String> missing = ConcurrentHashMap.newKeySet();
        missing.addAll(sent);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer("demo-readers", signs, new AllocateMessageQueueAveragely());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            for (MessageExt each : received) {
                missing.remove(new String(each.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!missing.isEmpty() && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        System.out.println(sent.size() - missing.size() + " messages received");
        consumer.shutdown();
        producer.shutdown();
        return missing.isEmpty() && sent.size() == messages ? 0 : 1;
    }

    /** Of the file that `tandemlog token new-key` has written. */
    private static AclClientRPCHook signature(Path file) throws Exception {
        Map<String, String> fields = new HashMap<>();
        for (String line : Files.readAllLines(file)) {
            String[] parts = line.split(": ", 2);
            fields.put(parts[0], parts[1]);
        }
        return new AclClientRPCHook(new SessionCredentials(fields.get("accessKey"), fields.get("secretKey")));
    }
}

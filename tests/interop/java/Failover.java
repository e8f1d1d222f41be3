import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a push consumer with the client's default settings, while things happen to the nodes.
 *
 * <pre>usage: Failover NAME_SERVERS TOPIC GROUP [pop]</pre>
 *
 * With "pop" the broker says how the consumer gets its messages; its group pops the topic.
 * It tells what happens in lines, as interop/failover_clients.py has it.
 */
public final class Failover {
    private static final long INTERVAL_NS = 5_000_000;
    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer consumer;
    private final String topic;
    private volatile boolean ended;

    private Failover(String nameServers, String topic, String group, boolean pop, int attempt) throws Exception {
        this.topic = topic;
        consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(Made.name("failover-consumer", attempt));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (pop) {
            Scene.call(consumer, "setClientRebalance", false);
        }
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                tell("delivered", each.getKeys());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        producer = new DefaultMQProducer(group + "-producers");
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName(Made.name("failover-producer", attempt));
        producer.start();
    }

    public static void main(String[] arguments) {
        try {
            boolean pop = arguments.length > 3 && arguments[3].equals("pop");
            Made.of(attempt -> new Failover(arguments[0], arguments[1], arguments[2], pop, attempt)).run();
            System.exit(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private void run() throws Exception {
        new Thread(this::send).start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (in.readLine() != null) {
            ended = true;
        }
    }

    private void send() {
        long turn = System.nanoTime();
        for (int number = 0; !ended; number++) {
            LockSupport.parkNanos(turn - System.nanoTime());
            String key = Integer.toString(number);
            try {
                Message message = new Message(topic, "t", key, key.getBytes(StandardCharsets.UTF_8));
                if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                    tell("acknowledged", key);
                } else {
                    tell("failed", "not SEND_OK");
                }
            } catch (Exception problem) {
                String text = String.valueOf(problem.getMessage());
                text = text.substring(0, Math.min(text.length(), 200)).replace('\n', ' ');
                tell("failed", problem.getClass().getSimpleName() + " " + text);
            }
            // what was missed meanwhile is not sent all at once
            turn = Math.max(turn + INTERVAL_NS, System.nanoTime());
        }
        tell("stopped", "");
    }

    private static void tell(String word, String what) {
        System.out.println(word + " " + System.currentTimeMillis() + " " + what);
    }
}

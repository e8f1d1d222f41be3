// What RocketMQ's Java client of the 5.x API does and sees: one line of JSON, as python_program.py.
// JavaProgram ENDPOINTS scenes | JavaProgram ENDPOINTS load SECONDS

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

public class JavaProgram {
  static final String TOPIC = "Scenes";
  static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  static ClientConfiguration configuration;

  record Seen(String body, int attempt) {
    String json() {
      return "[\"" + body + "\", " + attempt + "]";
    }
  }

  /** Fails the message `fails` at its first deliveries. */
  static class Listener {
    final List<Seen> seen = Collections.synchronizedList(new ArrayList<>());
    final String fails;
    final int times;

    Listener(String fails, int times) {
      this.fails = fails;
      this.times = times;
    }

    ConsumeResult consume(MessageView view) {
      String body = body(view);
      seen.add(new Seen(body, view.getDeliveryAttempt()));
      long count = all().stream().filter(each -> each.body.equals(body)).count();
      boolean failed = body.equals(fails) && count <= times;
      return failed ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    List<Seen> all() {
      synchronized (seen) {
        return new ArrayList<>(seen);
      }
    }
  }

  static String body(MessageView view) {
    ByteBuffer body = view.getBody();
    byte[] bytes = new byte[body.remaining()];
    body.get(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  static Message message(String body, Function<MessageBuilder, MessageBuilder> more) {
    MessageBuilder made = PROVIDER.newMessageBuilder().setTopic(TOPIC).setTag("tag").setKeys("key")
        .addProperty("colour", "red").setBody(body.getBytes(StandardCharsets.UTF_8));
    return more.apply(made).build();
  }

  static Message message(String body) {
    return message(body, each -> each);
  }

  static Producer producer() throws Exception {
    return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(TOPIC)
        .setTransactionChecker(view -> TransactionResolution.COMMIT).build();
  }

  static PushConsumer pushing(String group, Listener listener) throws Exception {
    return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
        .setConsumerGroup(group)
        .setSubscriptionExpressions(Collections.singletonMap(TOPIC, FilterExpression.SUB_ALL))
        .setMessageListener(listener::consume).build();
  }

  static void await(BooleanSupplier condition, int seconds) throws Exception {
    long end = System.currentTimeMillis() + 1000L * seconds;
    while (!condition.getAsBoolean() && System.currentTimeMillis() < end) {
      Thread.sleep(100);
    }
  }

  /** `again` is not acknowledged at first. */
  static List<Seen> receive(String group, String topic, int count, String again) throws Exception {
    List<Seen> seen = new ArrayList<>();
    long end = System.currentTimeMillis() + 40_000;
    try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
        .setClientConfiguration(configuration).setConsumerGroup(group)
        .setAwaitDuration(Duration.ofSeconds(3))
        .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
        .build()) {
      while (seen.size() < count && System.currentTimeMillis() < end) {
        for (MessageView each : consumer.receive(32, Duration.ofSeconds(15))) {
          seen.add(new Seen(body(each), each.getDeliveryAttempt()));
          if (body(each).equals(again) && each.getDeliveryAttempt() == 1) {
            consumer.changeInvisibleDuration(each, Duration.ofSeconds(1));
          } else {
            consumer.ack(each);
          }
        }
      }
    }
    return seen;
  }

  static List<Seen> push(String group, Listener listener, int count) throws Exception {
    try (PushConsumer consumer = pushing(group, listener)) {
      await(() -> listener.all().size() >= count, 40);
    }
    return listener.all();
  }

  static String sorted(List<Seen> seen) {
    return seen.stream().map(Seen::json).sorted().collect(Collectors.joining(", ", "[", "]"));
  }

  static String scenes() throws Exception {
    List<Seen> simple;
    List<Seen> pushed;
    Listener ordered = new Listener("fifo1", 2);
    try (Producer producer = producer()) {
      producer.send(message("normal"));
      for (int number = 0; number < 3; number++) {
        producer.send(message("fifo" + number, each -> each.setMessageGroup("g")));
      }
      long now = System.currentTimeMillis();
      producer.send(message("delay", each -> each.setDeliveryTimestamp(now + 3_000)));
      SendReceipt later =
          producer.send(message("never", each -> each.setDeliveryTimestamp(now + 8_000)));
      producer.recallMessage(TOPIC, later.getRecallHandle());
      for (String what : List.of("commit", "rollback", "check")) {
        Transaction transaction = producer.beginTransaction();
        producer.send(message(what), transaction);
        if (what.equals("commit")) {
          transaction.commit();
        } else if (what.equals("rollback")) {
          transaction.rollback();
        }
      }
      simple = receive("simple", TOPIC, 8, "normal");
      pushed = push("push", new Listener("normal", 1), 8);
      push("ordered", ordered, 9);
      push("buried", new Listener("fifo0", 99), 9);
    }
    String order = ordered.all().stream().map(Seen::body).filter(each -> each.startsWith("fifo"))
        .map(each -> "\"" + each + "\"").collect(Collectors.joining(", ", "[", "]"));
    List<Seen> dead = receive("inspectors", "%DLQ%buried", 1, "");
    return "{\"simple\": " + sorted(simple) + ", \"push\": " + sorted(pushed) + ", \"order\": "
        + order + ", \"dead\": " + sorted(dead) + "}";
  }

  static String load(int seconds) throws Exception {
    Set<String> acknowledged = new HashSet<>();
    List<String> failed = new ArrayList<>();
    Listener listener = new Listener("", 0);
    try (Producer producer = producer(); PushConsumer consumer = pushing("load", listener)) {
      long end = System.currentTimeMillis() + 1000L * seconds;
      for (int number = 1; System.currentTimeMillis() < end; number++) {
        try {
          producer.send(message("m" + number));
          acknowledged.add("m" + number);
        } catch (Exception error) {
          failed.add("\"" + error.getClass().getSimpleName() + "\"");
        }
        Thread.sleep(10);
      }
      await(() -> bodies(listener).containsAll(acknowledged), 60);
    }
    Set<String> missing = new HashSet<>(acknowledged);
    missing.removeAll(bodies(listener));
    String lost = missing.stream().map(each -> "\"" + each + "\"").collect(Collectors.joining(","));
    return "{\"acknowledged\": " + acknowledged.size() + ", \"failed\": " + failed
        + ", \"missing\": [" + lost + "]}";
  }

  static Set<String> bodies(Listener listener) {
    return listener.all().stream().map(Seen::body).collect(Collectors.toSet());
  }

  public static void main(String[] arguments) throws Exception {
    configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0]).enableSsl(false)
        .setRequestTimeout(Duration.ofSeconds(3)).build();
    boolean plays = arguments[1].equals("scenes");
    System.out.println(plays ? scenes() : load(Integer.parseInt(arguments[2])));
    System.out.flush();
    System.exit(0);
  }
}

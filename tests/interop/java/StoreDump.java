import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.File;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What RocketMQ's own decoder reads from the files of a store, as JSON lines.
 *
 * <pre>usage: StoreDump STORE messages|queues|index SLOTS</pre>
 *
 * Messages go through RocketMQ's MessageDecoder; units and index entries are fixed-size integers.
 */
public final class StoreDump {
    private static final int BLANK = 0xCBD43194;
    private static final int V1 = 0xDAA320A7;
    private static final int V2 = 0xDAA320AB;
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        File store = new File(arguments[0]);
        switch (arguments[1]) {
            case "messages" -> messages(store);
            case "queues" -> queues(store);
            case "index" -> index(store, Integer.parseInt(arguments[2]));
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        OUT.flush();
        System.exit(0);
    }

    private static File[] sorted(File folder) {
        File[] files = folder.listFiles();
        files = files == null ? new File[0] : files;
        Arrays.sort(files);
        return files;
    }

    private static void print(Map<String, Object> row) {
        OUT.println(JSON.toJSONString(row, SerializerFeature.WriteMapNullValue));
    }

    private static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        String ip = inet.getAddress().getHostAddress();
        return (ip.contains(":") ? "[" + ip + "]" : ip) + ":" + inet.getPort();
    }

    private static void messages(File store) throws Exception {
        for (File file : sorted(new File(store, "commitlog"))) {
            ByteBuffer buffer = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
            long base = Long.parseLong(file.getName());
            while (buffer.remaining() > 8) {
                int position = buffer.position();
                int size = buffer.getInt(position);
                int magic = buffer.getInt(position + 4);
                if (magic == BLANK) {
                    break;
                }
                if ((magic != V1 && magic != V2) || size <= 0 || size > buffer.remaining()
                    || buffer.getLong(position + 28) != base + position) {
                    return;
                }
                MessageExt message = MessageDecoder.decode(buffer.slice(position, size), true, false);
                if (message == null) {
                    return;
                }
                print(describe(message, size, magic == V1 ? 1 : 2));
                buffer.position(position + size);
            }
        }
    }

    private static Map<String, Object> describe(MessageExt message, int size, int version) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("physical_offset", message.getCommitLogOffset());
        row.put("size", size);
        row.put("version", version);
        row.put("msg_id", message.getMsgId());
        row.put("tags", properties.get("TAGS"));
        row.put("keys", properties.get("KEYS"));
        row.put("uniq_key", properties.get("UNIQ_KEY"));
        row.put("properties", properties);
        row.put("sys_flag", message.getSysFlag());
        row.put("flag", message.getFlag());
        row.put("born_timestamp", message.getBornTimestamp());
        row.put("born_host", host(message.getBornHost()));
        row.put("store_timestamp", message.getStoreTimestamp());
        row.put("store_host", host(message.getStoreHost()));
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        row.put("body_crc", message.getBodyCRC());
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        row.put("body", Base64.getEncoder().encodeToString(body));
        return row;
    }

    private static void queues(File store) throws Exception {
        for (File topic : sorted(new File(store, "consumequeue"))) {
            for (File queue : sorted(topic)) {
                for (File file : sorted(queue)) {
                    ByteBuffer buffer = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
                    long first = Long.parseLong(file.getName()) / 20;
                    for (int i = 0; buffer.remaining() >= 20; i++) {
                        long physical = buffer.getLong();
                        int size = buffer.getInt();
                        long tags = buffer.getLong();
                        if (size <= 0 || size == Integer.MAX_VALUE) {
                            continue;
                        }
                        Map<String, Object> row = new LinkedHashMap<>();
                        row.put("topic", topic.getName());
                        row.put("queue_id", Integer.parseInt(queue.getName()));
                        row.put("queue_offset", first + i);
                        row.put("physical_offset", physical);
                        row.put("size", size);
                        row.put("tags_code", tags);
                        print(row);
                    }
                }
            }
        }
    }

    private static void index(File store, int slots) throws Exception {
        for (File file : sorted(new File(store, "index"))) {
            ByteBuffer buffer = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
            long begin = buffer.getLong(0);
            int next = buffer.getInt(36);
            for (int number = 1; number < next; number++) {
                int at = 40 + 4 * slots + 20 * number;
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("file", file.getName());
                row.put("number", number);
                row.put("key_hash", buffer.getInt(at));
                row.put("physical_offset", buffer.getLong(at + 4));
                row.put("time_diff_seconds", buffer.getInt(at + 12));
                row.put("store_second", begin / 1000 + buffer.getInt(at + 12));
                row.put("previous", buffer.getInt(at + 16));
                print(row);
            }
        }
    }
}

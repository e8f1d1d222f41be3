import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Requests of RocketMQ's remoting protocol, made once and written often.
 *
 *     i32 length | u8 0, u24 header | {"code":310,…,"opaque":1000000000,…} | body
 *                                                             ^^^^^^^^^^        numbers are filled in
 *
 * A frame keeps its length whatever is filled in: an opaque has ten digits, a unique key 32, an offset 19.
 */
final class Frames {
    static final int FIRST_OPAQUE = 1_000_000_000;
    static final int BODY_BYTES = 128;
    static final int BATCH = 32;
    private static final String NO_KEY = "0".repeat(32);
    private static final String NO_OFFSET = "0".repeat(19);
    private static final String OPAQUE = "\"opaque\":";
    private static final String OFFSET = "\"queueOffset\":\"";
    /** Within a body, and within JSON. */
    private static final String KEY = "UNIQ_KEY\1";
    private static final String QUOTED_KEY = "UNIQ_KEY\\u0001";
    private static final byte[] HEX = "0123456789ABCDEF".getBytes(StandardCharsets.US_ASCII);

    final byte[] bytes;
    private final int opaqueAt;
    private final int offsetAt;
    private final int[] keysAt;

    private Frames(String header, byte[] body) {
        byte[] head = header.getBytes(StandardCharsets.US_ASCII);
        ByteBuffer whole = ByteBuffer.allocate(8 + head.length + body.length);
        whole.putInt(4 + head.length + body.length).putInt(head.length).put(head).put(body);
        bytes = whole.array();
        opaqueAt = behind(OPAQUE)[0];
        int[] offsets = behind(OFFSET);
        offsetAt = offsets.length == 0 ? -1 : offsets[0];
        int[] keys = behind(KEY);
        keysAt = keys.length == 0 ? behind(QUOTED_KEY) : keys;
    }

    /** One message of 128 bytes: request 310. */
    static Frames send(String topic, int queue) {
        return new Frames(header(310, sendFields(topic, queue, false)), body());
    }

    /** 32 such messages: request 320. */
    static Frames batch(String topic, int queue) {
        byte[] properties = ("UNIQ_KEY\1" + NO_KEY + "\2WAIT\1true\2").getBytes(StandardCharsets.US_ASCII);
        int size = 20 + BODY_BYTES + 2 + properties.length;
        ByteBuffer messages = ByteBuffer.allocate(BATCH * size);
        for (int i = 0; i < BATCH; i++) {
            messages.putInt(size).putInt(0).putInt(0).putInt(0).putInt(BODY_BYTES).put(body());
            messages.putShort((short) properties.length).put(properties);
        }
        return new Frames(header(320, sendFields(topic, queue, true)), messages.array());
    }

    /** Up to 32 messages from an offset on, parked where there are none: request 11. */
    static Frames pull(String topic, int queue) {
        return new Frames(header(11, "\"commitOffset\":\"0\",\"consumerGroup\":\"raw-readers\",\"expressionType\":\"TAG\","
            + "\"maxMsgBytes\":\"262144\",\"maxMsgNums\":\"" + BATCH + "\",\"queueId\":\"" + queue + "\",\"queueOffset\":\""
            + NO_OFFSET + "\",\"subVersion\":\"0\",\"subscription\":\"*\",\"suspendTimeoutMillis\":\"15000\","
            + "\"sysFlag\":\"6\",\"topic\":\"" + topic + "\""), new byte[0]);
    }

    private static String sendFields(String topic, int queue, boolean batch) {
        return "\"a\":\"raw-senders\",\"b\":\"" + topic + "\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"" + queue
            + "\",\"f\":\"0\",\"g\":\"" + System.currentTimeMillis() + "\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u0001" + NO_KEY
            + "\\u0002WAIT\\u0001true\\u0002\",\"j\":\"0\",\"k\":\"false\",\"l\":\"0\",\"m\":\"" + batch + "\"";
    }

    private static String header(int code, String fields) {
        return "{\"code\":" + code + ",\"extFields\":{" + fields + "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":"
            + FIRST_OPAQUE + ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}";
    }

    private static byte[] body() {
        return "x".repeat(BODY_BYTES).getBytes(StandardCharsets.US_ASCII);
    }

    /** Where each `text` of the frame ends. */
    private int[] behind(String text) {
        String all = new String(bytes, StandardCharsets.ISO_8859_1);
        List<Integer> found = new ArrayList<>();
        for (int at = all.indexOf(text); at >= 0; at = all.indexOf(text, at + text.length())) {
            found.add(at + text.length());
        }
        return found.stream().mapToInt(Integer::intValue).toArray();
    }

    /** Appends the request number `number`; each of its unique keys is made of `firstKey` and those after it. */
    void write(ByteBuffer out, int number, long firstKey, long offset) {
        int begin = out.position();
        out.put(bytes);
        decimal(out, begin + opaqueAt, 10, FIRST_OPAQUE + number);
        if (offsetAt >= 0) {
            decimal(out, begin + offsetAt, 19, offset);
        }
        for (int i = 0; i < keysAt.length; i++) {
            hexadecimal(out, begin + keysAt[i], firstKey + i);
        }
    }

    private static void decimal(ByteBuffer out, int at, int digits, long number) {
        for (int i = at + digits - 1; i >= at; i--) {
            out.put(i, (byte) ('0' + number % 10));
            number /= 10;
        }
    }

    private static void hexadecimal(ByteBuffer out, int at, long number) {
        for (int i = at + 31; i >= at + 16; i--) {
            out.put(i, HEX[(int) (number & 15)]);
            number >>>= 4;
        }
    }
}

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.function.IntFunction;

/**
 * Load on a broker or a node without a client in the way: one thread, four connections, many requests in flight.
 *
 *     send  PORT PREFIX TOPICS QUEUES SECONDS             one message a request
 *     batch PORT PREFIX TOPICS QUEUES SECONDS             32 of them
 *     fill  PORT PREFIX TOPICS QUEUES MESSAGES            so many in each queue, a multiple of 32
 *     pull  PORT PREFIX TOPICS QUEUES MESSAGES SECONDS    32 of those, again and again
 *
 * is a line of standard input, and a line of JSON the answer: requests, messages, seconds, p50_us, p99_us. Requests go to
 * all queues of all topics in turn. A request that is refused ends the program: what it said is on standard error.
 */
final class RawLoad {
    private static final int CONNECTIONS = 4;
    private static final int SENDS = 64;
    private static final int BATCHES = 8;
    private static final int PULLS = 16;
    private static final int SILENCE_MS = 20_000;
    private static final int RING = 1 << 16;
    private static final byte[] OPAQUE = "\"opaque\":".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] CODE = "\"code\":".getBytes(StandardCharsets.US_ASCII);

    /** Which message of its queue request `round` of a queue asks for: set for pulls alone. */
    private final int pullsOfQueue;
    private final Frames[] frames;
    private final int messagesOfSend;
    private final long[] sentNs = new long[RING];
    private final Samples latencies = new Samples();
    private final long keys = System.nanoTime() << 8;
    private long requests;
    private long messages;
    private long answered;

    private RawLoad(Frames[] frames, int messagesOfSend, int pullsOfQueue) {
        this.frames = frames;
        this.messagesOfSend = messagesOfSend;
        this.pullsOfQueue = pullsOfQueue;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.trim().split(" ")));
        }
    }

    private static String answer(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        int topics = Integer.parseInt(words[3]);
        int queues = Integer.parseInt(words[4]);
        int number = Integer.parseInt(words[5]);
        switch (words[0]) {
            case "send":
                return new RawLoad(made(words[2], topics, queues, Frames::send), 1, 0).run(port, SENDS, number, Long.MAX_VALUE);
            case "batch":
                return new RawLoad(made(words[2], topics, queues, Frames::batch), Frames.BATCH, 0)
                    .run(port, BATCHES, number, Long.MAX_VALUE);
            case "fill":
                return new RawLoad(made(words[2], topics, queues, Frames::batch), Frames.BATCH, 0)
                    .run(port, BATCHES, 3600, (long) topics * queues * (number / Frames.BATCH));
            case "pull":
                return new RawLoad(made(words[2], topics, queues, Frames::pull), 0, number / Frames.BATCH)
                    .run(port, PULLS, Integer.parseInt(words[6]), Long.MAX_VALUE);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private interface Maker {
        Frames make(String topic, int queue);
    }

    /** A frame for each queue, the topics in turn. */
    private static Frames[] made(String prefix, int topics, int queues, Maker maker) {
        IntFunction<Frames> one = i -> maker.make(String.format("%s-%04d", prefix, i % topics), i / topics);
        Frames[] frames = new Frames[topics * queues];
        for (int i = 0; i < frames.length; i++) {
            frames[i] = one.apply(i);
        }
        return frames;
    }

    private String run(int port, int window, int seconds, long most) throws IOException {
        try (Selector selector = Selector.open()) {
            List<Connection> connections = new ArrayList<>();
            for (int i = 0; i < CONNECTIONS; i++) {
                connections.add(new Connection(port, selector));
            }
            long began = System.nanoTime();
            long end = began + seconds * 1_000_000_000L;
            while (true) {
                long now = System.nanoTime();
                boolean more = now < end && requests < most;
                for (Connection each : connections) {
                    if (more && each.inFlight <= window / 2) {
                        each.put(window, most, now);
                    }
                    each.flush();
                }
                if (!more && answered == requests) {
                    break;
                }
                if (selector.select(SILENCE_MS) == 0) {
                    throw new IOException("no response within " + SILENCE_MS + " ms");
                }
                for (SelectionKey key : selector.selectedKeys()) {
                    ((Connection) key.attachment()).read();
                }
                selector.selectedKeys().clear();
            }
            double took = (System.nanoTime() - began) / 1e9;
            for (Connection each : connections) {
                each.channel.close();
            }
            return String.format(Locale.ROOT, "{\"requests\":%d,\"messages\":%d,\"seconds\":%.6f,%s}", requests, messages, took,
                latencies.json());
        }
    }

    private final class Connection {
        final SocketChannel channel;
        final SelectionKey key;
        final ByteBuffer out = ByteBuffer.allocateDirect(2 << 20).limit(0);
        ByteBuffer in = ByteBuffer.allocate(2 << 20);
        int inFlight;

        Connection(int port, Selector selector) throws IOException {
            channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            channel.configureBlocking(false);
            key = channel.register(selector, SelectionKey.OP_READ, this);
        }

        void put(int window, long most, long now) {
            out.compact();
            while (inFlight < window && requests < most) {
                int queue = (int) (requests % frames.length);
                long round = requests / frames.length;
                long offset = pullsOfQueue == 0 ? 0 : round % pullsOfQueue * Frames.BATCH;
                int number = (int) (requests % 1_000_000_000);
                frames[queue].write(out, number, keys + requests * Frames.BATCH, offset);
                sentNs[number & RING - 1] = now;
                requests++;
                inFlight++;
            }
            out.flip();
        }

        void flush() throws IOException {
            if (out.hasRemaining()) {
                channel.write(out);
            }
            key.interestOps(out.hasRemaining() ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_READ);
        }

        void read() throws IOException {
            if (channel.read(in) < 0) {
                throw new IOException("the connection was closed");
            }
            long now = System.nanoTime();
            int at = 0;
            while (in.position() - at >= 8) {
                int length = in.getInt(at) + 4;
                if (in.position() - at < length) {
                    if (length > in.capacity()) {
                        in = ByteBuffer.allocate(2 * length).put(in.flip());
                    }
                    break;
                }
                taken(at, length, now);
                at += length;
            }
            in.limit(in.position()).position(at);
            in.compact();
        }

        /** The response at `at`. */
        private void taken(int at, int length, long now) throws IOException {
            int head = in.getInt(at + 4) & 0xFFFFFF;
            byte[] bytes = in.array();
            int begin = at + 8;
            int body = begin + head;
            if (number(bytes, begin, body, CODE) != 0) {
                throw new IOException("refused: " + new String(bytes, begin, head, StandardCharsets.UTF_8));
            }
            int number = (int) number(bytes, begin, body, OPAQUE) - Frames.FIRST_OPAQUE;
            latencies.add(now - sentNs[number & RING - 1]);
            inFlight--;
            answered++;
            messages += messagesOfSend;
            if (messagesOfSend == 0) {
                for (int next = body; next < at + length; next += in.getInt(next)) {
                    messages++;
                }
            }
        }
    }

    private static long number(byte[] bytes, int at, int end, byte[] name) throws IOException {
        for (; at < end - name.length; at++) {
            if (bytes[at] == name[0] && bytes[at + 2] == name[2] && matches(bytes, at, name)) {
                long value = 0;
                for (at += name.length; bytes[at] >= '0' && bytes[at] <= '9'; at++) {
                    value = 10 * value + bytes[at] - '0';
                }
                return value;
            }
        }
        throw new IOException("a response has no " + new String(name, StandardCharsets.US_ASCII));
    }

    private static boolean matches(byte[] bytes, int at, byte[] name) {
        for (int i = 0; i < name.length; i++) {
            if (bytes[at + i] != name[i]) {
                return false;
            }
        }
        return true;
    }
}

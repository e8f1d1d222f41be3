import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;

/** One measurement: how many messages were handled, in which time, and how long sampled ones took. */
final class Measured {
    final Samples latencies = new Samples();
    private final AtomicLong messages = new AtomicLong();
    private final long all;
    private long beganNs = System.nanoTime();
    private long endedNs;
    private volatile long firstNs;
    private volatile long lastNs;

    /** Of as many messages as come. */
    Measured() {
        this(0);
    }

    /** Of `all` messages, where the rate is that of the middle eight tenths: readers begin and end one after the other. */
    Measured(long all) {
        this.all = all;
    }

    interface Work {
        String answer(String[] words) throws Exception;
    }

    /** Answers each line of standard input; one that fails ends the program. */
    static void answerLines(Work work) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println(work.answer(line.trim().split(" ")));
            } catch (Throwable problem) {
                problem.printStackTrace();
                System.exit(1);
            }
        }
        System.exit(0);
    }

    static String topic(String prefix, int number) {
        return String.format(Locale.ROOT, "%s-%04d", prefix, number);
    }

    void begin() {
        beganNs = System.nanoTime();
    }

    void sent(long sinceNs, int count) {
        latencies.add(System.nanoTime() - sinceNs);
        messages.addAndGet(count);
    }

    /** True once all have come. */
    boolean read(int count) {
        long now = messages.addAndGet(count);
        long before = now - count;
        if (before < all / 10 && now >= all / 10) {
            firstNs = System.nanoTime();
        }
        if (before < all - all / 10 && now >= all - all / 10) {
            lastNs = System.nanoTime();
        }
        return now >= all;
    }

    long messages() {
        return messages.get();
    }

    void end() {
        endedNs = System.nanoTime();
    }

    String json() {
        long counted = all == 0 ? messages.get() : all - 2 * (all / 10);
        double seconds = (all == 0 ? endedNs - beganNs : Math.max(lastNs - firstNs, 1)) / 1e9;
        return String.format(Locale.ROOT, "{\"messages\":%d,\"seconds\":%.6f,%s}", counted, seconds, latencies.json());
    }
}

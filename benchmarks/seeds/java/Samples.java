import java.util.Arrays;
import java.util.Locale;

/** Times in nanoseconds, each of them kept, from any number of threads. */
final class Samples {
    private long[] values = new long[1 << 16];
    private int count;

    synchronized void add(long ns) {
        if (count == values.length) {
            values = Arrays.copyOf(values, 2 * count);
        }
        values[count++] = ns;
    }

    /** `"p50_us":…,"p99_us":…` */
    synchronized String json() {
        long[] sorted = Arrays.copyOf(values, count);
        Arrays.sort(sorted);
        return String.format(Locale.ROOT, "\"p50_us\":%.1f,\"p99_us\":%.1f", at(sorted, 0.5), at(sorted, 0.99));
    }

    private static double at(long[] sorted, double part) {
        return sorted.length == 0 ? 0 : sorted[Math.max((int) Math.ceil(part * sorted.length), 1) - 1] / 1e3;
    }
}

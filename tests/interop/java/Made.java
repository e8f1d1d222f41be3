/**
 * What RocketMQ makes on a machine whose network interfaces come and go, as those of containers do.
 *
 * Its clients look for an address of this machine as they are made, and again as they start, which makes
 * further clients inside. If an interface goes away just then, that ends with a NullPointerException (5.x);
 * a moment later it finds one. A client that failed at its start cannot be started again: make another.
 */
final class Made {
    private static final int ATTEMPTS = 50;
    private static final long PAUSE_MS = 100;

    /** Makes a client and starts it. */
    interface Maker<T> {
        T make(int attempt) throws Exception;
    }

    private Made() {
    }

    static <T> T of(Maker<T> maker) throws Exception {
        for (int attempt = 1;; attempt++) {
            try {
                return maker.make(attempt);
            } catch (NullPointerException problem) {
                if (attempt == ATTEMPTS) {
                    throw problem;
                }
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    /** The name of an instance, for each attempt another: one that failed may still be registered. */
    static String name(String name, int attempt) {
        return attempt == 1 ? name : name + "-" + attempt;
    }
}

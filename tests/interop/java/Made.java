import java.util.concurrent.Callable;

/**
 * What RocketMQ makes on a machine whose network interfaces come and go, as those of containers do.
 *
 * Its clients look for an address of this machine as they are made. If an interface goes away just
 * then, that ends with a NullPointerException (5.x); a moment later it finds one.
 */
final class Made {
    private static final int ATTEMPTS = 50;
    private static final long PAUSE_MS = 100;

    private Made() {
    }

    static <T> T of(Callable<T> maker) throws Exception {
        for (int attempt = 1;; attempt++) {
            try {
                return maker.call();
            } catch (NullPointerException problem) {
                if (attempt == ATTEMPTS) {
                    throw problem;
                }
                Thread.sleep(PAUSE_MS);
            }
        }
    }
}

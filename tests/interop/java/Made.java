import org.apache.rocketmq.client.MQAdmin;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What RocketMQ makes on a machine whose network interfaces come and go, as those of containers do.
 *
 * Its clients look for an address of this machine as they are made, and again as they start, which makes
 * further clients inside. If an interface goes away just then, that ends with a NullPointerException (5.x);
 * a moment later it finds one. A client that failed at its start cannot be started again: make another.
 *
 * A client's first request finds the route and opens the connection, and has 3 s for each, which on a busy
 * machine are over before all classes are loaded: `reaches` makes a first request that may fail.
 */
final class Made {
    private static final int ATTEMPTS = 50;
    private static final long PAUSE_MS = 100;
    private static final long REACH_MS = 90_000;

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

    /** Returns once the broker of the queue has answered this client. */
    static void reaches(MQAdmin client, MessageQueue queue) throws Exception {
        long end = System.nanoTime() + REACH_MS * 1_000_000;
        while (true) {
            try {
                client.maxOffset(queue);
                return;
            } catch (MQClientException problem) {
                if (System.nanoTime() - end > 0) {
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

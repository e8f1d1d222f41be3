import java.util.concurrent.locks.LockSupport;

/** Sends at an even rate; each send knows when it was due, so that a sender which falls behind hides nothing. */
final class Pace {
    interface Send {
        void send(int number, long dueNs) throws Exception;
    }

    private Pace() {
    }

    static void run(int rate, int count, Send send) throws Exception {
        long began = System.nanoTime();
        for (int i = 0; i < count; i++) {
            long due = began + i * 1_000_000_000L / rate;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            send.send(i, due);
        }
    }
}

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.message.Message;

/**
 * What programs do with RocketMQ's client, each as a scenario that prints one line of JSON: its name, the
 * problem that ended it or null, and what it saw.
 *
 * <pre>usage: Scenarios NAME_SERVER BROKER_NAME SUFFIX AT_ONCE [NAME …]</pre>
 *
 * SUFFIX ends the names of topics and groups, so that two versions run on one broker; it is not in what is
 * printed. AT_ONCE scenarios run at the same time; without names, all of them that the version has.
 */
public final class Scenarios {
    private static final Map<String, Play> ALL = new LinkedHashMap<>();

    /** One scenario. */
    interface Play {
        void play(Scene scene) throws Exception;
    }

    static {
        // the longest first
        ALL.put("transactions", ServiceScenarios::transactions);
        ALL.put("timed", ServiceScenarios::timed);
        ALL.put("delayed", ServiceScenarios::delayed);
        ALL.put("retried", PushScenarios::retried);
        ALL.put("dead", PushScenarios::dead);
        ALL.put("begins", PushScenarios::begins);
        ALL.put("shared", PushScenarios::shared);
        ALL.put("orderly", PushScenarios::orderly);
        ALL.put("broadcast", PushScenarios::broadcast);
        ALL.put("resumed", PushScenarios::resumed);
        ALL.put("filtered", PushScenarios::filtered);
        ALL.put("requests", ServiceScenarios::requests);
        ALL.put("groups", AdminScenarios::groups);
        ALL.put("topics", AdminScenarios::topics);
        ALL.put("pull", ReadScenarios::pull);
        ALL.put("lite-pull", ReadScenarios::litePull);
        ALL.put("queries", ReadScenarios::queries);
        ALL.put("times", ReadScenarios::times);
        ALL.put("sync", SendScenarios::sync);
        ALL.put("async", SendScenarios::async);
        ALL.put("oneway", SendScenarios::oneway);
        ALL.put("batch", SendScenarios::batch);
        ALL.put("selector", SendScenarios::selector);
        ALL.put("bodies", SendScenarios::bodies);
        ALL.put("auto-created", SendScenarios::autoCreated);
        ALL.put("refused", SendScenarios::refused);
        for (String name : List.of("popped", "retried", "assigned", "direct", "filtered", "orderly")) {
            ALL.put(name.startsWith("pop") ? name : "pop-" + name, scene -> ofPops(name, scene));
        }
    }

    /** Of a class that only 5.x has. */
    private static void ofPops(String name, Scene scene) throws Exception {
        try {
            Class.forName("PopScenarios").getDeclaredMethod(name, Scene.class).invoke(null, scene);
        } catch (InvocationTargetException problem) {
            throw problem.getCause() instanceof Exception ? (Exception) problem.getCause() : problem;
        }
    }

    private Scenarios() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        if (!timers()) {
            ALL.remove("timed");
            ALL.keySet().removeIf(each -> each.startsWith("pop"));
        }
        Map<String, Play> chosen = new LinkedHashMap<>(ALL);
        for (int i = 4; i < arguments.length; i++) {
            if (i == 4) {
                chosen.clear();
            }
            chosen.put(arguments[i], ALL.get(arguments[i]));
        }
        ExecutorService threads = Executors.newFixedThreadPool(Integer.parseInt(arguments[3]));
        chosen.forEach((name, play) -> threads.execute(() ->
            run(new Scene(name, arguments[0], arguments[1], arguments[2]), play)));
        threads.shutdown();
        boolean ended = threads.awaitTermination(10, TimeUnit.MINUTES);
        System.exit(ended ? 0 : 1);
    }

    /** 4.x has delay levels alone. */
    private static boolean timers() {
        return Arrays.stream(Message.class.getMethods()).anyMatch(each -> each.getName().equals("setDelayTimeSec"));
    }

    private static void run(Scene scene, Play play) {
        String problem = null;
        try {
            play.play(scene);
        } catch (Throwable error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            problem = trace.toString();
        }
        synchronized (System.out) {
            System.out.println(scene.line(problem));
            System.out.flush();
        }
        scene.close();
    }
}

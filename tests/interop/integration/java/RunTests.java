import java.io.PrintStream;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import com.alibaba.fastjson2.JSON;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs classes of tests (JUnit 4), one after the other, and prints a line of JSON for each event.
 *
 * <pre>usage: RunTests LIMIT_SECONDS CLASS...</pre>
 *
 * <p>{"class", "test", "result": passed | failed | ignored, "seconds", "error", "at"}, and after
 * the last test of a class {"class", "done": seconds}. A class that takes longer than its limit
 * ends the process, after a line {"class", "test", "result": "timeout", "at"}: where it was.
 */
public final class RunTests extends RunListener {
    private static final int FRAMES = 12;
    private final PrintStream out;
    private final String name;
    private volatile String test = "";
    private long begin;
    private boolean failed;

    private RunTests(PrintStream out, String name) {
        this.out = out;
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // what tests print themselves
        long limit = TimeUnit.SECONDS.toMillis(Long.parseLong(arguments[0]));
        for (String name : Arrays.asList(arguments).subList(1, arguments.length)) {
            new RunTests(out, name).run(limit);
        }
        out.flush();
        Runtime.getRuntime().halt(0); // clients that tests left behind
    }

    private void run(long limit) throws Exception {
        long start = System.nanoTime();
        Thread thread = new Thread(this::runClass, name);
        thread.start();
        thread.join(limit);
        if (thread.isAlive()) {
            print("test", test, "result", "timeout", "at", frames(thread.getStackTrace()));
            out.flush();
            Runtime.getRuntime().halt(3);
        }
        print("done", seconds(start));
    }

    private void runClass() {
        try {
            JUnitCore core = new JUnitCore();
            core.addListener(this);
            core.run(Class.forName("org.apache.rocketmq.test." + name));
        } catch (ClassNotFoundException | LinkageError problem) {
            testFailure(new Failure(Description.EMPTY, problem));
        }
    }

    @Override
    public void testStarted(Description description) {
        test = description.getMethodName();
        failed = false;
        begin = System.nanoTime();
    }

    @Override
    public void testFailure(Failure failure) {
        failed = true;
        Throwable problem = failure.getException();
        String where = failure.getDescription().getMethodName();
        String at = frames(problem.getStackTrace());
        print("test", where == null ? "" : where, "result", "failed", "error", problem, "at", at);
    }

    @Override
    public void testIgnored(Description description) {
        String where = description.getMethodName();
        print("test", where == null ? "" : where, "result", "ignored");
    }

    @Override
    public void testFinished(Description description) {
        if (!failed) {
            print("test", test, "result", "passed", "seconds", seconds(begin));
        }
    }

    private static double seconds(long start) {
        return (System.nanoTime() - start) / 1_000_000 / 1e3;
    }

    private static String frames(StackTraceElement[] trace) {
        StringBuilder found = new StringBuilder();
        Arrays.stream(trace).limit(FRAMES).forEach(each -> found.append(each).append('\n'));
        return found.toString();
    }

    private synchronized void print(Object... fields) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("class", name);
        for (int i = 0; i < fields.length; i += 2) {
            Object value = fields[i + 1];
            row.put((String) fields[i], value instanceof Double ? value : String.valueOf(value));
        }
        out.println(JSON.toJSONString(row));
        out.flush();
    }
}

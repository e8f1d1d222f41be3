import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The program mqadmin for many commands: each line of standard input is a JSON array, its arguments, and
 * each line of standard output an object with the text that it printed.
 */
public final class Administer {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream text = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(text);
            System.setErr(text);
            MQAdminStartup.main0(JSON.parseArray(line, String.class).toArray(new String[0]), null);
            text.flush();
            out.println(JSON.toJSONString(Map.of("said", said.toString(StandardCharsets.UTF_8))));
            out.flush();
        }
        System.exit(0);
    }
}

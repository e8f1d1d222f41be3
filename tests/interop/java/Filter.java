import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * What a broker selects. Each line of the input: {"filter": …, "messages": [{name: value}, …]}; of the
 * output: an array with true for each message that is selected, or null for a filter that is refused.
 */
public final class Filter {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder output = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            output.append(JSON.toJSONString(answer(JSON.parseObject(line)))).append('\n');
        }
        System.out.write(output.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static JSONArray answer(JSONObject order) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(order.getString("filter"));
        } catch (MQFilterException error) {
            return null;
        }
        JSONArray selected = new JSONArray();
        for (Object each : order.getJSONArray("messages")) {
            Map<String, String> properties = new HashMap<>();
            ((JSONObject) each).forEach((name, value) -> properties.put(name, (String) value));
            selected.add(isSelected(compiled, properties));
        }
        return selected;
    }

    /** As ExpressionMessageFilter.isMatchedByCommitLog. */
    private static boolean isSelected(Expression compiled, Map<String, String> properties) {
        try {
            Object result = compiled.evaluate(new MessageEvaluationContext(properties));
            return result instanceof Boolean && (Boolean) result;
        } catch (Throwable error) {
            return false;
        }
    }
}

import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.json.McpJsonMapper;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Peers on the Java SDK, which speaks the legacy era. The first argument names the
 * peer, the second is the Go test's input for it.
 */
public final class Peer {

    static final McpJsonMapper MAPPER = McpJsonDefaults.getMapper();

    public static void main(String[] args) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        var job = new Json(MAPPER.readValue(args[1], Map.class));
        switch (args[0]) {
            case "server" -> new Surface(job).run();
            case "walk" -> new Walk(job).run();
            case "visit" -> new Visit(job).run();
            default -> throw new IllegalArgumentException("no such peer: " + args[0]);
        }
        System.exit(0); // the SDK leaves threads behind
    }

    /** A JSON value that can be asked for its members. */
    record Json(Object value) {

        Json at(String name) {
            return new Json(value instanceof Map<?, ?> map ? map.get(name) : null);
        }

        String text() {
            return value == null ? "" : value.toString();
        }

        boolean isTrue() {
            return Boolean.TRUE.equals(value);
        }

        int number() {
            return value instanceof Number n ? n.intValue() : 0;
        }

        List<Json> all() {
            return value instanceof List<?> list ? list.stream().map(v -> new Json(v)).toList() : List.of();
        }

        List<String> texts() {
            return all().stream().map(Json::text).toList();
        }
    }

    /** Makes an object of names and values by turns; members without a value are left out. */
    static Map<String, Object> object(Object... members) {
        var map = new LinkedHashMap<String, Object>();
        for (int i = 0; i < members.length; i += 2) {
            if (members[i + 1] != null) {
                map.put((String) members[i], members[i + 1] instanceof Json json ? json.value() : members[i + 1]);
            }
        }
        return map;
    }

    /** Shows where a failure comes from. */
    static String trace(Throwable failure) {
        var text = new StringWriter();
        failure.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    /** Makes one of the SDK's values of its JSON. */
    static <T> T of(Class<T> type, Object... members) {
        return MAPPER.convertValue(object(members), type);
    }

    /** Makes JSON of one of the SDK's values. */
    static Json json(Object value) {
        return new Json(MAPPER.convertValue(value, Map.class));
    }

    private Peer() {}
}

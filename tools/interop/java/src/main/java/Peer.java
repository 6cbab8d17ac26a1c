import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.json.McpJsonMapper;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Peers on the Java SDK, which supports the legacy era. The first argument is the role of the peer,
 * the second is its input from the Go test as JSON.
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
            default -> throw new IllegalArgumentException("unknown role: " + args[0]);
        }
        System.exit(0); // threads of the SDK are still running
    }

    /** A JSON value with accessors. */
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

    /** Makes an object of alternating names and values. It omits members whose value is null. */
    static Map<String, Object> object(Object... members) {
        var map = new LinkedHashMap<String, Object>();
        for (int i = 0; i < members.length; i += 2) {
            if (members[i + 1] != null) {
                map.put((String) members[i], members[i + 1] instanceof Json json ? json.value() : members[i + 1]);
            }
        }
        return map;
    }

    /** Returns the stack trace of a failure. */
    static String trace(Throwable failure) {
        var text = new StringWriter();
        failure.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    /** Converts JSON to a value of the SDK. */
    static <T> T of(Class<T> type, Object... members) {
        return MAPPER.convertValue(object(members), type);
    }

    /** Converts a value of the SDK to JSON. */
    static Json json(Object value) {
        return new Json(MAPPER.convertValue(value, Map.class));
    }

    private Peer() {}
}

import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.spec.McpSchema;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A host that runs the session of scenario_test.go. The job has the server and the steps. The host
 * prints its report as JSON.
 */
final class Walk {

    private final Peer.Json job;
    private final Map<String, List<Double>> progress = new ConcurrentHashMap<>();
    private final AtomicInteger tokens = new AtomicInteger();

    Walk(Peer.Json job) {
        this.job = job;
    }

    void run() throws Exception {
        var report = Peer.object("revision", "", "server", "", "tools", List.of(), "failure", "");
        var outcomes = new LinkedHashMap<String, Object>();
        report.put("outcomes", outcomes);
        var client = McpClient.sync(Way.to(job))
                .clientInfo(new McpSchema.Implementation("interop", "1"))
                .requestTimeout(Duration.ofSeconds(30))
                .progressConsumer(this::note)
                .build();
        try (client) {
            var about = client.initialize();
            report.put("revision", about.protocolVersion());
            report.put("server", about.serverInfo().name());
            report.put("tools", client.listTools().tools().stream().map(McpSchema.Tool::name).toList());
            for (var step : job.at("steps").all()) {
                outcomes.put(step.at("name").text(), take(client, step));
            }
            if (job.at("ping").isTrue()) {
                client.ping();
            }
            client.closeGracefully();
        } catch (Exception e) {
            report.put("failure", Peer.trace(e));
        }
        System.out.print(Peer.MAPPER.writeValueAsString(report));
        System.out.flush();
    }

    private void note(McpSchema.ProgressNotification notification) {
        progress.computeIfAbsent(String.valueOf(notification.progressToken()), t -> Collections.synchronizedList(new ArrayList<>())).add(notification.progress());
    }

    private Map<String, Object> take(McpSyncClient client, Peer.Json step) {
        int parallel = step.at("parallel").number();
        if (parallel == 0) {
            return call(client, step);
        }
        var pool = Executors.newFixedThreadPool(parallel);
        var calls = new ArrayList<CompletableFuture<Map<String, Object>>>();
        for (int i = 0; i < parallel; i++) {
            calls.add(CompletableFuture.supplyAsync(() -> call(client, step), pool));
        }
        var all = calls.stream().map(CompletableFuture::join).toList();
        pool.shutdown();
        var first = all.get(0);
        first.put("agreeing", all.stream().filter(o -> o.get("text").equals(first.get("text")) && o.get("code").equals(first.get("code"))).count());
        return first;
    }

    private Map<String, Object> call(McpSyncClient client, Peer.Json step) {
        var outcome = Peer.object("text", "", "isError", false, "code", 0, "message", "", "cancelled", false, "progress", List.of());
        var token = "walk-" + tokens.incrementAndGet();
        var meta = step.at("progress").value() == null ? null : Peer.object("progressToken", token);
        try {
            var result = Peer.json(client.callTool(
                    Peer.of(McpSchema.CallToolRequest.class, "name", step.at("tool"), "arguments", step.at("args"), "_meta", meta)));
            var content = result.at("content").all();
            outcome.put("text", content.isEmpty() ? "" : content.get(0).at("text").text());
            outcome.put("isError", result.at("isError").isTrue());
            if (result.at("structuredContent").value() != null) {
                outcome.put("structured", result.at("structuredContent").value());
            }
        } catch (RuntimeException e) {
            var error = Way.errorOf(e);
            outcome.put("code", error == null ? 0 : error.getJsonRpcError().code());
            outcome.put("message", error == null ? String.valueOf(e) : error.getJsonRpcError().message());
        }
        if (meta != null) {
            outcome.put("progress", progressOf(token));
        }
        return outcome;
    }

    // The SDK delivers notifications concurrently, so their order is random and one may come after
    // the result. So this waits up to 5 s until all before the last one have arrived.
    private List<Double> progressOf(String token) {
        for (int i = 0; ; i++) {
            var seen = List.copyOf(progress.getOrDefault(token, List.of())).stream().sorted().toList();
            if (i == 5_000 || !seen.isEmpty() && seen.get(seen.size() - 1) == seen.size()) {
                return seen;
            }
            LockSupport.parkNanos(1_000_000);
        }
    }
}

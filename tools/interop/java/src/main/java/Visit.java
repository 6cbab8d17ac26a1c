import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.spec.McpSchema;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;

/**
 * A guest that visits the everything server. The job has the server and the features that the guest
 * supports. The guest prints its report as JSON. See guest_test.go for both. The SDK has neither
 * tasks nor cancellation.
 */
final class Visit {

    private final Peer.Json job;
    private final List<String> questions = Collections.synchronizedList(new ArrayList<>());
    private final List<String> log = Collections.synchronizedList(new ArrayList<>());
    private final List<String> events = Collections.synchronizedList(new ArrayList<>());
    private final List<String> progress = Collections.synchronizedList(new ArrayList<>());
    private final Map<String, Object> report = Peer.object("tasks", Map.of(), "failure", "");
    private McpSyncClient client;

    Visit(Peer.Json job) {
        this.job = job;
    }

    private boolean able(String what) {
        return job.at("able").at(what).isTrue();
    }

    private String word(String name) {
        return job.at("words").at(name).text();
    }

    void run() throws Exception {
        var spec = McpClient.sync(Way.to(job))
                .clientInfo(new McpSchema.Implementation("interop", "1"))
                .requestTimeout(Duration.ofSeconds(30))
                .progressConsumer(p -> progress.add("progress " + p.progress().intValue()))
                .loggingConsumer(m -> log.add(m.level().name().toLowerCase() + " " + m.logger() + " " + m.data()))
                .toolsChangeConsumer(tools -> events.add("tools changed"))
                .resourcesUpdateConsumer(contents -> contents.forEach(c -> events.add("updated " + c.uri())));
        var capabilities = Peer.object("sampling", Map.of(), "roots", Map.of());
        if (able("elicit")) {
            capabilities.put("elicitation", able("visit") ? Peer.object("form", Map.of(), "url", Map.of()) : Map.of());
            spec.elicitation(this::elicit);
        }
        if (able("visit")) {
            spec.urlElicitation(request -> {
                questions.add("visit " + request.url() + ": " + request.message());
                return Peer.of(McpSchema.ElicitResult.class, "action", "accept");
            });
        }
        spec.sampling(this::sample);
        spec.roots(Peer.of(McpSchema.Root.class, "uri", "file:///projects/a", "name", "Project A"), Peer.of(McpSchema.Root.class, "uri", "file:///projects/b"));
        spec.capabilities(Peer.MAPPER.convertValue(capabilities, McpSchema.ClientCapabilities.class));
        try (var connected = spec.build()) {
            client = connected;
            visit();
            client.closeGracefully();
        } catch (Exception e) {
            report.put("failure", Peer.trace(e));
        }
        System.out.print(Peer.MAPPER.writeValueAsString(report));
        System.out.flush();
    }

    private McpSchema.ElicitResult elicit(McpSchema.ElicitFormRequest request) {
        var properties = Peer.json(request).at("requestedSchema").at("properties");
        questions.add("form name:" + properties.at("name").at("type").text() + " age:" + properties.at("age").at("type").text() + ": " + request.message());
        return Peer.of(McpSchema.ElicitResult.class, "action", "accept", "content", Peer.object("name", "Ada", "age", 36));
    }

    private McpSchema.CreateMessageResult sample(McpSchema.CreateMessageRequest request) {
        var params = Peer.json(request);
        var first = params.at("messages").all().get(0);
        questions.add("sample " + first.at("role").text() + " up to " + params.at("maxTokens").text() + ": " + first.at("content").at("text").text());
        return Peer.of(McpSchema.CreateMessageResult.class, "role", "assistant", "model", "test-model", "stopReason", "endTurn",
                "content", Peer.object("type", "text", "text", "hello"));
    }

    private void visit() throws Exception {
        var about = client.initialize();
        report.put("revision", about.protocolVersion());
        report.put("server", about.serverInfo().name());
        report.put("instructions", about.instructions());
        report.put("tools", client.listTools().tools().stream().map(McpSchema.Tool::name).sorted().toList());
        report.put("resources", client.listResources().resources().stream().map(McpSchema.Resource::uri).sorted().toList());
        report.put("templates", client.listResourceTemplates().resourceTemplates().stream().map(McpSchema.ResourceTemplate::uriTemplate).sorted().toList());
        report.put("prompts", client.listPrompts().prompts().stream().map(McpSchema.Prompt::name).sorted().toList());
        read();
        slow();
        answer();
        if (able("log")) {
            client.setLoggingLevel(McpSchema.LoggingLevel.INFO);
            text("log");
            until(log, 2);
        }
        report.put("log", List.copyOf(log).stream().sorted(Comparator.reverseOrder()).toList());
        report.put("questions", List.copyOf(questions));
        if (able("subscribe")) {
            client.subscribeResource(Peer.of(McpSchema.SubscribeRequest.class, "uri", word("greetingURI")));
            text("touch", "uri", "test://a");
            text("touch", "uri", word("greetingURI"));
            until(events, 1);
            text("extend");
            until(events, 2);
        }
        report.put("events", List.copyOf(events));
    }

    private String text(String tool, Object... args) {
        return call(Peer.object("name", tool, "arguments", Peer.object(args)));
    }

    private String call(Map<String, Object> params) {
        var result = Peer.json(client.callTool(Peer.MAPPER.convertValue(params, McpSchema.CallToolRequest.class)));
        var text = result.at("content").all().get(0).at("text").text();
        if (result.at("isError").isTrue()) {
            throw new IllegalStateException(params.get("name") + ": " + text);
        }
        return text;
    }

    /** Waits until notes has length elements. */
    private static void until(List<String> notes, int length) throws InterruptedException {
        for (int i = 0; notes.size() < length; i++) {
            if (i == 20_000) {
                throw new IllegalStateException("timeout: want " + length + " elements in " + notes);
            }
            Thread.sleep(1);
        }
    }

    private String contents(String uri) {
        var first = Peer.json(client.readResource(Peer.of(McpSchema.ReadResourceRequest.class, "uri", uri))).at("contents").all().get(0);
        return first.at("mimeType").text() + " " + (first.at("text").value() == null ? first.at("blob") : first.at("text")).text();
    }

    private List<String> lines(String name, Map<String, Object> args) {
        var result = Peer.json(client.getPrompt(Peer.of(McpSchema.GetPromptRequest.class, "name", name, "arguments", args)));
        return result.at("messages").all().stream().map(m -> m.at("role").text() + ": " + m.at("content").at("text").text()).toList();
    }

    private static int code(Runnable call) {
        try {
            call.run();
            return 0;
        } catch (RuntimeException e) {
            var error = Way.errorOf(e);
            return error == null ? 0 : error.getJsonRpcError().code();
        }
    }

    private List<String> complete(Map<String, Object> ref, String name, String value, Map<String, Object> known) {
        var context = known == null ? null : Peer.object("arguments", known);
        var request = Peer.of(McpSchema.CompleteRequest.class, "ref", ref, "argument", Peer.object("name", name, "value", value), "context", context);
        return Peer.json(client.completeCompletion(request)).at("completion").at("values").texts();
    }

    private void read() {
        var read = Peer.object();
        for (var uri : List.of(word("greetingURI"), word("itemURI"), word("logoURI"))) {
            read.put(uri, contents(uri));
        }
        report.put("read", read);
        report.put("prompt", lines("greet", Peer.object("name", "Ada", "style", "formal")));
        report.put("codes", Peer.object(
                "missing resource", code(() -> contents(word("missingItem"))),
                "missing argument", code(() -> lines("greet", null)),
                "unknown prompt", code(() -> lines("no_such_prompt", null))));
        var greet = Peer.object("type", "ref/prompt", "name", "greet");
        var completion = Peer.object(
                "style", complete(greet, "style", "f", null),
                "id", complete(Peer.object("type", "ref/resource", "uri", word("itemTemplate")), "id", "1", null),
                "name", complete(greet, "name", "", null));
        if (able("context")) {
            completion.put("name, formal", complete(greet, "name", "", Peer.object("style", "formal")));
        }
        report.put("completion", completion);
    }

    /** Makes a call of the tool slow. The SDK cannot cancel calls. */
    private void slow() throws InterruptedException {
        var done = call(Peer.object("name", "slow", "arguments", Peer.object("steps", 3, "delay_ms", 20), "_meta", Peer.object("progressToken", "visit")));
        until(progress, 3);
        // The SDK delivers notifications concurrently, so their order is random.
        var seen = List.copyOf(progress).stream().sorted().toList();
        report.put("slow", List.of(done, seen.get(0), seen.get(1)));
    }

    private void answer() {
        var answers = Peer.object();
        if (able("elicit")) {
            answers.put("ask", text("ask"));
            answers.put("asked prompt", String.join(", ", lines("asked", null)));
            answers.put("asked resource", contents(word("askedURI")));
        }
        for (var tool : List.of("visit", "sample", "roots")) {
            if (able(tool)) {
                answers.put(tool, text(tool));
            }
        }
        report.put("answers", answers);
    }
}

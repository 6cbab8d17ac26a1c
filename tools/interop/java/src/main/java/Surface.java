import static java.util.stream.Collectors.joining;

import io.modelcontextprotocol.server.McpServer;
import io.modelcontextprotocol.server.McpServerFeatures.SyncCompletionSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncPromptSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncResourceSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncResourceTemplateSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncToolSpecification;
import io.modelcontextprotocol.server.McpSyncServer;
import io.modelcontextprotocol.server.McpSyncServerExchange;
import io.modelcontextprotocol.server.transport.HttpServletStreamableServerTransportProvider;
import io.modelcontextprotocol.server.transport.StdioServerTransportProvider;
import io.modelcontextprotocol.spec.McpError;
import io.modelcontextprotocol.spec.McpSchema;
import io.modelcontextprotocol.spec.McpSchema.CallToolRequest;
import io.modelcontextprotocol.spec.McpSchema.CallToolResult;
import io.modelcontextprotocol.spec.McpSchema.ReadResourceResult;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.stream.Stream;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * A server with the tools, resources and prompts of surface_test.go. Its input has the texts of
 * that file. If the member "listen" is set, it listens on a free loopback port and writes its URL
 * to standard error. It exits at the end of standard input.
 */
final class Surface {

    private final Peer.Json words;
    private McpSyncServer server;

    Surface(Peer.Json words) {
        this.words = words;
    }

    private String word(String name) {
        return words.at(name).text();
    }

    void run() throws Exception {
        if (words.at("listen").isTrue()) {
            listen();
            System.in.readAllBytes();
            return;
        }
        // The SDK does not report the end of its input.
        var ended = new EndNoticed(System.in);
        server = offer(McpServer.sync(new StdioServerTransportProvider(Peer.MAPPER, ended, System.out))).build();
        ended.await();
        server.closeGracefully();
    }

    private void listen() throws Exception {
        var transport = HttpServletStreamableServerTransportProvider.builder().mcpEndpoint("/mcp").build();
        server = offer(McpServer.sync(transport)).build();
        var http = new Server();
        var connector = new ServerConnector(http);
        connector.setHost("127.0.0.1");
        http.addConnector(connector);
        var context = new ServletContextHandler("/");
        var holder = new ServletHolder(transport);
        holder.setAsyncSupported(true);
        context.addServlet(holder, "/*");
        http.setHandler(context);
        http.start();
        System.err.println("listening url=http://127.0.0.1:" + connector.getLocalPort());
    }

    private <S extends McpServer.SyncSpecification<S>> McpServer.SyncSpecification<S> offer(McpServer.SyncSpecification<S> spec) {
        return spec.serverInfo("java", "1.0.0")
                .instructions(word("instructions"))
                .capabilities(McpSchema.ServerCapabilities.builder().completions().logging().prompts(true).resources(true, true).tools(true).build())
                .tools(tools())
                .resources(resources())
                .resourceTemplates(new SyncResourceTemplateSpecification(
                        Peer.of(McpSchema.ResourceTemplate.class, "uriTemplate", word("itemTemplate"), "name", "items", "mimeType", "text/plain"),
                        (exchange, request) -> item(request.uri())))
                .prompts(prompts())
                .completions(
                        new SyncCompletionSpecification(Peer.of(McpSchema.PromptReference.class, "type", "ref/prompt", "name", "greet"), (e, r) -> complete(r)),
                        new SyncCompletionSpecification(
                                Peer.of(McpSchema.ResourceReference.class, "type", "ref/resource", "uri", word("itemTemplate")), (e, r) -> complete(r)));
    }

    private interface Handler extends BiFunction<McpSyncServerExchange, CallToolRequest, CallToolResult> {}

    private static Map<String, Object> schema(String type, String... names) {
        var properties = Peer.object();
        for (var name : names) {
            properties.put(name, Peer.object("type", type));
        }
        return Peer.object("type", "object", "properties", properties, "required", List.of(names));
    }

    private static SyncToolSpecification tool(String name, Map<String, Object> schema, Handler handler) {
        return new SyncToolSpecification(Peer.of(McpSchema.Tool.class, "name", name, "inputSchema", schema), handler);
    }

    private static CallToolResult text(String text) {
        return Peer.of(CallToolResult.class, "content", List.of(Peer.object("type", "text", "text", text)));
    }

    private List<SyncToolSpecification> tools() {
        var none = schema("string");
        var all = new ArrayList<SyncToolSpecification>();
        all.add(tool("echo", schema("string", "text"), (e, r) -> text(argument(r, "text"))));
        all.add(new SyncToolSpecification(
                Peer.of(McpSchema.Tool.class, "name", "sum", "inputSchema", schema("integer", "a", "b"), "outputSchema", schema("integer", "sum"),
                        "annotations", Peer.object("readOnlyHint", true)),
                (e, r) -> sum(r)));
        all.add(tool("fail", schema("string", "message"), (e, r) -> Peer.of(CallToolResult.class,
                "content", List.of(Peer.object("type", "text", "text", argument(r, "message"))), "isError", true)));
        all.add(tool("slow", schema("integer", "steps", "delay_ms"), this::slow));
        all.add(tool("cancelled", none, (e, r) -> text("nothing was cancelled")));
        all.add(tool("log", none, this::log));
        all.add(tool("media", none, (e, r) -> media()));
        all.add(tool("crash", none, (e, r) -> {
            Runtime.getRuntime().halt(words.at("crashStatus").number());
            return null;
        }));
        all.add(tool("extend", none, (e, r) -> {
            server.addTool(tool("extra", none, (x, y) -> text("extra")));
            return text("extended");
        }));
        all.add(tool("touch", schema("string", "uri"), (e, r) -> {
            server.notifyResourcesUpdated(Peer.of(McpSchema.ResourcesUpdatedNotification.class, "uri", argument(r, "uri")));
            return text("touched");
        }));
        all.add(tool("ask", none, (e, r) -> text(ask(e))));
        all.add(tool("visit", none, (e, r) -> text(Peer.json(e.createElicitation(
                McpSchema.ElicitUrlRequest.builder(word("visitMessage"), word("visitURL"), "visit").build())).at("action").text())));
        all.add(tool("sample", none, (e, r) -> sample(e)));
        all.add(tool("roots", none, (e, r) -> text(e.listRoots().roots().stream()
                .map(root -> Stream.of(root.uri(), root.name()).filter(s -> s != null).collect(joining(" "))).collect(joining(", ")))));
        return all;
    }

    private static String argument(CallToolRequest request, String name) {
        return String.valueOf(request.arguments().get(name));
    }

    private static CallToolResult sum(CallToolRequest request) {
        var args = new Peer.Json(request.arguments());
        var sum = Peer.object("sum", args.at("a").number() + args.at("b").number());
        return Peer.of(CallToolResult.class, "content", List.of(Peer.object("type", "text", "text", "{\"sum\":" + sum.get("sum") + "}")), "structuredContent", sum);
    }

    private CallToolResult slow(McpSyncServerExchange exchange, CallToolRequest request) {
        var args = new Peer.Json(request.arguments());
        var token = request.meta() == null ? null : request.meta().get("progressToken");
        int steps = args.at("steps").number();
        for (int i = 1; i <= steps; i++) {
            try {
                Thread.sleep(args.at("delay_ms").number());
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            if (token != null) {
                exchange.progressNotification(new McpSchema.ProgressNotification(token, i, (double) steps, "a step"));
            }
        }
        return text("done after " + steps + " steps");
    }

    private CallToolResult log(McpSyncServerExchange exchange, CallToolRequest request) {
        for (var message : words.at("logged").all()) {
            exchange.loggingNotification(Peer.of(McpSchema.LoggingMessageNotification.class,
                    "level", message.at("level"), "logger", "surface", "data", message.at("text")));
        }
        return text("logged");
    }

    private Map<String, Object> greeting() {
        return Peer.object("uri", word("greetingURI"), "mimeType", "text/plain", "text", word("greetingText"));
    }

    private CallToolResult media() {
        return Peer.of(CallToolResult.class, "content", List.of(
                Peer.object("type", "text", "text", "text"),
                Peer.object("type", "image", "data", word("pixel"), "mimeType", "image/png"),
                Peer.object("type", "audio", "data", word("pixel"), "mimeType", "audio/wav"),
                Peer.object("type", "resource_link", "uri", word("greetingURI"), "name", "greeting"),
                Peer.object("type", "resource", "resource", greeting())));
    }

    @SuppressWarnings("unchecked")
    private String ask(McpSyncServerExchange exchange) {
        var form = McpSchema.ElicitRequest.builder(word("askMessage"), (Map<String, Object>) words.at("askSchema").value()).build();
        var answer = Peer.json(exchange.createElicitation(form));
        if (!answer.at("action").text().equals("accept")) {
            return answer.at("action").text();
        }
        return "accept " + answer.at("content").at("name").text() + " " + answer.at("content").at("age").text();
    }

    private CallToolResult sample(McpSyncServerExchange exchange) {
        var message = Peer.object("role", "user", "content", Peer.object("type", "text", "text", word("sampleText")));
        var answer = Peer.json(exchange.createMessage(Peer.of(McpSchema.CreateMessageRequest.class, "messages", List.of(message), "maxTokens", 50)));
        return text(answer.at("content").at("text").text() + " by " + answer.at("model").text());
    }

    private static ReadResourceResult contents(Map<String, Object> contents) {
        return Peer.of(ReadResourceResult.class, "contents", List.of(contents));
    }

    private SyncResourceSpecification resource(String uri, String name, String type, BiFunction<McpSyncServerExchange, McpSchema.ReadResourceRequest, ReadResourceResult> read) {
        return new SyncResourceSpecification(Peer.of(McpSchema.Resource.class, "uri", uri, "name", name, "mimeType", type), read);
    }

    private List<SyncResourceSpecification> resources() {
        var all = new ArrayList<SyncResourceSpecification>();
        for (var uri : List.of("test://a", "test://b", "test://c")) {
            all.add(resource(uri, uri, null, (e, r) -> contents(Peer.object("uri", uri, "text", "the resource " + uri))));
        }
        all.add(resource(word("greetingURI"), "greeting", "text/plain", (e, r) -> contents(greeting())));
        all.add(resource(word("logoURI"), "logo", "image/png",
                (e, r) -> contents(Peer.object("uri", word("logoURI"), "mimeType", "image/png", "blob", word("logo")))));
        all.add(resource(word("askedURI"), "asked", null, (e, r) -> contents(Peer.object("uri", word("askedURI"), "text", ask(e)))));
        return all;
    }

    private ReadResourceResult item(String uri) {
        var id = uri.substring(word("itemTemplate").length() - "{id}".length());
        if (id.equals("none")) {
            throw McpError.RESOURCE_NOT_FOUND.apply(uri);
        }
        return contents(Peer.object("uri", uri, "mimeType", "text/plain", "text", "item " + id));
    }

    private static McpSchema.GetPromptResult messages(Object... messages) {
        return Peer.of(McpSchema.GetPromptResult.class, "messages", List.of(messages));
    }

    private static Map<String, Object> message(String role, String text) {
        return Peer.object("role", role, "content", Peer.object("type", "text", "text", text));
    }

    private List<SyncPromptSpecification> prompts() {
        var arguments = List.of(Peer.object("name", "name", "required", true), Peer.object("name", "style"));
        return List.of(
                new SyncPromptSpecification(Peer.of(McpSchema.Prompt.class, "name", "asked"), (e, r) -> messages(message("user", ask(e)))),
                new SyncPromptSpecification(Peer.of(McpSchema.Prompt.class, "name", "greet", "arguments", arguments), (e, r) -> greet(r)),
                new SyncPromptSpecification(Peer.of(McpSchema.Prompt.class, "name", "review"),
                        (e, r) -> messages(Peer.object("role", "user", "content", Peer.object("type", "resource", "resource", greeting())))));
    }

    private static McpSchema.GetPromptResult greet(McpSchema.GetPromptRequest request) {
        var args = new Peer.Json(request.arguments());
        if (args.at("name").value() == null) {
            throw McpError.builder(McpSchema.ErrorCodes.INVALID_PARAMS).message("name is missing").build();
        }
        var style = args.at("style").value() == null ? "friendly" : args.at("style").text();
        return messages(message("user", "Greet " + args.at("name").text() + " in a " + style + " way."),
                message("assistant", "Hello, " + args.at("name").text() + "!"));
    }

    private McpSchema.CompleteResult complete(McpSchema.CompleteRequest request) {
        var params = Peer.json(request);
        var formal = params.at("context").at("arguments").at("style").text().equals("formal");
        var all = switch (params.at("argument").at("name").text()) {
            case "style" -> words.at("styles");
            case "name" -> words.at(formal ? "formalNames" : "names");
            default -> words.at("items");
        };
        var values = all.texts().stream().filter(v -> v.startsWith(params.at("argument").at("value").text())).toList();
        return Peer.of(McpSchema.CompleteResult.class, "completion", Peer.object("values", values));
    }
}

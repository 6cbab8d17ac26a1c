import io.modelcontextprotocol.client.transport.HttpClientSseClientTransport;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.spec.McpClientTransport;
import io.modelcontextprotocol.spec.McpError;
import java.net.URI;
import java.util.List;

/** The common parts of the clients: the transport to the server, and errors. */
final class Way {

    /** Returns a transport to the job's server. */
    static McpClientTransport to(Peer.Json job) {
        var url = job.at("url").text();
        if (url.isEmpty()) {
            var server = ServerParameters.builder(job.at("command").text()).args(job.at("args").texts()).env(System.getenv()).build();
            var transport = new StdioClientTransport(server, Peer.MAPPER);
            transport.setStdErrorHandler(System.err::println);
            return transport;
        }
        var uri = URI.create(url);
        var base = uri.getScheme() + "://" + uri.getAuthority();
        if (job.at("old").isTrue()) {
            return HttpClientSseClientTransport.builder(base).sseEndpoint(uri.getPath()).build();
        }
        var http = HttpClientStreamableHttpTransport.builder(base).endpoint(uri.getPath());
        // The transport sends the latest supported revision when it opens the stream of GET, not
        // the negotiated one.
        if (!job.at("ask").text().isEmpty()) {
            http.supportedProtocolVersions(List.of(job.at("ask").text()));
        }
        return http.build();
    }

    /** Returns the JSON-RPC error that caused an exception, or null. */
    static McpError errorOf(Throwable failure) {
        for (var cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof McpError error && error.getJsonRpcError() != null) {
                return error;
            }
        }
        return null;
    }

    private Way() {}
}

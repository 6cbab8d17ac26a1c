//! A server with the tools, resources and prompts of surface_test.go. Its input has the texts of
//! that file. If the member "listen" is set, it listens on a free loopback port, writes its URL to
//! standard error, and exits at the end of standard input. Otherwise it serves standard input and
//! output.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, LazyLock, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::*,
    service::{Peer, RequestContext, SubscriptionContext, SubscriptionSink},
    transport::{
        stdio,
        streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager},
    },
};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, sync::Notify};

use crate::{MODERN, json as to_json, of};

static WORDS: OnceLock<Value> = OnceLock::new();
static EXTENDED: AtomicBool = AtomicBool::new(false);
static CANCELLED: AtomicUsize = AtomicUsize::new(0);
static NOTICED: LazyLock<Notify> = LazyLock::new(Notify::new);
/// The listen streams of modern clients.
static SINKS: LazyLock<Mutex<HashMap<String, SubscriptionSink>>> = LazyLock::new(Mutex::default);
/// The number of listen streams that rmcp acknowledges but that are not in SINKS yet, because rmcp
/// calls the handler later. Notifications wait for them, since their clients rely on the
/// acknowledgment.
static OPENING: AtomicUsize = AtomicUsize::new(0);
/// The legacy sessions.
static SESSIONS: LazyLock<Mutex<Vec<Arc<Session>>>> = LazyLock::new(Mutex::default);

const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

fn words(name: &str) -> &'static Value {
    &WORDS.get().expect("set by run")[name]
}

fn word(name: &str) -> &'static str {
    words(name).as_str().expect("a text")
}

/// The log level and the subscriptions of a legacy session.
#[derive(Default)]
struct Session {
    peer: Mutex<Option<Peer<RoleServer>>>,
    level: Mutex<usize>,
    subscribed: Mutex<HashSet<String>>,
}

/// The server of a session, or of a request.
struct Surface {
    session: Arc<Session>,
}

impl Surface {
    fn new() -> Self {
        Surface { session: Arc::default() }
    }
}

type Context = RequestContext<RoleServer>;

fn modern(ctx: &Context) -> bool {
    ctx.protocol_version().is_some_and(|v| v.as_str() >= MODERN)
}

fn text(value: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": value.into()}]})
}

fn failed(value: &str) -> Value {
    json!({"content": [{"type": "text", "text": value}], "isError": true})
}

fn greeting() -> Value {
    json!({"uri": word("greetingURI"), "mimeType": "text/plain", "text": word("greetingText")})
}

/// Makes a result. The SDK removes resultType for legacy clients.
fn complete<T: serde::de::DeserializeOwned>(mut result: Value) -> T {
    result["resultType"] = json!("complete");
    of(result)
}

/// A response, or the input request that the handler must return.
type Outcome = Result<Value, InputRequiredResult>;

/// Sends an input request: as a request in the legacy era, in a result in the modern era.
async fn ask(ctx: &Context, answers: &Option<InputResponses>, state: &Option<String>, request: Value) -> Result<Outcome, ErrorData> {
    if modern(ctx) {
        let Some(answer) = answers.as_ref().and_then(|a| a.get("question")) else {
            let requests = HashMap::from([("question".to_string(), request)]);
            return Ok(Err(InputRequiredResult::new(Some(of(to_json(requests))), Some(word("state").to_string()))));
        };
        if state.as_deref() != Some(word("state")) {
            return Err(ErrorData::invalid_params(format!("requestState came back as {state:?}"), None));
        }
        return Ok(Ok(answer.clone()));
    }
    let failed = |e: rmcp::ServiceError| ErrorData::internal_error(e.to_string(), None);
    let params = request["params"].clone();
    Ok(Ok(match request["method"].as_str() {
        Some("elicitation/create") => to_json(ctx.peer.create_elicitation(of(params)).await.map_err(failed)?),
        Some("sampling/createMessage") => to_json(ctx.peer.create_message(of(params)).await.map_err(failed)?),
        _ => to_json(ctx.peer.list_roots().await.map_err(failed)?),
    }))
}

fn form() -> Value {
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": word("askMessage"), "requestedSchema": words("askSchema")}})
}

fn asked(answer: &Value) -> String {
    match answer["action"].as_str() {
        Some("accept") => format!("accept {} {}", answer["content"]["name"].as_str().unwrap_or(""), answer["content"]["age"]),
        other => other.unwrap_or("").to_string(),
    }
}

async fn slow(ctx: &Context, args: &Value) -> Value {
    let steps = args["steps"].as_u64().unwrap_or(0);
    let delay = Duration::from_millis(args["delay_ms"].as_u64().unwrap_or(0));
    for step in 1..=steps {
        tokio::select! {
            _ = tokio::time::sleep(delay) => {}
            _ = ctx.ct.cancelled() => {
                CANCELLED.fetch_add(1, Ordering::SeqCst);
                NOTICED.notify_one();
                return failed("canceled");
            }
        }
        if let Some(token) = ctx.meta.get_progress_token() {
            let params = json!({"progressToken": token, "progress": step, "total": steps, "message": "a step"});
            let _ = ctx.peer.notify_progress(of(params)).await;
        }
    }
    text(format!("done after {steps} steps"))
}

async fn cancelled() -> Value {
    // A notification may belong to a cancellation that an earlier call has reported.
    let _ = tokio::time::timeout(Duration::from_secs(10), async {
        while CANCELLED.load(Ordering::SeqCst) == 0 {
            NOTICED.notified().await;
        }
    })
    .await;
    match CANCELLED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) {
        Ok(_) => text("cancelled"),
        Err(_) => text("nothing was cancelled"),
    }
}

impl Surface {
    async fn log(&self, ctx: &Context) -> Value {
        let least = if modern(ctx) {
            let asked = to_json(&ctx.meta)["io.modelcontextprotocol/logLevel"].as_str().map(String::from);
            asked.map_or(LEVELS.len(), |level| LEVELS.iter().position(|l| *l == level).unwrap_or(LEVELS.len()))
        } else {
            *self.session.level.lock().unwrap()
        };
        for message in words("logged").as_array().unwrap() {
            let level = message["level"].as_str().unwrap();
            if LEVELS.iter().position(|l| *l == level).unwrap() >= least {
                let params = json!({"level": level, "logger": "surface", "data": message["text"]});
                let _ = ctx.peer.notify_logging_message(of(params)).await;
            }
        }
        text("logged")
    }

    async fn question(&self, ctx: &Context, params: &CallToolRequestParams) -> Result<Outcome, ErrorData> {
        let request = match params.name.as_ref() {
            "ask" => form(),
            "visit" => {
                let mut about = json!({"mode": "url", "message": word("visitMessage"), "url": word("visitURL")});
                if !modern(ctx) {
                    about["elicitationId"] = json!("visit");
                }
                json!({"method": "elicitation/create", "params": about})
            }
            "sample" => json!({"method": "sampling/createMessage", "params": {
                "messages": [{"role": "user", "content": {"type": "text", "text": word("sampleText")}}], "maxTokens": 50}}),
            _ => json!({"method": "roots/list"}),
        };
        let answer = match ask(ctx, &params.input_responses, &params.request_state, request).await? {
            Ok(answer) => answer,
            Err(required) => return Ok(Err(required)),
        };
        Ok(Ok(text(match params.name.as_ref() {
            "ask" => asked(&answer),
            "visit" => answer["action"].as_str().unwrap_or("").to_string(),
            "sample" => format!("{} by {}", answer["content"]["text"].as_str().unwrap_or(""), answer["model"].as_str().unwrap_or("")),
            _ => {
                let all: Vec<String> = answer["roots"].as_array().unwrap().iter().map(|root| {
                    let parts = [&root["uri"], &root["name"]];
                    parts.iter().filter_map(|p| p.as_str()).collect::<Vec<_>>().join(" ")
                }).collect();
                all.join(", ")
            }
        })))
    }
}

/// Adds the tool extra and announces it to subscribed modern clients and to legacy clients.
async fn extend() -> Value {
    opened().await;
    EXTENDED.store(true, Ordering::SeqCst);
    let sinks: Vec<_> = SINKS.lock().unwrap().values().cloned().collect();
    for sink in sinks.iter().filter(|s| s.accepted().tools_list_changed == Some(true)) {
        let _ = sink.notify_tool_list_changed().await;
    }
    for peer in legacy_peers(|_| true) {
        let _ = peer.notify_tool_list_changed().await;
    }
    text("extended")
}

/// Waits up to two seconds until all opening streams are in SINKS.
async fn opened() {
    for _ in 0..200 {
        if OPENING.load(Ordering::SeqCst) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn touch(uri: &str) -> Value {
    opened().await;
    let sinks: Vec<_> = SINKS.lock().unwrap().values().cloned().collect();
    for sink in sinks.iter().filter(|s| to_json(s.accepted())["resourceSubscriptions"].as_array().is_some_and(|all| all.iter().any(|u| *u == uri))) {
        let _ = sink.notify_resource_updated(uri).await;
    }
    for peer in legacy_peers(|s| s.subscribed.lock().unwrap().contains(uri)) {
        let _ = peer.notify_resource_updated(of(json!({"uri": uri}))).await;
    }
    text("touched")
}

fn legacy_peers(wanted: impl Fn(&Session) -> bool) -> Vec<Peer<RoleServer>> {
    let sessions = SESSIONS.lock().unwrap();
    sessions.iter().filter(|s| wanted(s)).filter_map(|s| s.peer.lock().unwrap().clone()).collect()
}

fn schema(properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
    json!({"type": "object", "required": required, "properties": properties})
}

fn tools() -> Vec<Value> {
    let (string, integer) = (json!({"type": "string"}), json!({"type": "integer"}));
    let mut all: Vec<Value> = ["ask", "cancelled", "crash", "extend", "log", "media", "roots", "sample", "visit"]
        .iter()
        .map(|name| json!({"name": name, "inputSchema": schema(json!({}))}))
        .collect();
    all.push(json!({"name": "echo", "inputSchema": schema(json!({"text": string}))}));
    all.push(json!({"name": "fail", "inputSchema": schema(json!({"message": string}))}));
    all.push(json!({"name": "touch", "inputSchema": schema(json!({"uri": string}))}));
    all.push(json!({"name": "slow", "inputSchema": schema(json!({"steps": integer, "delay_ms": integer}))}));
    all.push(json!({"name": "sum", "inputSchema": schema(json!({"a": integer, "b": integer})),
        "outputSchema": schema(json!({"sum": integer})), "annotations": {"readOnlyHint": true}}));
    if EXTENDED.load(Ordering::SeqCst) {
        all.push(json!({"name": "extra", "inputSchema": schema(json!({}))}));
    }
    all
}

fn resources() -> Vec<Value> {
    vec![
        json!({"uri": "test://a", "name": "test://a"}),
        json!({"uri": "test://b", "name": "test://b"}),
        json!({"uri": "test://c", "name": "test://c"}),
        json!({"uri": word("greetingURI"), "name": "greeting", "mimeType": "text/plain"}),
        json!({"uri": word("logoURI"), "name": "logo", "mimeType": "image/png"}),
        json!({"uri": word("askedURI"), "name": "asked"}),
    ]
}

impl ServerHandler for Surface {
    fn get_info(&self) -> ServerConfig {
        of(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "logging": {}, "completions": {}, "prompts": {"listChanged": true},
                "resources": {"subscribe": true, "listChanged": true}, "tools": {"listChanged": true},
            },
            "serverInfo": {"name": "rust", "version": "1.0.0"},
            "instructions": word("instructions"),
        }))
    }

    async fn on_initialized(&self, ctx: rmcp::service::NotificationContext<RoleServer>) {
        *self.session.peer.lock().unwrap() = Some(ctx.peer);
        SESSIONS.lock().unwrap().push(self.session.clone());
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: Context) -> Result<ListToolsResult, ErrorData> {
        Ok(complete(json!({"tools": tools()})))
    }

    async fn call_tool(&self, params: CallToolRequestParams, ctx: Context) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(params.arguments.clone().unwrap_or_default());
        let result = match params.name.as_ref() {
            "echo" => text(args["text"].as_str().unwrap_or("")),
            "sum" => match (args["a"].as_i64(), args["b"].as_i64()) {
                (Some(a), Some(b)) => {
                    let sum = json!({"sum": a + b});
                    json!({"content": [{"type": "text", "text": sum.to_string()}], "structuredContent": sum})
                }
                _ => failed("a and b have to be integers"),
            },
            "fail" => failed(args["message"].as_str().unwrap_or("")),
            "slow" => slow(&ctx, &args).await,
            "cancelled" => cancelled().await,
            "log" => self.log(&ctx).await,
            "media" => json!({"content": [
                {"type": "text", "text": "text"},
                {"type": "image", "data": word("pixel"), "mimeType": "image/png"},
                {"type": "audio", "data": word("pixel"), "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": word("greetingURI"), "name": "greeting"},
                {"type": "resource", "resource": greeting()},
            ]}),
            "crash" => std::process::exit(words("crashStatus").as_i64().unwrap() as i32),
            "extend" => extend().await,
            "extra" if EXTENDED.load(Ordering::SeqCst) => text("extra"),
            "touch" => touch(args["uri"].as_str().unwrap_or("")).await,
            "ask" | "visit" | "sample" | "roots" => match self.question(&ctx, &params).await? {
                Ok(result) => result,
                Err(required) => return Ok(required.into()),
            },
            other => return Err(ErrorData::invalid_params(format!("unknown tool: {other}"), None)),
        };
        Ok(CallToolResponse::Complete(complete(result)))
    }

    async fn list_resources(&self, params: Option<PaginatedRequestParams>, _: Context) -> Result<ListResourcesResult, ErrorData> {
        let from = match params.and_then(|p| p.cursor) {
            None => 0,
            Some(cursor) => cursor.parse().map_err(|_| ErrorData::invalid_params("a cursor that was never given", None))?,
        };
        let all = resources();
        let page: Vec<Value> = all.iter().skip(from).take(2).cloned().collect();
        let mut result = json!({"resources": page});
        if from + 2 < all.len() {
            result["nextCursor"] = json!((from + 2).to_string());
        }
        Ok(complete(result))
    }

    async fn list_resource_templates(&self, _: Option<PaginatedRequestParams>, _: Context) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(complete(json!({"resourceTemplates": [{"uriTemplate": word("itemTemplate"), "name": "items", "mimeType": "text/plain"}]})))
    }

    async fn read_resource(&self, params: ReadResourceRequestParams, ctx: Context) -> Result<ReadResourceResponse, ErrorData> {
        let uri = params.uri.as_str();
        let items = word("itemTemplate").trim_end_matches("{id}");
        let found = match uri {
            "test://a" | "test://b" | "test://c" => json!({"uri": uri, "text": format!("the resource {uri}")}),
            _ if uri == word("greetingURI") => greeting(),
            _ if uri == word("logoURI") => json!({"uri": uri, "mimeType": "image/png", "blob": word("logo")}),
            _ if uri == word("askedURI") => match ask(&ctx, &params.input_responses, &params.request_state, form()).await? {
                Ok(answer) => json!({"uri": uri, "text": asked(&answer)}),
                Err(required) => return Ok(required.into()),
            },
            _ if uri.starts_with(items) && !uri.ends_with("/none") => {
                json!({"uri": uri, "mimeType": "text/plain", "text": format!("item {}", &uri[items.len()..])})
            }
            _ => return Err(ErrorData::resource_not_found(format!("there is no such resource: {uri}"), Some(json!({"uri": uri})))),
        };
        Ok(ReadResourceResponse::Complete(complete(json!({"contents": [found]}))))
    }

    async fn subscribe(&self, params: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        self.session.subscribed.lock().unwrap().insert(params.uri);
        Ok(())
    }

    async fn unsubscribe(&self, params: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        self.session.subscribed.lock().unwrap().remove(&params.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        OPENING.fetch_add(1, Ordering::SeqCst);
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let key = format!("{:p}", &subscription);
        SINKS.lock().unwrap().insert(key.clone(), subscription.sink().clone());
        OPENING.fetch_sub(1, Ordering::SeqCst);
        subscription.cancelled().await;
        SINKS.lock().unwrap().remove(&key);
        Ok(())
    }

    async fn list_prompts(&self, _: Option<PaginatedRequestParams>, _: Context) -> Result<ListPromptsResult, ErrorData> {
        Ok(complete(json!({"prompts": [
            {"name": "asked"},
            {"name": "greet", "arguments": [{"name": "name", "required": true}, {"name": "style"}]},
            {"name": "review"},
        ]})))
    }

    async fn get_prompt(&self, params: GetPromptRequestParams, ctx: Context) -> Result<GetPromptResponse, ErrorData> {
        let args = params.arguments.as_ref().map(to_json).unwrap_or_default();
        let message = |role: &str, text: String| json!({"role": role, "content": {"type": "text", "text": text}});
        let messages = match (params.name.as_str(), args["name"].as_str()) {
            ("asked", _) => match ask(&ctx, &params.input_responses, &params.request_state, form()).await? {
                Ok(answer) => json!([message("user", asked(&answer))]),
                Err(required) => return Ok(required.into()),
            },
            ("greet", Some(name)) => json!([
                message("user", format!("Greet {name} in a {} way.", args["style"].as_str().unwrap_or("friendly"))),
                message("assistant", format!("Hello, {name}!")),
            ]),
            ("review", _) => json!([{"role": "user", "content": {"type": "resource", "resource": greeting()}}]),
            (name, _) => return Err(ErrorData::invalid_params(format!("no prompt {name} with these arguments"), None)),
        };
        Ok(GetPromptResponse::Complete(complete(json!({"messages": messages}))))
    }

    async fn complete(&self, params: CompleteRequestParams, _: Context) -> Result<CompleteResult, ErrorData> {
        let params = to_json(params);
        let (name, value) = (params["argument"]["name"].as_str().unwrap_or(""), params["argument"]["value"].as_str().unwrap_or(""));
        let formal = params["context"]["arguments"]["style"] == "formal";
        let all = match name {
            "style" => words("styles"),
            "name" if formal => words("formalNames"),
            "name" => words("names"),
            _ => words("items"),
        };
        let values: Vec<&Value> = all.as_array().unwrap().iter().filter(|v| v.as_str().unwrap().starts_with(value)).collect();
        Ok(complete(json!({"completion": {"values": values}})))
    }

    async fn set_level(&self, params: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        let level = to_json(params)["level"].clone();
        *self.session.level.lock().unwrap() = LEVELS.iter().position(|l| level == *l).unwrap();
        Ok(())
    }
}

async fn end_of_input() {
    let mut rest = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}

pub async fn run(job: Value) {
    let listen = job["listen"] == true;
    WORDS.set(job).expect("run is called once");
    if !listen {
        let service = Surface::new().serve(stdio()).await.expect("a client that connects");
        let _ = service.waiting().await;
        return;
    }
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(|| Ok(Surface::new()), Arc::new(LocalSessionManager::default()), config);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    eprintln!("listening url=http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().nest_service("/mcp", service);
    tokio::select! {
        _ = async { axum::serve(listener, router).await } => {}
        _ = end_of_input() => std::process::exit(0),
    }
}

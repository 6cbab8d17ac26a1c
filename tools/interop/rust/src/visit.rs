//! A guest that visits the everything server. The job has the server and the features that the
//! guest supports. The guest prints its report as JSON. See guest_test.go for both. The guest has
//! no tasks.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ClientHandler, ErrorData, RoleClient, ServiceError,
    model::*,
    service::{NotificationContext, PeerRequestOptions, RequestContext, RunningService},
};
use serde_json::{Value, json};

use crate::{MODERN, client::connect, json as to_json, of};

type Failure = Box<dyn std::error::Error>;

/// The input requests and notifications that the client's handlers got.
#[derive(Default)]
struct Received {
    questions: Vec<String>,
    log: Vec<String>,
    events: Vec<String>,
    progress: Vec<String>,
}

struct Guest {
    info: ClientConfig,
    received: Arc<Mutex<Received>>,
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

impl ClientHandler for Guest {
    fn get_info(&self) -> ClientConfig {
        self.info.clone()
    }

    async fn create_elicitation(&self, params: ElicitRequestParams, _: RequestContext<RoleClient>) -> Result<ElicitResult, ErrorData> {
        let params = to_json(params);
        let message = text_of(&params["message"]);
        let (question, answer) = if params["mode"] == "url" {
            (format!("visit {}: {message}", text_of(&params["url"])), json!({"action": "accept"}))
        } else {
            let kind = |name: &str| text_of(&params["requestedSchema"]["properties"][name]["type"]);
            (format!("form name:{} age:{}: {message}", kind("name"), kind("age")), json!({"action": "accept", "content": {"name": "Ada", "age": 36}}))
        };
        self.received.lock().unwrap().questions.push(question);
        Ok(of(answer))
    }

    async fn create_message(&self, params: CreateMessageRequestParams, _: RequestContext<RoleClient>) -> Result<CreateMessageResult, ErrorData> {
        let params = to_json(params);
        let first = &params["messages"][0];
        let content = if first["content"].is_array() { &first["content"][0] } else { &first["content"] };
        let question = format!("sample {} up to {}: {}", text_of(&first["role"]), params["maxTokens"], text_of(&content["text"]));
        self.received.lock().unwrap().questions.push(question);
        Ok(of(json!({"role": "assistant", "model": "test-model", "stopReason": "endTurn", "content": {"type": "text", "text": "hello"}})))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(of(json!({"roots": [{"uri": "file:///projects/a", "name": "Project A"}, {"uri": "file:///projects/b"}]})))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.received.lock().unwrap().progress.push(format!("progress {}", params.progress));
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        let params = to_json(params);
        let line = format!("{} {} {}", text_of(&params["level"]), text_of(&params["logger"]), text_of(&params["data"]));
        self.received.lock().unwrap().log.push(line);
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.received.lock().unwrap().events.push(format!("updated {}", params.uri));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.received.lock().unwrap().events.push("tools changed".into());
    }
}

type Service = RunningService<RoleClient, Guest>;

struct Visit<'a> {
    client: Service,
    received: Arc<Mutex<Received>>,
    job: &'a Value,
    report: &'a mut Value,
}

impl Visit<'_> {
    fn able(&self, what: &str) -> bool {
        self.job["able"][what] == true
    }

    fn word(&self, name: &str) -> String {
        text_of(&self.job["words"][name])
    }

    fn modern(&self) -> bool {
        self.report["revision"] == MODERN
    }

    /// Waits until count returns length.
    async fn until(&self, length: usize, count: impl Fn(&Received) -> usize) -> Result<(), Failure> {
        tokio::time::timeout(Duration::from_secs(20), async {
            while count(&self.received.lock().unwrap()) < length {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .map_err(|_| format!("waiting for {length} notes").into())
    }

    async fn text(&self, tool: &str, args: Value) -> Result<String, Failure> {
        self.call(json!({"name": tool, "arguments": args})).await
    }

    async fn call(&self, params: Value) -> Result<String, Failure> {
        let result = to_json(self.client.call_tool(of(params.clone())).await?);
        let text = text_of(&result["content"][0]["text"]);
        if result["isError"] == true { Err(format!("{}: {text}", params["name"]).into()) } else { Ok(text) }
    }

    async fn look(&mut self) -> Result<(), Failure> {
        let sorted = |mut names: Vec<String>| {
            names.sort();
            json!(names)
        };
        self.report["tools"] = sorted(self.client.list_all_tools().await?.iter().map(|t| t.name.to_string()).collect());
        self.report["resources"] = sorted(self.client.list_all_resources().await?.iter().map(|r| text_of(&to_json(r)["uri"])).collect());
        self.report["templates"] = sorted(self.client.list_all_resource_templates().await?.iter().map(|r| text_of(&to_json(r)["uriTemplate"])).collect());
        self.report["prompts"] = sorted(self.client.list_all_prompts().await?.iter().map(|p| p.name.clone()).collect());
        Ok(())
    }

    async fn contents(&self, uri: &str) -> Result<String, ServiceError> {
        let result = to_json(self.client.read_resource(of(json!({"uri": uri}))).await?);
        let first = &result["contents"][0];
        let body = if first["text"].is_string() { &first["text"] } else { &first["blob"] };
        Ok(format!("{} {}", first["mimeType"].as_str().unwrap_or(""), text_of(body)))
    }

    async fn lines(&self, name: &str, args: Option<Value>) -> Result<Vec<String>, ServiceError> {
        let mut params = json!({"name": name});
        if let Some(args) = args {
            params["arguments"] = args;
        }
        let result = to_json(self.client.get_prompt(of(params)).await?);
        Ok(result["messages"].as_array().unwrap().iter().map(|m| format!("{}: {}", text_of(&m["role"]), text_of(&m["content"]["text"]))).collect())
    }

    async fn complete(&self, reference: Value, name: &str, value: &str, known: Option<Value>) -> Result<Value, Failure> {
        let mut params = json!({"ref": reference, "argument": {"name": name, "value": value}});
        if let Some(known) = known {
            params["context"] = json!({"arguments": known});
        }
        Ok(to_json(self.client.complete(of(params)).await?)["completion"]["values"].clone())
    }

    async fn read(&mut self) -> Result<(), Failure> {
        for name in ["greetingURI", "itemURI", "logoURI"] {
            let uri = self.word(name);
            self.report["read"][&uri] = json!(self.contents(&uri).await?);
        }
        self.report["prompt"] = json!(self.lines("greet", Some(json!({"name": "Ada", "style": "formal"}))).await?);
        self.report["codes"] = json!({
            "missing resource": code(self.contents(&self.word("missingItem")).await),
            "missing argument": code(self.lines("greet", None).await),
            "unknown prompt": code(self.lines("no_such_prompt", None).await),
        });
        let greet = json!({"type": "ref/prompt", "name": "greet"});
        let items = json!({"type": "ref/resource", "uri": self.word("itemTemplate")});
        self.report["completion"] = json!({
            "style": self.complete(greet.clone(), "style", "f", None).await?,
            "id": self.complete(items, "id", "1", None).await?,
            "name": self.complete(greet.clone(), "name", "", None).await?,
        });
        if self.able("context") {
            self.report["completion"]["name, formal"] = self.complete(greet, "name", "", Some(json!({"style": "formal"}))).await?;
        }
        Ok(())
    }

    /// Makes a call of the tool slow that ends, and one that is canceled.
    async fn take_time(&mut self) -> Result<(), Failure> {
        let done = self.text("slow", json!({"steps": 3, "delay_ms": 1})).await?;
        let seen = |received: &Received| received.progress.len();
        self.until(3, seen).await?;
        self.received.lock().unwrap().progress.clear();
        let params = of(json!({"name": "slow", "arguments": {"steps": 1000, "delay_ms": 20}}));
        let request = ClientRequest::CallToolRequest(Request::new(params));
        let handle = self.client.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        // Each arrives in its own task, so a later one may be first.
        let first = |received: &Received| received.progress.iter().filter(|p| *p == "progress 1" || *p == "progress 2").count();
        self.until(2, first).await?;
        handle.cancel(Some("enough".into())).await?;
        let args = if self.able("cancel") { json!({}) } else { json!({"for_ms": 100}) };
        let noticed = self.text("cancelled", args).await?;
        self.report["slow"] = json!([done, "progress 1", "progress 2", "given up", noticed]);
        Ok(())
    }

    async fn answer(&mut self) -> Result<(), Failure> {
        self.report["answers"] = json!({});
        if self.able("elicit") {
            self.report["answers"]["ask"] = json!(self.text("ask", json!({})).await?);
            self.report["answers"]["asked prompt"] = json!(self.lines("asked", None).await?.join(", "));
            self.report["answers"]["asked resource"] = json!(self.contents(&self.word("askedURI")).await?);
        }
        for tool in ["visit", "sample", "roots"] {
            if self.able(tool) {
                self.report["answers"][tool] = json!(self.text(tool, json!({})).await?);
            }
        }
        Ok(())
    }

    async fn log(&self) -> Result<(), Failure> {
        if self.modern() {
            self.call(json!({"name": "log", "arguments": {}, "_meta": {"io.modelcontextprotocol/logLevel": "info"}})).await?;
        } else {
            self.client.set_level(of(json!({"level": "info"}))).await?;
            self.text("log", json!({})).await?;
        }
        self.until(2, |received| received.log.len()).await
    }

    async fn changes(&self) -> Result<(), Failure> {
        let uri = self.word("greetingURI");
        let received = self.received.clone();
        let subscription = if self.modern() {
            let filter = of(json!({"toolsListChanged": true, "resourceSubscriptions": [uri]}));
            let mut subscription = self.client.listen(filter).await?;
            Some(tokio::spawn(async move {
                while let Ok(Some(change)) = subscription.next().await {
                    let change = to_json(change);
                    let event = match change["params"]["uri"].as_str() {
                        Some(uri) => format!("updated {uri}"),
                        None => "tools changed".into(),
                    };
                    received.lock().unwrap().events.push(event);
                }
            }))
        } else {
            self.client.subscribe(of(json!({"uri": uri}))).await?;
            None
        };
        self.text("touch", json!({"uri": "test://a"})).await?;
        self.text("touch", json!({"uri": uri})).await?;
        self.until(1, |received| received.events.len()).await?;
        self.text("extend", json!({})).await?;
        self.until(2, |received| received.events.len()).await?;
        if let Some(following) = subscription {
            following.abort();
        }
        Ok(())
    }
}

/// Returns the code of a call's error, or 0.
fn code<T>(result: Result<T, ServiceError>) -> i32 {
    match result {
        Err(ServiceError::McpError(error)) => error.code.0,
        _ => 0,
    }
}

pub async fn run(job: Value) {
    let mut report = json!({"read": {}, "tasks": {}, "failure": ""});
    if let Err(error) = visit(&job, &mut report).await {
        report["failure"] = json!(error.to_string());
    }
    println!("{report}");
}

async fn visit(job: &Value, report: &mut Value) -> Result<(), Failure> {
    let mut capabilities = json!({"sampling": {}, "roots": {}});
    if job["able"]["elicit"] == true {
        capabilities["elicitation"] = if job["able"]["visit"] == true { json!({"form": {}, "url": {}}) } else { json!({}) };
    }
    let info = of(json!({"protocolVersion": job["ask"], "capabilities": capabilities, "clientInfo": {"name": "interop", "version": "1"}}));
    let received = Arc::<Mutex<Received>>::default();
    let client = connect(Guest { info, received: received.clone() }, job).await?;
    let about = client.peer_info().map(|info| to_json(&*info)).unwrap_or_default();
    report["revision"] = about["protocolVersion"].clone();
    report["server"] = about["serverInfo"]["name"].clone();
    report["instructions"] = about["instructions"].clone();
    let mut visit = Visit { client, received: received.clone(), job, report };
    visit.look().await?;
    visit.read().await?;
    visit.take_time().await?;
    visit.answer().await?;
    if visit.able("log") {
        visit.log().await?;
    }
    // The SDK runs each notification's handler in its own task, so their order is random.
    received.lock().unwrap().log.sort_by(|a, b| b.cmp(a));
    visit.report["log"] = json!(received.lock().unwrap().log);
    visit.report["questions"] = json!(received.lock().unwrap().questions);
    if visit.able("subscribe") {
        visit.changes().await?;
    }
    visit.report["events"] = json!(received.lock().unwrap().events);
    visit.client.cancel().await?;
    Ok(())
}

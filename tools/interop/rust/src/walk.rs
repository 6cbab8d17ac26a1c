//! A host that runs the session of scenario_test.go. The job has the server and the steps. The host
//! prints its report as JSON.

use std::sync::Mutex;

use rmcp::{
    ClientHandler, RoleClient, ServiceError,
    model::*,
    service::{NotificationContext, Peer, PeerRequestOptions},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{client::connect, json as to_json, of};

type Watcher = (ProgressToken, mpsc::UnboundedSender<f64>);

/// A client that passes progress to the call that requested it.
pub struct Host {
    info: ClientConfig,
    watchers: Mutex<Vec<Watcher>>,
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        self.info.clone()
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let watchers = self.watchers.lock().unwrap();
        if let Some((_, watcher)) = watchers.iter().find(|(token, _)| *token == params.progress_token) {
            let _ = watcher.send(params.progress);
        }
    }
}

async fn call(peer: &Peer<RoleClient>, host: &Host, step: &Value) -> Value {
    let params: CallToolRequestParams = of(json!({"name": step["tool"], "arguments": step["args"]}));
    let mut outcome = json!({"text": "", "isError": false, "code": 0, "message": "", "cancelled": false, "progress": []});
    let request = ClientRequest::CallToolRequest(Request::new(params));
    let mut handle = match peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await {
        Ok(handle) => handle,
        Err(error) => {
            outcome["message"] = json!(error.to_string());
            return outcome;
        }
    };
    let (send, mut progress) = mpsc::unbounded_channel();
    host.watchers.lock().unwrap().push((handle.progress_token.clone(), send));
    let cancel_at = step["cancelAt"].as_f64().unwrap_or(0.0);
    let result = loop {
        tokio::select! {
            Some(value) = progress.recv() => {
                if step["progress"].as_u64().is_some() {
                    outcome["progress"].as_array_mut().unwrap().push(json!(value));
                }
                if cancel_at > 0.0 && value >= cancel_at {
                    let _ = handle.cancel(Some("enough".into())).await;
                    outcome["cancelled"] = json!(true);
                    return outcome;
                }
            }
            result = &mut handle.rx => break result.expect("an answer"),
        }
    };
    // The SDK runs each notification's handler in its own task, so their order is random.
    outcome["progress"].as_array_mut().unwrap().sort_by(|a, b| a.as_f64().partial_cmp(&b.as_f64()).unwrap());
    match result {
        Ok(ServerResult::CallToolResult(result)) => {
            let result = to_json(result);
            outcome["text"] = result["content"][0]["text"].as_str().unwrap_or("").into();
            outcome["isError"] = json!(result["isError"] == true);
            if let Some(structured) = result.get("structuredContent") {
                outcome["structured"] = structured.clone();
            }
        }
        Ok(other) => outcome["message"] = json!(format!("an unexpected answer: {other:?}")),
        Err(ServiceError::McpError(error)) => {
            outcome["code"] = json!(error.code.0);
            outcome["message"] = json!(error.message);
        }
        Err(error) => outcome["message"] = json!(error.to_string()),
    }
    outcome
}

async fn take(peer: &Peer<RoleClient>, host: &Host, step: &Value) -> Value {
    let parallel = step["parallel"].as_u64().unwrap_or(0);
    if parallel == 0 {
        return call(peer, host, step).await;
    }
    let mut calls = Vec::new();
    for _ in 0..parallel {
        calls.push(Box::pin(call(peer, host, step)));
    }
    let mut outcomes = Vec::new();
    for outcome in join_all(calls).await {
        outcomes.push(outcome);
    }
    let agreeing = outcomes.iter().filter(|o| o["text"] == outcomes[0]["text"] && o["code"] == outcomes[0]["code"]).count();
    let mut first = outcomes[0].clone();
    first["agreeing"] = json!(agreeing);
    first
}

/// Runs futures concurrently, and returns their results in order.
async fn join_all<F: Future<Output = Value> + Unpin>(mut futures: Vec<F>) -> Vec<Value> {
    let mut done: Vec<Option<Value>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, slot) in futures.iter_mut().zip(done.iter_mut()) {
            if slot.is_none()
                && let std::task::Poll::Ready(value) = std::pin::Pin::new(future).poll(cx)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

pub async fn run(job: Value) {
    let mut report = json!({"revision": "", "server": "", "tools": [], "outcomes": {}, "failure": ""});
    if let Err(error) = walk(&job, &mut report).await {
        report["failure"] = json!(error.to_string());
    }
    println!("{report}");
}

async fn walk(job: &Value, report: &mut Value) -> Result<(), Box<dyn std::error::Error>> {
    let info = of(json!({"protocolVersion": job["ask"], "capabilities": {}, "clientInfo": {"name": "interop", "version": "1"}}));
    let service = connect(Host { info, watchers: Mutex::default() }, job).await?;
    let about = service.peer_info().map(|info| to_json(&*info)).unwrap_or_default();
    report["revision"] = about["protocolVersion"].clone();
    report["server"] = about["serverInfo"]["name"].clone();
    let tools = service.list_all_tools().await?;
    report["tools"] = tools.iter().map(|tool| tool.name.to_string()).collect();
    for step in job["steps"].as_array().expect("steps") {
        report["outcomes"][step["name"].as_str().unwrap()] = take(service.peer(), service.service(), step).await;
    }
    if job["ping"] == true {
        service.send_request(ClientRequest::PingRequest(PingRequest::default())).await?;
    }
    service.cancel().await?;
    Ok(())
}

//! The common part of the clients: the connection to the server.

use rmcp::{
    ClientHandler, RoleClient,
    model::ProtocolVersion,
    service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RunningService},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::Value;

use crate::of;

/// Connects to the job's server. The job's mode is "auto" or a revision.
pub async fn connect<H: ClientHandler>(handler: H, job: &Value) -> Result<RunningService<RoleClient, H>, ClientInitializeError> {
    let modern: ProtocolVersion = of(crate::MODERN.into());
    let lifecycle = match job["mode"].as_str() {
        Some("auto") => ClientLifecycleMode::Auto { preferred_versions: vec![modern], legacy_version: None },
        Some(crate::MODERN) => ClientLifecycleMode::Discover { preferred_versions: vec![modern] },
        _ => ClientLifecycleMode::Initialize,
    };
    if let Some(url) = job["url"].as_str().filter(|url| !url.is_empty()) {
        return handler.serve_with_lifecycle(StreamableHttpClientTransport::from_uri(url), lifecycle).await;
    }
    let mut command = tokio::process::Command::new(job["command"].as_str().expect("a command"));
    command.args(job["args"].as_array().expect("arguments").iter().map(|a| a.as_str().unwrap()));
    let child = TokioChildProcess::new(command).expect("a server that starts");
    handler.serve_with_lifecycle(child, lifecycle).await
}

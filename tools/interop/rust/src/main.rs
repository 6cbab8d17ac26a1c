//! Peers on the Rust SDK (rmcp), which supports both eras. The first argument is the role of the
//! peer, the second is its input from the Go test as JSON.
#![allow(deprecated)] // the peers use logging, sampling and roots, which are deprecated

mod client;
mod server;
mod visit;
mod walk;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub const MODERN: &str = "2026-07-28";

/// Converts JSON to a value of the SDK.
pub fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{e} in {value}"))
}

/// Converts a value of the SDK to JSON.
pub fn json<T: serde::Serialize>(value: T) -> Value {
    serde_json::to_value(value).expect("the SDK's values can be serialized")
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let job: Value = serde_json::from_str(&args[2]).expect("the second argument is JSON");
    match args[1].as_str() {
        "server" => server::run(job).await,
        "walk" => walk::run(job).await,
        "visit" => visit::run(job).await,
        other => panic!("unknown role: {other}"),
    }
}

//! {{name}}: one request on standard input, one response on standard output, then exit.
//!
//! Standard error is stored with the job, so write there whatever helps to understand a failure.

use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};

const PROTOCOL: u64 = 2;
/// Tells the core that a retry cannot help.
const EXIT_CONFIG: u8 = 78;

fn main() -> ExitCode {
    let request: Value = match serde_json::from_reader(io::stdin()) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("the request cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    if request["protocol"] != PROTOCOL {
        println!(
            "{}",
            refusal(&format!("this plugin speaks protocol {PROTOCOL} only"))
        );
        return ExitCode::from(EXIT_CONFIG);
    }
    let answer = match request["command"].as_str() {
        Some("poll") => poll(&request),
        Some("handle") => handle(&request),
        Some("health") => json!({"status": "ok", "result": "healthy"}),
        other => refusal(&format!("unknown command: {}", other.unwrap_or_default())),
    };
    println!("{answer}");
    ExitCode::SUCCESS
}

fn poll(request: &Value) -> Value {
    let polls = request["state"]["polls"].as_u64().unwrap_or(0) + 1;
    json!({
        "status": "ok",
        "result": format!("polled {polls} times"),
        "events": [{"type": "{{name}}.polled", "payload": {"job_id": request["job_id"], "polls": polls}}],
        "state_updates": {"polls": polls},
    })
}

fn handle(request: &Value) -> Value {
    let kind = request["event"]["type"].as_str().unwrap_or("an event");
    json!({"status": "ok", "result": format!("handled {kind}")})
}

fn refusal(error: &str) -> Value {
    json!({"status": "error", "error": error, "retry": false})
}

//! Telemetry: what the log says and what a collector gets.

mod export;
mod log;
mod panic;
mod redaction;

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tollgate::{
    domain::{RequestId, TraceContext},
    telemetry::ServerStart,
};

/// A log's lines, kept in memory.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Each line, which must be one JSON object.
    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

const CALLER: TraceContext = TraceContext {
    trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
    span_id: 0x00f0_67aa_0ba9_02b7,
    sampled: true,
};

fn request(request_id: &RequestId, remote: Option<TraceContext>) -> ServerStart<'_> {
    ServerStart {
        method: "POST",
        route: Some("/v1/chat/completions"),
        path: "/v1/chat/completions",
        scheme: "http",
        request_id,
        remote,
    }
}

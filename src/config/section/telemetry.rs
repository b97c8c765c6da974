//! Where spans go and what the log says.

use serde::Deserialize;

/// `[telemetry]`: where spans go and what the log says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct TelemetryConfig {
    /// OTLP over gRPC. None: no spans are exported.
    pub otlp_endpoint: Option<String>,
    pub service_name: String,
    pub capture_content: bool,
    /// A `tracing` filter, such as `info` or `tollgate=debug`.
    pub log: String,
    pub log_format: LogFormat,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            service_name: "tollgate".to_owned(),
            capture_content: false,
            log: "info".to_owned(),
            log_format: LogFormat::Json,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Json,
    Text,
}

//! Every attribute name that a span of ours bears, in one place.
//!
//! The `gen_ai.*` names are in development and have moved before (`gen_ai.system` until 1.36), so
//! nobody else writes one out. Sources: for `gen_ai.*`
//! <https://github.com/open-telemetry/semantic-conventions-genai>, `docs/gen-ai/gen-ai-spans.md`;
//! for the rest the core conventions, pinned at [`SCHEMA_URL`].

/// Core semantic conventions, the last version before `gen_ai.*` moved out (1.42).
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.1";

/// string: the operation; for a model call [`OPERATION_CHAT`]. gen-ai-spans.md, "Inference".
pub const OPERATION_NAME: &str = "gen_ai.operation.name";
/// The value of [`OPERATION_NAME`] for a chat completion.
pub const OPERATION_CHAT: &str = "chat";
/// string: who serves the model. gen-ai-spans.md, "Inference".
pub const PROVIDER_NAME: &str = "gen_ai.provider.name";
/// string: the model asked for. gen-ai-spans.md, "Inference".
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// boolean: was a streamed answer asked for? gen-ai-spans.md, "Inference".
pub const REQUEST_STREAM: &str = "gen_ai.request.stream";
/// int: the most tokens that may be generated. gen-ai-spans.md, "Inference".
pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
/// string: the model that answered. gen-ai-spans.md, "Inference".
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// string: the provider's id of the completion. gen-ai-spans.md, "Inference".
pub const RESPONSE_ID: &str = "gen_ai.response.id";
/// string[]: why it stopped, one for each choice. gen-ai-spans.md, "Inference".
pub const RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// double, seconds: from the request's start to the first chunk. gen-ai-spans.md, "Inference".
pub const RESPONSE_TIME_TO_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
/// int: input tokens, cached ones included. gen-ai-spans.md, "Inference".
pub const USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// int: output tokens, reasoning included. gen-ai-spans.md, "Inference".
pub const USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// int: of the input, read from the provider's cache. gen-ai-spans.md, "Inference".
pub const USAGE_CACHE_READ_INPUT_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// int: of the output, spent on reasoning. gen-ai-spans.md, "Inference".
pub const USAGE_REASONING_OUTPUT_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";

/// string: a low-cardinality class of what went wrong. Core, `docs/registry/attributes/error.md`.
pub const ERROR_TYPE: &str = "error.type";
/// string: the provider's host. Core, `docs/registry/attributes/server.md`.
pub const SERVER_ADDRESS: &str = "server.address";
/// int: the provider's port. Core, `docs/registry/attributes/server.md`.
pub const SERVER_PORT: &str = "server.port";
/// string: a method that is known, else [`METHOD_OTHER`]. Core, `docs/http/http-spans.md`.
pub const HTTP_REQUEST_METHOD: &str = "http.request.method";
/// The value of [`HTTP_REQUEST_METHOD`] for a method that is not in RFC 9110 or RFC 5789.
pub const METHOD_OTHER: &str = "_OTHER";
/// string: the route's pattern, never the path. Core, `docs/http/http-spans.md`.
pub const HTTP_ROUTE: &str = "http.route";
/// int. Core, `docs/http/http-spans.md`.
pub const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
/// string: the path without its query. Core, `docs/http/http-spans.md`.
pub const URL_PATH: &str = "url.path";
/// string: `http` or `https`. Core, `docs/http/http-spans.md`.
pub const URL_SCHEME: &str = "url.scheme";
/// string: the semantic conventions' `service.version`. Core, `docs/resource/service.md`.
pub const SERVICE_VERSION: &str = "service.version";

/// string: our `x-request-id`; a name of our own, as the conventions have none.
pub const REQUEST_ID: &str = "tollgate.request_id";

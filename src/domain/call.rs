//! A chat request, decoded as far as the gateway needs and kept byte for byte otherwise.

use std::{borrow::Cow, ops::Range, sync::OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{member::Members, part};

/// The body of a chat completion (OpenAI's dialect).
///
/// What we don't know passes through: the original bytes are kept, and [`ModelCall::to_upstream`]
/// replaces only the members that must differ. So numbers keep their digits and unknown fields
/// their order.
#[derive(Debug, Clone)]
pub struct ModelCall {
    body: Bytes,
    /// The bytes between the body's braces begin here.
    open_brace: usize,
    model_at: Range<usize>,
    messages_at: Range<usize>,
    /// Has it `web_search_options`, whatever they are?
    searches: bool,
    /// Found when it is first asked for: it takes a walk through the messages.
    has_unbounded_parts: OnceLock<bool>,
    stream_at: Option<Range<usize>>,
    /// What has to be written where for usage to be asked for.
    ask_usage: (Range<usize>, &'static str),
    /// The name that the caller used.
    pub model: String,
    pub stream: bool,
    /// Did the caller ask for a usage chunk (`stream_options.include_usage`)?
    pub include_usage: bool,
    /// The names of the functions in `tools` (and the older `functions`).
    pub tools: Vec<String>,
    /// `max_completion_tokens`, else the older `max_tokens`.
    pub max_tokens: Option<u64>,
    /// `n`: how many answers are asked for.
    pub choices: u64,
}

/// Why a body is not a chat request.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body is not a JSON object: {0}")]
    Json(#[source] serde_json::Error),
    /// A second member of the same name could mean one thing to us and another upstream.
    #[error("`{0}` appears twice in the body")]
    Duplicate(String),
    /// Some servers don't tell names apart by case, and take the last one.
    #[error("`{0}` could be taken for the member of that name in other letters; spell it as that")]
    LookAlike(String),
    #[error("`{0}` would choose a model or a server past the gateway; take it out")]
    Forbidden(&'static str),
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`{field}` must be {expected}")]
    Invalid { field: &'static str, expected: &'static str },
}

/// The members of a request, and of a tool, that are read here.
const READ: &[&str] = &[
    "functions",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "stream",
    "stream_options",
    "tools",
];
const READ_OF_A_TOOL: &[&str] = &["custom", "function", "name", "type"];

/// Members by which some routers let a request choose what answers it: a capability for one model
/// would be one for all.
const CHOOSES_ELSEWHERE: &[&str] =
    &["api_base", "api_key", "base_url", "fallbacks", "models", "preset"];

impl BodyError {
    /// The field at fault.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::Json(_) => None,
            Self::Duplicate(field) | Self::LookAlike(field) => Some(field),
            Self::Missing(field) | Self::Forbidden(field) | Self::Invalid { field, .. } => {
                Some(field)
            }
        }
    }
}

impl ModelCall {
    /// The longest name of a model that is taken.
    pub const MAX_MODEL_LEN: usize = 256;

    /// The bytes of the body.
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.body.len()
    }

    /// Has it content whose tokens its bytes don't bound: an image or a file that stands
    /// elsewhere, or a search? Anything is taken for such that is not known to be text or sound.
    #[must_use]
    pub fn has_parts_of_unknown_size(&self) -> bool {
        *self.has_unbounded_parts.get_or_init(|| {
            let messages = std::str::from_utf8(&self.body[self.messages_at.clone()]);
            self.searches || !messages.is_ok_and(part::are_bounded)
        })
    }

    /// Decodes a request's body.
    ///
    /// # Errors
    /// [`BodyError`], which names the field at fault.
    pub fn parse(body: Bytes) -> Result<Self, BodyError> {
        let text = std::str::from_utf8(&body).map_err(|_| BodyError::Json(not_utf8()))?;
        let members: Members<'_> = serde_json::from_str(text).map_err(BodyError::Json)?;
        if let Some(twice) = members.twice() {
            return Err(BodyError::Duplicate(twice.chars().take(64).collect()));
        }
        if let Some(name) = members.look_alike(READ) {
            return Err(BodyError::LookAlike(name.to_owned()));
        }
        let get = |name: &str| members.get(name);
        if let Some(name) = CHOOSES_ELSEWHERE.iter().find(|name| get(name).is_some()) {
            return Err(BodyError::Forbidden(name));
        }
        let span = |value: &RawValue| span_in(text, value.get());

        let model_value = get("model").ok_or(BodyError::Missing("model"))?;
        let model: String = read(model_value, "model", "a string")?;
        if model.is_empty() || model.len() > Self::MAX_MODEL_LEN {
            return Err(BodyError::Invalid { field: "model", expected: "1 to 256 bytes long" });
        }
        let messages = get("messages").ok_or(BodyError::Missing("messages"))?;
        if !messages.get().starts_with('[') {
            return Err(BodyError::Invalid { field: "messages", expected: "an array" });
        }
        let stream_value = get("stream").filter(|value| value.get() != "null");
        let stream = stream_value.map_or(Ok(false), |value| read(value, "stream", "a boolean"))?;
        let open_brace = text.find('{').unwrap_or(0) + 1;
        let usage = UsageOption::read(text, get("stream_options"), open_brace)?;
        let max_tokens = match optional(get("max_completion_tokens"), "max_completion_tokens")? {
            Some(limit) => Some(limit),
            None => optional(get("max_tokens"), "max_tokens")?,
        };
        let tools = tool_names(get("tools"), get("functions"))?;
        let (model_at, stream_at) = (span(model_value), get("stream").map(span));
        let (messages_at, searches) = (span(messages), get("web_search_options").is_some());

        Ok(Self {
            open_brace,
            model_at,
            messages_at,
            searches,
            has_unbounded_parts: OnceLock::new(),
            stream_at,
            ask_usage: usage.ask,
            model,
            stream,
            include_usage: usage.included,
            tools,
            max_tokens,
            choices: optional(get("n"), "n")?.unwrap_or(1).max(1),
            body,
        })
    }

    /// The original bytes.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body to send on: the provider's name of the model, `stream` as given, and usage asked
    /// for where the answer is streamed. Every other byte is the caller's.
    #[must_use]
    pub fn to_upstream(&self, model: &str, stream: bool) -> Bytes {
        let mut edits: Vec<(Range<usize>, Cow<'static, str>)> = Vec::with_capacity(3);
        if model != self.model {
            edits.push((self.model_at.clone(), quoted(model).into()));
        }
        if stream != self.stream {
            let value = if stream { "true" } else { "false" };
            let edit = self.stream_at.clone().map(|at| (at, Cow::Borrowed(value)));
            let added =
                || (self.open_brace..self.open_brace, format!("\"stream\":{value},").into());
            edits.push(edit.unwrap_or_else(added));
        }
        if stream && !self.include_usage {
            let (at, text) = &self.ask_usage;
            edits.push((at.clone(), (*text).into()));
        }
        if edits.is_empty() {
            return self.body.clone();
        }
        edits.sort_by_key(|(at, _)| at.start);
        splice(&self.body, &edits)
    }
}

fn splice(body: &[u8], edits: &[(Range<usize>, Cow<'static, str>)]) -> Bytes {
    let grown: usize = edits.iter().map(|(_, text)| text.len()).sum();
    let mut out = Vec::with_capacity(body.len() + grown);
    let mut from = 0;
    for (at, text) in edits {
        out.extend_from_slice(&body[from..at.start]);
        out.extend_from_slice(text.as_bytes());
        from = at.end;
    }
    out.extend_from_slice(&body[from..]);
    Bytes::from(out)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Where `part`, a slice of `whole`, stands in it.
fn span_in(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

fn not_utf8() -> serde_json::Error {
    serde::de::Error::custom("it is not UTF-8")
}

fn read<'a, T: Deserialize<'a>>(
    value: &'a RawValue,
    field: &'static str,
    expected: &'static str,
) -> Result<T, BodyError> {
    serde_json::from_str(value.get()).map_err(|_| BodyError::Invalid { field, expected })
}

fn optional(value: Option<&RawValue>, field: &'static str) -> Result<Option<u64>, BodyError> {
    let Some(text) = value.map(RawValue::get).filter(|text| *text != "null") else {
        return Ok(None);
    };
    let whole = text.parse().ok().or_else(|| whole_float(text));
    whole.map(Some).ok_or(BodyError::Invalid { field, expected: "a whole number of at least 0" })
}

/// To JSON, and to languages that have floats alone, `64.0` is as whole as `64`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and a limit that high limits nothing"
)]
fn whole_float(text: &str) -> Option<u64> {
    let number: f64 = text.parse().ok()?;
    (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}

/// `stream_options.include_usage`: is it set, and if not, how would it be?
struct UsageOption {
    included: bool,
    ask: (Range<usize>, &'static str),
}

impl UsageOption {
    fn read(body: &str, options: Option<&RawValue>, open_brace: usize) -> Result<Self, BodyError> {
        let invalid = || BodyError::Invalid {
            field: "stream_options",
            expected: "an object whose `include_usage`, if any, is a boolean",
        };
        let ask = |ask| Ok(Self { included: false, ask });
        let Some(options) = options else {
            let member = "\"stream_options\":{\"include_usage\":true},";
            return ask((open_brace..open_brace, member));
        };
        let at = span_in(body, options.get());
        if options.get() == "null" {
            return ask((at, "{\"include_usage\":true}"));
        }
        let members: Members<'_> = serde_json::from_str(options.get()).map_err(|_| invalid())?;
        if members.twice().is_some() || members.look_alike(&["include_usage"]).is_some() {
            return Err(invalid());
        }
        let inside = at.start + 1..at.start + 1;
        match members.get("include_usage") {
            Some(value) => {
                let value_at = span_in(body, value.get());
                let value: Option<bool> =
                    serde_json::from_str(value.get()).map_err(|_| invalid())?;
                Ok(Self { included: value == Some(true), ask: (value_at, "true") })
            }
            None if members.is_empty() => ask((inside, "\"include_usage\":true")),
            None => ask((inside, "\"include_usage\":true,")),
        }
    }
}

fn tool_names(
    tools: Option<&RawValue>,
    functions: Option<&RawValue>,
) -> Result<Vec<String>, BodyError> {
    let tools: Vec<Members<'_>> = list(tools, "tools")?;
    let functions: Vec<Members<'_>> = list(functions, "functions")?;
    let mut names = Vec::new();
    for tool in tools.iter().chain(&functions) {
        gather_names(tool, &mut names)?;
        for key in ["function", "custom"] {
            if let Some(value) = tool.get(key).filter(|value| value.get() != "null") {
                gather_names(&read(value, "tools", A_TOOL)?, &mut names)?;
            }
        }
    }
    Ok(names)
}

const A_TOOL: &str = "an array of tools, each with a name that appears once";

fn list<'a>(
    value: Option<&'a RawValue>,
    field: &'static str,
) -> Result<Vec<Members<'a>>, BodyError> {
    let list: Option<Vec<Members<'_>>> =
        value.map_or(Ok(None), |value| read(value, field, A_TOOL))?;
    Ok(list.unwrap_or_default())
}

/// Every name that a tool could go by: what the provider makes of it is not ours to guess.
fn gather_names(tool: &Members<'_>, names: &mut Vec<String>) -> Result<(), BodyError> {
    if let Some(name) = tool.look_alike(READ_OF_A_TOOL) {
        return Err(BodyError::LookAlike(name.to_owned()));
    }
    if tool.twice().is_some() {
        return Err(BodyError::Invalid { field: "tools", expected: A_TOOL });
    }
    if let Some(name) = tool.get("name") {
        names.extend(read::<Option<String>>(name, "tools", A_TOOL)?);
    }
    if let Some(class) = tool.get("type") {
        // A tool that the provider hosts is named by its type.
        let class: Option<String> = read(class, "tools", A_TOOL)?;
        names.extend(class.filter(|class| class != "function" && class != "custom"));
    }
    Ok(())
}

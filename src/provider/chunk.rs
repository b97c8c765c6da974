//! What the gateway reads of a chat completion and of its chunks, borrowed from their bytes.
//!
//! Fields that we don't read are skipped, not checked: they pass through as they came. So do those
//! that we do read and that have another type than we know: providers have ideas of their own.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::Usage;

/// Text, borrowed where it has no escapes. (`Option<Cow<str>>` never borrows.)
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// What all chunks of an answer have in common: read of its first ones alone.
#[derive(Debug, Default, Deserialize)]
pub struct ChunkHead<'a> {
    #[serde(borrow, default, deserialize_with = "lenient")]
    pub id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    pub model: Option<Text<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    pub created: Option<i64>,
}

/// A `chat.completion.chunk`.
#[derive(Debug, Default, Deserialize)]
pub struct ChunkView<'a> {
    #[serde(skip)]
    data: &'a [u8],
    #[serde(borrow, default)]
    pub choices: Option<Vec<Choice<'a>>>,
    /// Kept raw: where it stands is needed to take it out again. `null` is `Some` here.
    #[serde(borrow, default, deserialize_with = "present")]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
}

/// One of `choices`.
#[derive(Debug, Deserialize)]
pub struct Choice<'a> {
    #[serde(default)]
    pub index: u64,
    #[serde(borrow, default)]
    pub delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    pub finish_reason: Option<Text<'a>>,
}

/// `choices[].delta`.
#[derive(Debug, Default, Deserialize)]
pub struct Delta<'a> {
    #[serde(borrow, default)]
    pub content: Option<Text<'a>>,
    /// What Groq and vLLM call it.
    #[serde(borrow, default)]
    pub reasoning: Option<Text<'a>>,
    /// What `DeepSeek` and older vLLM call it.
    #[serde(borrow, default)]
    pub reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub refusal: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub tool_calls: Option<Vec<ToolCallDelta<'a>>>,
}

/// `choices[].delta.tool_calls[]`.
#[derive(Debug, Deserialize)]
pub struct ToolCallDelta<'a> {
    #[serde(default)]
    pub index: u64,
    #[serde(borrow, default)]
    pub id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub function: Option<FunctionDelta<'a>>,
}

/// `choices[].delta.tool_calls[].function`.
#[derive(Debug, Default, Deserialize)]
pub struct FunctionDelta<'a> {
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub arguments: Option<Text<'a>>,
}

/// A whole `chat.completion`, as far as it is read.
#[derive(Debug, Default, Deserialize)]
pub struct CompletionView<'a> {
    #[serde(borrow, default, deserialize_with = "lenient")]
    pub id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    pub model: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    pub choices: Option<Vec<CompletionChoice<'a>>>,
    #[serde(default, deserialize_with = "lenient")]
    pub usage: Option<UsageView>,
}

/// One of a whole completion's `choices`.
#[derive(Debug, Deserialize)]
pub struct CompletionChoice<'a> {
    #[serde(borrow, default, deserialize_with = "lenient")]
    pub finish_reason: Option<Text<'a>>,
    /// Kept raw: its fields may be of other types than we know.
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
}

impl<'a> CompletionChoice<'a> {
    /// What the model wrote; its fields are those of a delta. `None` where they are of other types
    /// than we know.
    #[must_use]
    pub fn written(&self) -> Option<Delta<'a>> {
        read(self.message)
    }
}

/// `usage`.
#[derive(Debug, Default, Deserialize)]
pub struct UsageView {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default)]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Default, Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct CompletionDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
}

impl From<UsageView> for Usage {
    fn from(view: UsageView) -> Self {
        let cached = view.prompt_tokens_details.and_then(|details| details.cached_tokens);
        let reasoning = view.completion_tokens_details.and_then(|details| details.reasoning_tokens);
        Self {
            input_tokens: view.prompt_tokens.unwrap_or(0),
            output_tokens: view.completion_tokens.unwrap_or(0),
            cached_input_tokens: cached.unwrap_or(0),
            reasoning_tokens: reasoning.unwrap_or(0),
        }
    }
}

impl<'a> ChunkView<'a> {
    /// # Errors
    /// Where the data is no JSON object, or its `choices` are no array of objects.
    pub fn parse(data: &'a [u8]) -> Result<Self, serde_json::Error> {
        if data.trim_ascii_start().first() != Some(&b'{') {
            return Err(serde::de::Error::custom("it is no object"));
        }
        let parsed = match serde_json::from_slice(data) {
            Err(error) if error.is_data() => serde_json::from_slice(data).map(Self::of_odd),
            parsed => parsed,
        };
        parsed.map(|view| Self { data, ..view })
    }

    fn of_odd(odd: OddChunk<'a>) -> Self {
        Self {
            data: &[],
            choices: odd.choices.map(|choices| choices.into_iter().map(Choice::of_odd).collect()),
            usage: odd.usage,
            error: odd.error,
        }
    }

    /// What it has in common with the answer's other chunks.
    #[must_use]
    pub fn head(&self) -> ChunkHead<'a> {
        serde_json::from_slice(self.data).unwrap_or_default()
    }

    /// The choices, none where there is no such field.
    #[must_use]
    pub fn choices(&self) -> &[Choice<'a>] {
        self.choices.as_deref().unwrap_or_default()
    }

    /// The usage, if it is there and not null.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let view: Option<UsageView> = serde_json::from_str(self.usage?.get()).ok()?;
        view.map(Usage::from)
    }

    /// Is it a usage and nothing else, as comes last where usage was asked for?
    #[must_use]
    pub fn is_count(&self) -> bool {
        self.usage.is_some_and(|usage| usage.get() != "null")
            && self.choices().is_empty()
            && !self.is_error()
    }

    /// Has it none of the fields that a chunk has?
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.choices.is_none() && self.usage.is_none() && self.error.is_none()
    }

    /// Is there an `error` that is not null?
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.error.is_some_and(|error| error.get() != "null")
    }
}

/// A chunk of which some field is not what we know it as.
#[derive(Deserialize)]
struct OddChunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<OddChoice<'a>>>,
    #[serde(borrow, default, deserialize_with = "present")]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Deserialize)]
struct OddChoice<'a> {
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct OddDelta<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
}

impl<'a> Choice<'a> {
    fn of_odd(odd: OddChoice<'a>) -> Self {
        Self {
            index: read(odd.index).unwrap_or(0),
            delta: read(odd.delta).map(|delta: OddDelta<'a>| Delta {
                content: read(delta.content),
                reasoning: read(delta.reasoning),
                reasoning_content: read(delta.reasoning_content),
                refusal: read(delta.refusal),
                tool_calls: read(delta.tool_calls),
            }),
            finish_reason: read(odd.finish_reason),
        }
    }
}

/// The value, if it is there and of the type that we know.
fn read<'a, T: Deserialize<'a>>(value: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(value?.get()).ok()
}

impl Delta<'_> {
    /// The model's reasoning, where it shows it.
    #[must_use]
    pub fn reasoning(&self) -> Option<&str> {
        // Some servers tell the same in both fields.
        let texts = [&self.reasoning, &self.reasoning_content].into_iter().flatten();
        texts.map(|text| &**text).find(|text| !text.is_empty())
    }

    /// Everything that the model wrote here: text, reasoning, refusal, tool calls.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        let functions = self.tool_calls.iter().flatten().filter_map(|call| call.function.as_ref());
        let calls = functions.flat_map(|function| [&function.name, &function.arguments]);
        let texts = [&self.content, &self.refusal].into_iter().chain(calls).flatten();
        self.reasoning().into_iter().chain(texts.map(|text| &**text))
    }
}

/// `None` for a field of another type than we know.
fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value: &RawValue = Deserialize::deserialize(deserializer)?;
    Ok(read(Some(value)))
}

/// `Some` for a field that is there, even if it is null.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

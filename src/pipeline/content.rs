//! What a call asked and what it was answered, for the audit trail: hashed as it goes by, and its
//! beginning kept where that is asked for.

use super::{Gateway, Redacted, answer::PassError};
use crate::{
    audit::{Content, ContentDigest, Entry, Part, Transcript, keep},
    domain::ModelCall,
    provider::{ChunkView, CompletionView, Delta, sse::Event},
    redact::Depth,
    stream::Outlet,
};

/// Of a beginning that was cut before its secrets are taken out, so much is left away: half a secret
/// is none to a rule.
const CUT_BYTES: usize = 8 << 10;

/// A call's content so far.
#[derive(Debug, Default)]
pub(super) struct CallContent {
    is_kept: bool,
    input: Option<ContentDigest>,
    input_text: Option<Box<str>>,
    transcript: Transcript,
    output: Option<(ContentDigest, Option<Box<str>>)>,
}

impl CallContent {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { is_kept, transcript: Transcript::new(is_kept), ..Self::default() }
    }

    pub(super) fn note_input(&mut self, call: &Redacted<ModelCall>) {
        self.input = Some(call.digest());
        if self.is_kept {
            // A call's body is UTF-8, or it was not taken.
            self.input_text = str::from_utf8(call.call().body()).ok().map(keep);
        }
    }

    /// A whole answer, as its client gets it.
    pub(super) fn note_whole(&mut self, body: &[u8]) {
        match serde_json::from_slice::<CompletionView<'_>>(body) {
            Ok(view) => {
                for (index, choice) in (0..).zip(view.choices.iter().flatten()) {
                    if let Some(message) = choice.written() {
                        self.note_delta(index, &message, true);
                    } else if let Some(raw) = choice.message {
                        self.transcript.push(index, Part::Text, raw.get());
                    }
                }
            }
            Err(_) => self.transcript.push(0, Part::Text, &String::from_utf8_lossy(body)),
        }
    }

    fn note_chunk(&mut self, view: &ChunkView<'_>) {
        for choice in view.choices() {
            if let Some(delta) = &choice.delta {
                self.note_delta(choice.index, delta, false);
            }
        }
    }

    /// The calls of a whole answer bear no numbers: they stand in their order.
    fn note_delta(&mut self, choice: u64, delta: &Delta<'_>, is_whole: bool) {
        let texts = [
            (Part::Reasoning, delta.reasoning()),
            (Part::Text, delta.content.as_deref()),
            (Part::Refusal, delta.refusal.as_deref()),
        ];
        for (part, text) in texts {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                self.transcript.push(choice, part, text);
            }
        }
        for (place, call) in (0..).zip(delta.tool_calls.iter().flatten()) {
            let Some(function) = &call.function else { continue };
            let number = if is_whole { place } else { call.index };
            let part = Part::ToolCall(number, function.name.as_deref());
            let arguments = function.arguments.as_deref().unwrap_or_default();
            self.transcript.push(choice, part, arguments);
        }
    }

    /// Ends the answer. Where answers pass with their secrets, what is kept loses them here.
    pub(super) async fn redact_output(&mut self, gateway: &Gateway, is_redacted: bool) {
        self.output = std::mem::take(&mut self.transcript).finish();
        if is_redacted {
            return;
        }
        let Some((digest, text)) = &mut self.output else { return };
        let Some(kept) = text.take() else { return };
        let redactor = gateway.redactor.clone();
        let is_cut = (kept.len() as u64) < digest.bytes;
        let redacted = gateway.offload.run(move || {
            let mut kept = String::from(kept);
            if is_cut {
                kept.truncate(kept.floor_char_boundary(kept.len().saturating_sub(CUT_BYTES)));
            }
            keep(&redactor.redact(&kept, Depth::Complete))
        });
        // What could not be redacted is not kept; its hash is.
        *text = redacted.await.ok();
    }

    /// Puts it into the call's row.
    pub(super) fn put(self, row: &mut Entry) {
        let (output, output_text) = self.output.unzip();
        row.input = self.input;
        row.output = output;
        let content = Content { input: self.input_text, output: output_text.flatten() };
        row.content = (content != Content::default()).then(|| Box::new(content));
    }
}

/// What an answer passes on its way out.
pub(super) struct Exit<'c> {
    pub(super) outlet: &'c mut Outlet,
    pub(super) content: &'c mut CallContent,
}

impl Exit<'_> {
    pub(super) fn push(&mut self, event: &Event, view: &ChunkView<'_>) -> Result<(), PassError> {
        self.outlet.push(event, view)?;
        self.content.note_chunk(view);
        Ok(())
    }
}

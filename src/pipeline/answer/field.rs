//! The texts that an answer's chunks bring piece by piece: a choice's content, a call's arguments.

use super::{
    frame::{Frame, quote},
    walk::{Step, is_member},
};
use crate::{
    provider::{ChunkView, ToolCallDelta, sse::Event},
    redact::{Counts, Fed, Redactor, Window},
};

/// Texts and tool calls that an answer may have: eight for each of `OpenAI`'s most choices. For each
/// there is a state of some bytes.
const MAX_FIELDS: usize = 1024;

/// Strings of a delta that come whole, each time anew: to hold back a part of one would break it.
const WHOLE: [&str; 9] =
    ["role", "id", "type", "format", "object", "model", "name", "title", "url"];

/// An answer in more texts than [`MAX_FIELDS`].
#[derive(Debug)]
pub(super) struct TooMany;

/// One text.
#[derive(Debug)]
pub(super) struct Field {
    pub choice: u64,
    pub call: Option<usize>,
    pub is_name: bool,
    /// What a delta with this text and nothing else begins with, and ends with.
    opening: String,
    closing: String,
    window: Window,
    /// What was let go before its end was known, as the text was thought to be at its end.
    ahead: Ahead,
}

/// A text may go on after its end, with the rest of a secret.
#[derive(Debug, Default)]
struct Ahead {
    /// To be shown to the window again, before the rest.
    again: String,
    /// Of what the window gives out, this is out already.
    sent: String,
}

impl Field {
    /// The next piece of the text, and whether it is the last one. What may go out is written to
    /// `out`, unless it is just the piece: then this is false.
    pub fn take(
        &mut self,
        redactor: &Redactor,
        (piece, is_last): (&str, bool),
        out: &mut String,
        counts: &mut Counts,
    ) -> bool {
        let was_idle = self.window.is_idle();
        let is_behind = !self.ahead.is_empty() && !piece.is_empty();
        let fed = if is_behind {
            self.catch_up(redactor, piece, out, counts);
            Fed::Changed
        } else {
            self.window.feed(redactor, piece, out, counts)
        };
        if is_last && !self.window.is_idle() {
            self.let_go(redactor, out, counts);
            // A piece that was held for a moment only.
            return !was_idle || is_behind || out != piece;
        }
        fed == Fed::Changed && !(piece.is_empty() && out.is_empty())
    }

    fn catch_up(
        &mut self,
        redactor: &Redactor,
        piece: &str,
        out: &mut String,
        counts: &mut Counts,
    ) {
        let mut fresh = String::new();
        for piece in [&*std::mem::take(&mut self.ahead.again), piece] {
            if self.window.feed(redactor, piece, &mut fresh, counts) == Fed::Untouched {
                fresh.push_str(piece);
            }
        }
        let rest = self.ahead.rest_of(&fresh);
        out.push_str(rest);
    }

    /// Lets go what is held, as the text seems to be at its end.
    fn let_go(&mut self, redactor: &Redactor, out: &mut String, counts: &mut Counts) {
        let mut fresh = String::new();
        self.window.finish(redactor, &mut fresh, counts);
        out.push_str(self.ahead.rest_of(&fresh));
        self.ahead = Ahead { again: fresh.clone(), sent: fresh };
    }

    /// A chunk with what is held, if something is.
    pub fn flush(
        &mut self,
        redactor: &Redactor,
        frame: Option<&Frame>,
        counts: &mut Counts,
    ) -> Option<Event> {
        if self.window.is_idle() {
            return None;
        }
        let mut out = String::new();
        self.let_go(redactor, &mut out, counts);
        if out.is_empty() {
            return None;
        }
        let delta = [&*self.opening, &quote(&out), &self.closing].concat();
        Some(frame?.chunk(self.choice, &delta))
    }

    pub fn is_idle(&self) -> bool {
        self.window.is_idle()
    }
}

impl Ahead {
    fn is_empty(&self) -> bool {
        self.again.is_empty() && self.sent.is_empty()
    }

    /// The part of what the window gives out that was not sent yet. Where it is not what was sent
    /// (a placeholder), all of it.
    fn rest_of<'a>(&mut self, fresh: &'a str) -> &'a str {
        let sent = std::mem::take(&mut self.sent);
        let same = fresh.bytes().zip(sent.bytes()).take_while(|(a, b)| a == b).count();
        let same = fresh.floor_char_boundary(same);
        if same == fresh.len() {
            sent[same..].clone_into(&mut self.sent);
        }
        &fresh[same..]
    }
}

/// A tool call that was begun.
#[derive(Debug)]
struct Call {
    choice: u64,
    index: u64,
    id: String,
}

/// All texts of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub all: Vec<Field>,
    calls: Vec<Call>,
    /// Room to write an opening in.
    opening: String,
}

/// What ends in a chunk.
#[derive(Debug, Default)]
pub(super) struct Ends {
    everything: bool,
    choices: Vec<u64>,
    /// Choices in which a tool call begins, which ends what came before it.
    interrupted: Vec<u64>,
    /// The tool calls of this chunk.
    calls: Vec<usize>,
    /// Those whose arguments have begun, so that their names are at their ends.
    named: Vec<usize>,
}

impl Ends {
    pub fn of(view: &ChunkView<'_>, fields: &mut Fields) -> Result<Self, TooMany> {
        let mut ends = Self { everything: view.is_error() || view.is_count(), ..Self::default() };
        for choice in view.choices() {
            if choice.finish_reason.as_deref().is_some_and(|reason| !reason.is_empty()) {
                ends.choices.push(choice.index);
            }
            let calls = choice.delta.as_ref().and_then(|delta| delta.tool_calls.as_ref());
            for call in calls.into_iter().flatten() {
                let (slot, is_new) = fields.call(choice.index, call)?;
                ends.calls.push(slot);
                if is_new {
                    ends.interrupted.push(choice.index);
                }
                if call.function.as_ref().is_some_and(|function| function.arguments.is_some()) {
                    ends.named.push(slot);
                }
            }
        }
        Ok(ends)
    }

    pub fn is_none(&self) -> bool {
        !self.everything && self.choices.is_empty() && self.interrupted.is_empty()
    }

    pub fn ends(&self, field: &Field) -> bool {
        let has = |calls: &[usize]| field.call.is_some_and(|call| calls.contains(&call));
        self.everything
            || self.choices.contains(&field.choice)
            || (self.interrupted.contains(&field.choice) && !has(&self.calls))
            || (field.is_name && has(&self.named))
    }
}

impl Fields {
    /// The call that this is a piece of, and whether it is its first.
    fn call(&mut self, choice: u64, delta: &ToolCallDelta<'_>) -> Result<(usize, bool), TooMany> {
        let id = delta.id.as_deref().unwrap_or_default();
        // Some providers number every call 0, and tell them apart by their ids alone.
        let is_same = |call: &Call| {
            (call.choice, call.index) == (choice, delta.index)
                && (id.is_empty() || call.id.is_empty() || call.id == id)
        };
        if let Some(slot) = self.calls.iter().rposition(is_same) {
            if self.calls[slot].id.is_empty() {
                id.clone_into(&mut self.calls[slot].id);
            }
            return Ok((slot, false));
        }
        if self.calls.len() >= MAX_FIELDS {
            return Err(TooMany);
        }
        self.calls.push(Call { choice, index: delta.index, id: id.to_owned() });
        Ok((self.calls.len() - 1, true))
    }

    /// The text that a string at the end of `way` is a piece of, if it comes in pieces.
    pub fn find(
        &mut self,
        json: &[u8],
        way: &[Step],
        view: &ChunkView<'_>,
    ) -> Result<Option<usize>, TooMany> {
        let [top, Step::Element(place), delta, path @ ..] = way else { return Ok(None) };
        let is_in_delta =
            is_member(json, Some(top), "choices") && is_member(json, Some(delta), "delta");
        if !is_in_delta || path.is_empty() {
            return Ok(None);
        }
        let is = |at: usize, name: &str| is_member(json, path.get(at), name);
        let is_name = match path.len() {
            2 => is(0, "function_call") && is(1, "name"),
            4 => is(0, "tool_calls") && is(2, "function") && is(3, "name"),
            _ => false,
        };
        if !is_name && WHOLE.iter().any(|name| is_member(json, path.last(), name)) {
            return Ok(None);
        }
        let choice = view.choices().get(*place);
        let calls = choice.and_then(|choice| choice.delta.as_ref()?.tool_calls.as_ref());
        let index = choice.map_or(*place as u64, |choice| choice.index);
        let call = match path.get(1) {
            Some(Step::Element(call)) if is(0, "tool_calls") => {
                calls.and_then(|calls| calls.get(*call))
            }
            _ => None,
        };
        let slot = call.map(|call| self.call(index, call)).transpose()?.map(|(slot, _)| slot);
        self.opening.clear();
        open(json, path, call.map(|call| call.index), &mut self.opening);
        self.field(index, slot, is_name, path).map(Some)
    }

    fn field(
        &mut self,
        choice: u64,
        call: Option<usize>,
        is_name: bool,
        path: &[Step],
    ) -> Result<usize, TooMany> {
        let is_it = |field: &Field| {
            (field.choice, field.call) == (choice, call) && field.opening == self.opening
        };
        if let Some(found) = self.all.iter().position(is_it) {
            return Ok(found);
        }
        if self.all.len() >= MAX_FIELDS {
            return Err(TooMany);
        }
        let bracket = |step: &Step| if matches!(step, Step::Element(_)) { ']' } else { '}' };
        // Most answers have one text, and their streams are open for long: no room for more yet.
        if self.all.len() == self.all.capacity() {
            self.all.reserve_exact(1.max(self.all.len() / 2));
        }
        self.all.push(Field {
            choice,
            call,
            is_name,
            opening: self.opening.clone(),
            closing: path.iter().rev().map(bracket).collect(),
            window: Window::default(),
            ahead: Ahead::default(),
        });
        Ok(self.all.len() - 1)
    }
}

/// Writes the beginning of a delta with nothing in it but what is at the end of `path`.
fn open(json: &[u8], path: &[Step], call: Option<u64>, opening: &mut String) {
    for (depth, step) in path.iter().enumerate() {
        match step {
            Step::Element(_) => opening.push('['),
            Step::Member(at) => {
                match call {
                    // Which call it is a piece of.
                    Some(index) if depth == 2 => {
                        opening.extend(["{\"index\":", &index.to_string(), ",\""]);
                    }
                    _ => opening.push_str("{\""),
                }
                opening.push_str(&String::from_utf8_lossy(&json[at.clone()]));
                opening.push_str("\":");
            }
        }
    }
}

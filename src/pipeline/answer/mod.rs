//! Answers without their secrets.
//!
//! A stream's texts come in pieces, and a secret may be cut anywhere: each text (a choice's content,
//! a tool call's arguments) has a [`Window`](crate::redact::Window) of its own. What it holds back
//! leaves in the next chunk that has more of the text, or in one of our own where the text ends.
//! Where a chunk is changed, only the strings at fault are: all its other bytes stay.

mod field;
mod frame;
mod pass;
mod shape;
mod walk;
mod whole;

use std::{borrow::Cow, ops::Range};

use self::{
    field::{Ends, Fields, TooMany},
    frame::{Edits, Frame, event},
    shape::{Fit, Shape},
    walk::{Found, Step, decode, is_member, walk},
};
pub(super) use self::{
    pass::{PassError, let_go, pass},
    whole::redact,
};
use crate::{
    domain::{Denial, Kind},
    provider::{ChunkView, sse::Event},
    redact::{Counts, Depth, Redactor},
};

/// An answer that can't be redacted must not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("the answer has more texts at once than are kept account of")]
    TooManyTexts,
    #[error("redaction left no valid answer")]
    Broken,
    /// The redactor panicked, or its thread is gone.
    #[error("the redactor failed")]
    Failed,
}

impl AnswerError {
    #[must_use]
    pub fn to_denial(self) -> Denial {
        match self {
            Self::TooManyTexts => Denial::new(
                Kind::UpstreamInvalid,
                "The model's provider sent more texts at once than can be passed on.",
            ),
            Self::Broken | Self::Failed => Denial::new(
                Kind::Internal,
                "The answer could not be redacted, so it was not passed on.",
            ),
        }
    }
}

impl From<TooMany> for AnswerError {
    fn from(_: TooMany) -> Self {
        Self::TooManyTexts
    }
}

/// What becomes of a chunk.
#[derive(Debug)]
pub enum Taken {
    /// It may go on as it is.
    Untouched,
    /// These go on in its place.
    Replaced(Vec<Event>),
}

/// The state of a streamed answer.
///
/// A chunk of which a text was changed has `logprobs` of null in that choice: they would tell the
/// secret token by token.
#[derive(Debug, Default)]
pub struct AnswerStream {
    fields: Fields,
    /// The last chunk that was not changed: nearly every one is like the one before it.
    shape: Shape,
    /// For chunks of our own; made when first something is held.
    frame: Option<Frame>,
    counts: Counts,
    /// Something went wrong half way: what is held is not to be trusted.
    is_broken: bool,
}

/// A string of a chunk.
struct Leaf {
    at: Range<usize>,
    /// The place of its choice in `choices`.
    place: Option<usize>,
    role: Role,
}

enum Role {
    /// A piece of this field.
    Piece(usize),
    /// All of a text, or a name.
    Whole,
    /// All of a text at the top.
    Top,
    Logprobs,
}

impl AnswerStream {
    /// Takes in a chunk.
    ///
    /// # Errors
    /// [`AnswerError`]: nothing more of this answer may go out.
    pub fn take(
        &mut self,
        redactor: &Redactor,
        chunk: &Event,
        view: &ChunkView<'_>,
    ) -> Result<Taken, AnswerError> {
        // Until it is through: a panic must not let go what is held.
        if std::mem::replace(&mut self.is_broken, true) {
            return Err(AnswerError::Broken);
        }
        let taken = match self.take_alike(redactor, &chunk.data) {
            Some(taken) => taken,
            None => self.take_any(redactor, chunk, view)?,
        };
        self.is_broken = false;
        Ok(taken)
    }

    /// The end of the answer, whatever it may be: what is held goes on. A secret that has come
    /// only in part is judged as one at a text's end.
    pub fn finish(&mut self, redactor: &Redactor) -> Vec<Event> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Vec::new();
        }
        let Self { fields, frame, counts, .. } = self;
        let held = fields.all.iter_mut();
        let held = held.filter_map(|field| field.flush(redactor, frame.as_ref(), counts)).collect();
        self.is_broken = false;
        held
    }

    /// How many secrets each rule found so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A chunk that differs from the last one in a piece of the same text alone.
    fn take_alike(&mut self, redactor: &Redactor, data: &[u8]) -> Option<Taken> {
        let Fit { at, field, other } = self.shape.fits(data)?;
        if other
            .is_some_and(|other| !redactor.engine().find(&data[other], Depth::Formats).is_empty())
        {
            return None;
        }
        let piece = decode(data, at.clone());
        let mut out = String::new();
        let field = &mut self.fields.all[field];
        if !field.take(redactor, (&piece, false), &mut out, &mut self.counts) {
            return Some(Taken::Untouched);
        }
        let is_idle = field.is_idle();
        let mut edits = Edits::default();
        edits.string(&at, &out);
        let data = edits.apply(data);
        if !is_idle {
            self.frame.get_or_insert_with(|| Frame::of(&data));
        }
        Some(Taken::Replaced(vec![event(data)]))
    }

    fn take_any(
        &mut self,
        redactor: &Redactor,
        chunk: &Event,
        view: &ChunkView<'_>,
    ) -> Result<Taken, AnswerError> {
        let ends = Ends::of(view, &mut self.fields)?;
        let leaves = self.leaves(&chunk.data, view)?;
        let edits = self.redact(redactor, &chunk.data, &leaves, &ends);
        let mut events = self.flush(redactor, &ends);
        self.remember(&chunk.data, &leaves, &ends, &edits);
        if edits.is_empty() && events.is_empty() {
            return Ok(Taken::Untouched);
        }
        if edits.is_empty() {
            events.push(chunk.clone());
            return Ok(Taken::Replaced(events));
        }
        let data = edits.apply(&chunk.data);
        ChunkView::parse(&data).map_err(|_| AnswerError::Broken)?;
        if self.fields.all.iter().any(|field| !field.is_idle()) {
            self.frame.get_or_insert_with(|| Frame::of(&data));
        }
        events.push(Event { name: chunk.name.clone(), ..event(data) });
        Ok(Taken::Replaced(events))
    }

    /// All strings of a chunk, and the `logprobs` of its choices.
    fn leaves(&mut self, data: &[u8], view: &ChunkView<'_>) -> Result<Vec<Leaf>, TooMany> {
        let (mut leaves, mut result) = (Vec::with_capacity(32), Ok(()));
        walk(data, |kind, at, way| {
            let place = match way {
                [top, Step::Element(place), ..] if is_member(data, Some(top), "choices") => {
                    Some(*place)
                }
                _ => None,
            };
            let role = match kind {
                Found::Name => Role::Whole,
                Found::Text => match self.fields.find(data, way, view) {
                    Ok(Some(field)) => Role::Piece(field),
                    Ok(None) if way.len() == 1 => Role::Top,
                    Ok(None) => Role::Whole,
                    Err(error) => {
                        result = Err(error);
                        return;
                    }
                },
                Found::Container
                    if place.is_some()
                        && way.len() == 3
                        && is_member(data, way.last(), "logprobs") =>
                {
                    Role::Logprobs
                }
                Found::Scalar | Found::Container => return,
            };
            leaves.push(Leaf { at, place, role });
        });
        result.map(|()| leaves)
    }

    fn redact(&mut self, redactor: &Redactor, data: &[u8], leaves: &[Leaf], ends: &Ends) -> Edits {
        let (mut edits, mut changed) = (Edits::default(), Vec::new());
        for Leaf { at, place, role } in leaves {
            let mut out = String::new();
            let is_changed = match role {
                Role::Logprobs => false,
                Role::Piece(field) => {
                    let field = &mut self.fields.all[*field];
                    let piece = (&*decode(data, at.clone()), ends.ends(field));
                    field.take(redactor, piece, &mut out, &mut self.counts)
                }
                Role::Whole | Role::Top => {
                    let text = decode(data, at.clone());
                    match redactor.redact_text(&text, Depth::Formats, &mut self.counts) {
                        Cow::Borrowed(_) => false,
                        Cow::Owned(redacted) => {
                            out = redacted;
                            true
                        }
                    }
                }
            };
            if is_changed {
                edits.string(at, &out);
                changed.extend(*place);
            }
        }
        for Leaf { at, place, role } in leaves {
            if matches!(role, Role::Logprobs) && place.is_some_and(|it| changed.contains(&it)) {
                edits.null(at.clone());
            }
        }
        edits
    }

    /// Chunks with what is held of the texts that end here.
    fn flush(&mut self, redactor: &Redactor, ends: &Ends) -> Vec<Event> {
        let Self { fields, frame, counts, .. } = self;
        let ending = fields.all.iter_mut().filter(|field| ends.ends(field));
        ending.filter_map(|field| field.flush(redactor, frame.as_ref(), counts)).collect()
    }

    /// A chunk with just one piece of text, in which nothing else was changed, and nothing ends.
    fn remember(&mut self, data: &[u8], leaves: &[Leaf], ends: &Ends, edits: &Edits) {
        self.shape.forget();
        let mut pieces = leaves.iter().filter_map(|leaf| match leaf.role {
            Role::Piece(field) if !leaf.at.is_empty() => Some((field, &leaf.at)),
            _ => None,
        });
        let has_logprobs = || leaves.iter().any(|leaf| matches!(leaf.role, Role::Logprobs));
        if let (Some((field, at)), None) = (pieces.next(), pieces.next())
            && ends.is_none()
            && !ends.ends(&self.fields.all[field])
            && edits.is_only(at)
            && !has_logprobs()
        {
            let tops = leaves.iter().filter(|leaf| matches!(leaf.role, Role::Top));
            self.shape.remember(data, at, field, tops.map(|leaf| &leaf.at).next_back());
        }
    }
}

//! A panic as one line of the log, instead of std's several.

use std::{
    any::Any,
    borrow::Cow,
    panic::{self, PanicHookInfo},
    thread,
};

use crate::redact::{Depth, LiveRedactor, MAX_CANDIDATE_BYTES};

/// A message is cut here.
const MAX_MESSAGE_BYTES: usize = 120;

/// Sends this process's panics to the log from now on, and no longer to stderr.
pub fn log_panics(redactor: LiveRedactor) {
    panic::set_hook(Box::new(move |info| log(info, &redactor)));
}

fn log(info: &PanicHookInfo<'_>, redactor: &LiveRedactor) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let current = thread::current();
    tracing::error!(
        target: "tollgate::panic",
        location,
        thread = current.name().unwrap_or_default(),
        message = message(info.payload(), redactor).as_ref(),
    );
}

/// What the panic says, without the data that it may say it of.
///
/// A literal is kept. A formatted message is kept up to where std's own begin to print values:
/// `called Result::unwrap() on an Err value: …`, `byte index 1 is not a char boundary; it is
/// inside …`, `end byte index 9 is out of bounds of …`.
fn message<'a>(payload: &'a dyn Any, redactor: &LiveRedactor) -> Cow<'a, str> {
    let kept = match (payload.downcast_ref::<&'static str>(), payload.downcast_ref::<String>()) {
        (Some(literal), _) => literal,
        (_, Some(formatted)) => {
            let ends = [": ", "; ", " of `"].map(|mark| formatted.find(mark));
            &formatted[..ends.into_iter().flatten().min().unwrap_or(formatted.len())]
        }
        _ => "",
    };
    // Before it is cut: half a secret is none that a rule knows.
    let bounded = &kept[..kept.floor_char_boundary(MAX_MESSAGE_BYTES + MAX_CANDIDATE_BYTES)];
    match redactor.redact(bounded, Depth::Formats) {
        Cow::Borrowed(kept) => Cow::Borrowed(cut(kept)),
        Cow::Owned(kept) => Cow::Owned(cut(&kept).to_owned()),
    }
}

fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)]
}

//! A panic as one line of the log, instead of std's several.

use std::{
    any::Any,
    panic::{self, PanicHookInfo},
    thread,
};

/// A message is cut here.
const MAX_MESSAGE_BYTES: usize = 120;

/// Sends this process's panics to the log from now on, and no longer to stderr.
pub fn log_panics() {
    panic::set_hook(Box::new(log));
}

fn log(info: &PanicHookInfo<'_>) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let current = thread::current();
    tracing::error!(
        target: "tollgate::panic",
        location,
        thread = current.name().unwrap_or_default(),
        message = message(info.payload()),
    );
}

/// What the panic says, without the data that it may say it of.
///
/// A literal is kept. A formatted message is kept up to where std's own begin to print values:
/// `called Result::unwrap() on an Err value: …`, `byte index 1 is not a char boundary; it is
/// inside …`, `end byte index 9 is out of bounds of …`.
fn message(payload: &dyn Any) -> &str {
    let kept = match (payload.downcast_ref::<&'static str>(), payload.downcast_ref::<String>()) {
        (Some(literal), _) => literal,
        (_, Some(formatted)) => {
            let ends = [": ", "; ", " of `"].map(|mark| formatted.find(mark));
            &formatted[..ends.into_iter().flatten().min().unwrap_or(formatted.len())]
        }
        _ => "",
    };
    &kept[..kept.floor_char_boundary(MAX_MESSAGE_BYTES)]
}

//! The redactor of now, for whoever writes down or tells what strangers may have said.

use std::{borrow::Cow, fmt, sync::Arc};

use arc_swap::ArcSwapOption;

use super::{Counts, Depth, Redactor, request::replace, search::search};

/// A handle to the redactor that the running configuration asks for. A reload swaps it for all who
/// hold one. Cheap to clone.
///
/// Until the gateway has its rules there is none, and text passes as it is: what is said by then
/// is our own.
#[derive(Clone, Default)]
pub struct LiveRedactor(Arc<ArcSwapOption<Redactor>>);

impl fmt::Debug for LiveRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveRedactor")
    }
}

impl LiveRedactor {
    pub fn set(&self, redactor: Arc<Redactor>) {
        self.0.store(Some(redactor));
    }

    /// The redactor of now, for several texts of one moment.
    #[must_use]
    pub fn now(&self) -> Option<Arc<Redactor>> {
        self.0.load_full()
    }

    /// `text` without its secrets; at [`Depth::Complete`] also without those that it holds
    /// percent-encoded, in base64 or in JSON. Takes no lock, and logs nothing.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str, depth: Depth) -> Cow<'a, str> {
        match &*self.0.load() {
            Some(redactor) => redactor.redact_all(text, depth),
            None => Cow::Borrowed(text),
        }
    }

    /// Has `text` a secret in it?
    #[must_use]
    pub fn finds(&self, text: &str, depth: Depth) -> bool {
        self.changed(text, depth).is_some()
    }

    /// `text` without its secrets, or `None` where it has none.
    #[must_use]
    pub fn changed(&self, text: &str, depth: Depth) -> Option<String> {
        match self.redact(text, depth) {
            Cow::Owned(redacted) => Some(redacted),
            Cow::Borrowed(_) => None,
        }
    }
}

impl Redactor {
    /// As [`LiveRedactor::redact`].
    #[must_use]
    pub fn redact_all<'a>(&self, text: &'a str, depth: Depth) -> Cow<'a, str> {
        if depth == Depth::Formats {
            return self.redact_text(text, depth, &mut Counts::new());
        }
        let found = search(self, text.as_bytes(), depth);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(String::from_utf8_lossy(&replace(text.as_bytes(), &found)).into_owned())
    }

    /// As [`Redactor::redact_all`], in place.
    pub fn redact_in_place(&self, text: &mut String, depth: Depth) {
        if let Cow::Owned(redacted) = self.redact_all(text, depth) {
            *text = redacted;
        }
    }

    /// Has `text` a secret in it?
    #[must_use]
    pub fn finds(&self, text: &str, depth: Depth) -> bool {
        matches!(self.redact_all(text, depth), Cow::Owned(_))
    }
}

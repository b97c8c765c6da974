//! What was asked and answered, beside what tells of it.

use std::collections::HashMap;

use serde::Serialize;

use crate::audit::query::{AuditQuery, CONTENT_ENTRIES, FilterError, QueryError, StoredContent};

/// One side of a content, in an entry's or a run's JSON.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Side {
    text: String,
    /// Of the whole.
    bytes: Option<i64>,
    truncated: bool,
}

/// Both sides, as far as they are kept.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Sides {
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Side>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Side>,
}

/// Something with its content.
#[derive(Debug, Serialize)]
pub(super) struct WithContent<'a, T> {
    #[serde(flatten)]
    pub(super) told: &'a T,
    #[serde(flatten)]
    pub(super) sides: Option<Sides>,
}

/// The contents of these entries, by their ids.
pub(super) async fn contents(
    trail: &dyn AuditQuery,
    entry_ids: &[&str],
) -> Result<HashMap<String, Sides>, QueryError> {
    let mut found: HashMap<String, Sides> = HashMap::new();
    for part in entry_ids.chunks(CONTENT_ENTRIES as usize) {
        for content in trail.contents(part).await? {
            let StoredContent { entry_id, is_input, text, full_bytes } = content;
            let truncated =
                full_bytes.is_some_and(|bytes| usize::try_from(bytes) != Ok(text.len()));
            let side = Some(Side { text, bytes: full_bytes, truncated });
            let sides = found.entry(entry_id).or_default();
            if is_input { sides.input = side } else { sides.output = side }
        }
    }
    Ok(found)
}

/// The parameter `content`.
pub(super) fn read(value: &str) -> Result<bool, FilterError> {
    super::params::read("content", value, "true or false", |_| true)
}

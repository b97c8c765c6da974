//! A whole answer, good or bad.

use bytes::Bytes;

use super::{frame::Edits, walk::{Kind, Step, decode, is_member, walk}};
use crate::{
    domain::{Denial, Kind as DenialKind, search_unescaped},
    pipeline::{Ending, Snapshot},
    provider::Complete,
    redact::{Counts, Depth, Redactor},
};

//! The parameters of questions, as they come and as they are described.

use std::str::FromStr;

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use utoipa::{
    IntoParams,
    openapi::{
        KnownFormat, Object, ObjectBuilder, Required, Schema, SchemaFormat, Type,
        path::{Parameter, ParameterBuilder, ParameterIn},
        schema::AnyOfBuilder,
    },
};

use crate::{
    audit::{
        EntryKind,
        query::{Dimension, Field, FilterError, MAX_VALUE_CHARS},
    },
    domain::{Denial, Kind},
    http::ApiError,
};

/// The parameters behind a path's `?`: each at most once.
#[derive(Debug)]
pub struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Query(pairs) = pairs.map_err(|_| {
            ApiError::new(Kind::InvalidRequest, "What is behind the path's `?` is not understood.")
        })?;
        Ok(Self(pairs))
    }
}

impl Params {
    /// Gives each to `take`, which says whether it knows it.
    pub(super) fn each(
        self,
        mut take: impl FnMut(&str, &str) -> Result<bool, FilterError>,
    ) -> Result<(), ApiError> {
        for (at, (name, value)) in self.0.iter().enumerate() {
            if self.0[..at].iter().any(|(other, _)| other == name) {
                return Err(invalid(name, "This parameter came twice; give it once."));
            }
            let is_known =
                take(name, value).map_err(|error| invalid(error.name, &format!("{error}.")))?;
            if !is_known {
                return Err(invalid(name, "There is no such parameter; /docs lists them."));
            }
        }
        Ok(())
    }
}

fn invalid(name: &str, message: &str) -> ApiError {
    let name: String = name.chars().take(64).collect();
    Denial::new(Kind::InvalidRequest, message).with_param(name).into()
}

/// Reads a number, a cursor or a switch.
pub(super) fn read<T: FromStr>(
    name: &'static str,
    value: &str,
    expected: &'static str,
    is_fit: impl FnOnce(&T) -> bool,
) -> Result<T, FilterError> {
    let read = value.parse().ok().filter(is_fit);
    read.ok_or(FilterError { name, expected })
}

/// Describes a parameter of a query.
fn describe(name: &str, schema: Schema, about: &str, example: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(about))
        .schema(Some(schema))
        .example(Some(example.into()))
        .build()
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// A time, or how long ago it was.
fn time() -> Schema {
    let moment = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    let ago = text().pattern(Some("^[0-9]{1,4}[smhdw]$"));
    AnyOfBuilder::new().item(moment).item(ago).into()
}

fn plain() -> Schema {
    text().min_length(Some(1)).max_length(Some(MAX_VALUE_CHARS)).into()
}

/// The time and the fields that entries are filtered by.
pub struct FilterParams;

impl IntoParams for FilterParams {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let mut params = vec![
            describe(
                "from",
                time(),
                "Only entries of this time or later: a time (RFC 3339), or how long ago it was",
                "1h",
            ),
            describe("to", time(), "Only entries from before this time", "2026-11-21T09:00:00Z"),
        ];
        params.extend(Field::ALL.map(field));
        params
    }
}

pub(super) fn field(field: Field) -> Parameter {
    let pattern = |pattern: &str| Schema::from(text().pattern(Some(pattern)));
    let uuid = "0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f";
    let (schema, about, example) = match field {
        Field::CallId => (pattern(UUID), "Only the entries of this call", uuid),
        Field::StreamId => (pattern(UUID), "Only the entries of this native stream", uuid),
        Field::TraceId => (
            pattern("^[0-9a-fA-F]{32}$"),
            "Only the entries of this trace",
            "4bf92f3577b34da6a3ce929d0e0e4736",
        ),
        Field::InputHash => (
            pattern("^[0-9a-fA-F]{64}$"),
            "Only calls whose redacted request body has this SHA-256: was it tried before?",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        Field::RunId => (plain(), "Only the entries of this run (`x-run-id`)", "nightly-42"),
        Field::Tool => (plain(), "Only the entries of calls to this tool", "arcadedb"),
        Field::Subject => (plain(), "Only the entries of this caller", "alice"),
        Field::Agent => (plain(), "Only the entries of this agent", "crawler"),
        Field::Capability => (plain(), "Only calls that this capability admitted", "fleet:write"),
        Field::Model => (plain(), "Only the entries of calls to this model", "demo"),
        Field::Outcome => (
            plain(),
            "Only entries with this outcome: `ok`, `unknown`, or an error's code",
            "budget_exhausted",
        ),
        Field::Kind => (
            text().enum_values(Some(EntryKind::ALL.map(EntryKind::as_str))).into(),
            "Only entries of this kind",
            "settle",
        ),
        Field::Tier => (plain(), "Only the entries of callers of this tier", "pro"),
    };
    describe(field.name(), schema, about, example)
}

const UUID: &str = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";

pub(super) fn content_param() -> Parameter {
    let boolean = ObjectBuilder::new().schema_type(Type::Boolean);
    let about = "With what was asked and answered; takes the capability `audit:content`";
    describe("content", boolean.into(), about, "false")
}

/// The most entries of a page.
pub(super) const LONGEST_PAGE: u32 = 500;

/// 17 bytes, of which the first is 1, in base64url.
const CURSOR: &str = "^A[Q-Za-f][A-Za-z0-9_-]{20}[AEIMQUYcgkosw048]$";

/// How pages are asked for.
pub struct PageParams;

impl IntoParams for PageParams {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let limit: Object = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(LONGEST_PAGE))
            .build();
        vec![
            describe(
                "cursor",
                text().pattern(Some(CURSOR)).into(),
                "Where the page before ended: its `next_cursor`",
                "AQAGQ5vZcAAAAAAAAAAAACo",
            ),
            content_param(),
            describe(
                "limit",
                limit.into(),
                "The most entries; else 100, and in NDJSON all there are",
                "100",
            ),
        ]
    }
}

/// What sums are filtered and grouped by.
pub struct UsageParams;

impl IntoParams for UsageParams {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let day =
            || Schema::from(text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Date))));
        let dimensions = Dimension::ALL.map(Dimension::name).join("|");
        let dimensions = format!("^({dimensions})(,({dimensions}))*$");
        let value = || Schema::from(text().max_length(Some(MAX_VALUE_CHARS)));
        let first = "The first day, in UTC; else 30 days are summed";
        let mut params = vec![
            describe("from", day(), first, "2026-11-01"),
            describe("to", day(), "The last day, in UTC; else today", "2026-11-30"),
            describe(
                "group_by",
                text().pattern(Some(dimensions)).into(),
                "Some of `day`, `subject`, `agent`, `tier`, `model`, `provider`, `capability` and \
                 `cost_center`, separated by commas; else there is one sum",
                "day,model",
            ),
        ];
        params.extend(Dimension::ALL[1..].iter().map(|dimension| {
            let name = dimension.name();
            let about = format!(
                "Only calls of this {}; empty: only those that have none",
                name.replace('_', " ")
            );
            describe(name, value(), &about, name)
        }));
        params
    }
}

//! What was spent: sums of the calls that have ended, by day and by who made them.

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use serde::Serialize;

use super::FilterError;

/// The most groups that an answer has.
pub const MAX_GROUPS: u32 = 1_000;
/// The days that are summed where no others are asked for.
const DAYS: i64 = 30;

/// What sums can be grouped and filtered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// In UTC, as the call ended.
    Day,
    Subject,
    Agent,
    Tier,
    Model,
    Provider,
    Capability,
    CostCenter,
}

impl Dimension {
    pub const ALL: [Self; 8] = [
        Self::Day,
        Self::Subject,
        Self::Agent,
        Self::Tier,
        Self::Model,
        Self::Provider,
        Self::Capability,
        Self::CostCenter,
    ];

    /// The word in the API and on the command line, and the column in every store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Subject => "subject",
            Self::Agent => "agent",
            Self::Tier => "tier",
            Self::Model => "model",
            Self::Provider => "provider",
            Self::Capability => "capability",
            Self::CostCenter => "cost_center",
        }
    }
}

/// A parameter of a question for usage that can't be taken.
pub type UsageError = FilterError;

/// Which calls are summed, and in which groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFilter {
    /// The first and the last day, in UTC.
    pub from: Date,
    pub to: Date,
    /// Without repetition. None: all in one group.
    pub group_by: Vec<Dimension>,
    /// Each dimension at most once, [`Dimension::Day`] never.
    terms: Vec<(Dimension, String)>,
}

impl UsageFilter {
    /// All of the last 30 days up to `now`.
    #[must_use]
    pub fn until(now: Timestamp) -> Self {
        let to = now.to_zoned(TimeZone::UTC).date();
        let from = to.checked_sub((DAYS - 1).days()).unwrap_or(to);
        Self { from, to, group_by: Vec::new(), terms: Vec::new() }
    }

    #[must_use]
    pub fn terms(&self) -> &[(Dimension, String)] {
        &self.terms
    }

    /// Sets the parameter `name`, if there is one of that name; says whether there is.
    ///
    /// # Errors
    /// [`UsageError`], of a value that `name` can't have.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, UsageError> {
        let day = |name| value.parse().map_err(|_| FilterError { name, expected: A_DAY });
        match name {
            "from" => self.from = day("from")?,
            "to" => self.to = day("to")?,
            "group_by" => self.group_by = read_dimensions(value)?,
            _ => {
                let named = |dimension: &&Dimension| dimension.name() == name;
                let dimension = Dimension::ALL[1..].iter().find(named);
                let Some(dimension) = dimension else { return Ok(false) };
                let is_fit = value.chars().count() <= super::MAX_VALUE_CHARS;
                let error = FilterError { name: dimension.name(), expected: "0 to 512 characters" };
                let value = is_fit.then(|| value.replace('\0', "\u{fffd}")).ok_or(error)?;
                self.terms.retain(|(other, _)| other != dimension);
                self.terms.push((*dimension, value));
            }
        }
        Ok(true)
    }
}

const A_DAY: &str = "a day such as 2026-11-21";
const DIMENSIONS: &str = "some of day, subject, agent, tier, model, provider, capability and \
    cost_center, separated by commas";

fn read_dimensions(text: &str) -> Result<Vec<Dimension>, UsageError> {
    let mut found = Vec::new();
    for word in text.split(',').filter(|_| !text.is_empty()) {
        let dimension = Dimension::ALL.into_iter().find(|dimension| dimension.name() == word);
        let error = FilterError { name: "group_by", expected: DIMENSIONS };
        let dimension = dimension.ok_or(error)?;
        if !found.contains(&dimension) {
            found.push(dimension);
        }
    }
    Ok(found)
}

/// Of calls that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Sums {
    pub calls: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub cached_input_tokens: i64,
    pub cost_micro_usd: i64,
}

/// The calls that have the same in every dimension that is grouped by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageGroup {
    /// In the order of [`UsageFilter::group_by`]; `None` where the calls have none.
    pub key: Vec<Option<String>>,
    pub sums: Sums,
}

/// What was spent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    pub total: Sums,
    /// Earlier days first where it is grouped by day, then what costs more.
    pub groups: Vec<UsageGroup>,
    /// Are there more groups, of which each costs no more than these?
    pub is_cut: bool,
}

impl Usage {
    /// From at most [`MAX_GROUPS`] and one more groups, those that cost the most first.
    #[must_use]
    pub fn new(filter: &UsageFilter, total: Sums, mut groups: Vec<UsageGroup>) -> Self {
        let most = MAX_GROUPS as usize;
        let is_cut = groups.len() > most;
        groups.truncate(most);
        if let Some(day) = filter.group_by.iter().position(|one| *one == Dimension::Day) {
            groups.sort_by(|a, b| a.key[day].cmp(&b.key[day]));
        }
        Self { total, groups, is_cut }
    }
}

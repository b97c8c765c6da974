//! Calendar windows: which one a moment lies in, and when it ends. UTC, without leap seconds.

use super::Period;

const SECOND_MICROS: u64 = 1_000_000;
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;

/// A window by its number: hours and days since 1970, months since year 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub index: u64,
    pub start_micros: u64,
    pub end_micros: u64,
}

impl Window {
    /// The window that `now_micros` (since 1970) lies in.
    #[must_use]
    pub fn at(period: Period, now_micros: u64) -> Self {
        let now_s = now_micros / SECOND_MICROS;
        let (index, start_s, end_s) = match period {
            Period::Hour => fixed(now_s, HOUR_S),
            Period::Day => fixed(now_s, DAY_S),
            Period::Month => month(now_s / DAY_S),
        };
        Self { index, start_micros: start_s * SECOND_MICROS, end_micros: end_s * SECOND_MICROS }
    }
}

/// How long a window is, in seconds; the longest, where they differ.
pub(super) const fn length_s(period: Period) -> u64 {
    match period {
        Period::Hour => HOUR_S,
        Period::Day => DAY_S,
        Period::Month => 31 * DAY_S,
    }
}

const fn fixed(now_s: u64, length_s: u64) -> (u64, u64, u64) {
    let index = now_s / length_s;
    (index, index * length_s, (index + 1) * length_s)
}

fn month(day: u64) -> (u64, u64, u64) {
    // The years begin in March, so that the leap day is a year's last: "days from civil" by Howard
    // Hinnant, https://howardhinnant.github.io/date_algorithms.html.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let index = (era * 400 + year_of_era) * 12 + month;
    (index, month_start(index) * DAY_S, month_start(index + 1) * DAY_S)
}

/// The day on which a month begins, the months being counted from March of year 0.
const fn month_start(index: u64) -> u64 {
    let (year, month) = (index / 12, index % 12);
    let (era, of_era) = (year / 400, year % 400);
    let day = (153 * month + 2) / 5 + 365 * of_era + of_era / 4 - of_era / 100;
    era * 146_097 + day - 719_468
}

//! The API's filters as options.

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind};
use jiff::Timestamp;

use crate::audit::query::{Field, Filter};

/// `--from`, `--to`, and one option for each [`Field`]: as the API has them, since they are made from
/// the same list.
#[derive(Debug, Clone, Default)]
pub struct FilterOptions(pub Filter);

const FROM: &str =
    "Only entries of this time or later: 2026-11-21T09:00:00Z, or 1h for an hour ago";
const TO: &str = "Only entries from before this time";

impl Args for FilterOptions {
    fn augment_args(command: Command) -> Command {
        let option = |name: &'static str, help: String| {
            Arg::new(name).long(name.replace('_', "-")).value_name("VALUE").help(help)
        };
        let field = |field: Field| {
            let name = field.name();
            option(name, format!("Only entries of this {}", name.replace('_', " ")))
                .help_heading("Filters")
        };
        command
            .arg(option("from", FROM.to_owned()).value_name("TIME").help_heading("Filters"))
            .arg(option("to", TO.to_owned()).value_name("TIME").help_heading("Filters"))
            .args(Field::ALL.map(field))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (mut filter, now) = (Filter::default(), Timestamp::now());
        for name in ["from", "to"].into_iter().chain(Field::ALL.map(Field::name)) {
            if let Some(value) = matches.get_one::<String>(name) {
                filter.set(name, value, now).map_err(|error| {
                    let option = error.name.replace('_', "-");
                    let message = format!("--{option} must be {}\n", error.expected);
                    Error::raw(ErrorKind::ValueValidation, message)
                })?;
            }
        }
        Ok(Self(filter))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

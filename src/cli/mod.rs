//! The commands of the binary: what they take, and what they do with it.

pub mod audit;
mod budget;
pub mod check_config;
mod dev;
mod file_limit;
mod mint_token;
mod redact;
mod serve;
mod verify;

use std::{
    fmt::Display,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use tokio::runtime::Runtime;

use crate::{
    config::{self, AuditConfig, AuditStore},
    http,
    storage::{ask_trail, postgres, sqlite},
};

/// A gateway between agents and what they spend: models and tools.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    after_help = "\
Examples:
  tollgate dev                                 try it: no service and no key needed
  tollgate serve --config tollgate.toml        run it
  tollgate check-config --config tollgate.toml say what is wrong with a configuration
  tollgate redact --explain < prompt.txt       say which secrets would not leave
  tollgate audit tail --follow                 watch who spends what"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    #[command(after_help = "\
Examples:
  tollgate serve --config /etc/tollgate/tollgate.toml
  TOLLGATE__SERVER__LISTEN=0.0.0.0:8080 tollgate serve

SIGHUP, or a change of the file, reloads models, providers, tiers, tools, redaction and the deny
list. SIGTERM drains for server.drain_s seconds and ends.")]
    Serve(ConfigFile),
    /// Run a gateway to try out, with an issuer, models and a token of its own
    #[command(after_help = "\
Examples:
  tollgate dev                                       models that answer from the prompt
  tollgate dev --upstream http://127.0.0.1:11434/v1  in front of a real server (here: Ollama)
  TOLLGATE_UPSTREAM_KEY=sk-… tollgate dev --upstream https://api.openai.com/v1 --model gpt-5-mini")]
    Dev(dev::Options),
    /// Say whether `serve` would start with a configuration, and every error if not
    #[command(after_help = "\
Example:
  tollgate check-config --config tollgate.toml && systemctl reload tollgate")]
    CheckConfig(ConfigFile),
    /// Print a token, signed by the dev issuer or by a key of yours
    #[command(after_help = "\
Examples:
  tollgate mint-token --capability model:reasoning      for the dev gateway
  tollgate mint-token --subject ci --tier free --capability model:reasoning --ttl 10m
  tollgate mint-token --key issuer.pem --issuer https://bff.example --agent reviewer --trust L1")]
    MintToken(mint_token::Options),
    /// Take secrets out of a text, by the rules that hold for requests and answers
    #[command(after_help = "\
Examples:
  tollgate redact < prompt.txt                            the text without its secrets
  tollgate redact --explain prompt.txt > /dev/null        where each is, and by which rule
  git diff --cached | tollgate redact --check > /dev/null  exits with 1 if there is one
  tail -f app.log | tollgate redact --tier 1              a stream without an end
  tollgate redact --config tollgate.toml < prompt.txt     with own rules, and the gateway's key
  tollgate redact --rules                                 which rules there are

With --tier 1 a text of any length is read as a stream, in constant memory. Tier 2 and --explain
need the whole of it: at most 64 MiB. Without --config the key of the placeholders is made anew each
time. The text is looked at as it stands: a request's JSON is looked at deeper, string by string.

Exits with 0; with 1 if --check has found a secret or the text can't be read; with 2 on a wrong
option.")]
    Redact(redact::Options),
    /// Bring the audit database to this version's schema (`serve` does so by itself)
    #[command(after_help = "\
Examples:
  tollgate migrate --config tollgate.toml
  TOLLGATE__AUDIT__OWNER_URL=postgres://… tollgate migrate --config tollgate.toml
  tollgate migrate --path data/tollgate.db

In Postgres it needs a role that may make the schema: that of audit.owner_url. It gives the role of
audit.url what the gateway needs: to add rows and to read them.")]
    Migrate(Database),
    /// Print the `OpenAPI` document
    #[command(after_help = "\
Example:
  tollgate openapi > openapi/tollgate.json")]
    Openapi,
    /// Look at the audit trail
    #[command(
        subcommand,
        after_help = "\
Example:
  tollgate audit tail --follow"
    )]
    Audit(AuditCommand),
    /// Look at budgets
    #[command(
        subcommand,
        after_help = "\
Example:
  tollgate budget show --agent crawler"
    )]
    Budget(BudgetCommand),
}

#[derive(Debug, Subcommand)]
enum BudgetCommand {
    /// Print how the budgets and limits of an agent stand, as a running gateway has them
    #[command(after_help = "\
Examples:
  tollgate budget show --agent crawler
  tollgate budget show --agent crawler --admin 10.0.0.7:9090 --json | jq '.data[].remaining'

It asks the gateway's admin port, which knows the agents whose calls it has seen since its start.")]
    Show(ShowOptions),
}

#[derive(Debug, Args)]
struct ShowOptions {
    /// The agent, or the subject of tokens that name none
    #[arg(long)]
    agent: String,
    /// The gateway's admin port: `server.admin_listen`
    #[arg(long, default_value = "127.0.0.1:9090")]
    admin: SocketAddr,
    /// The gateway's JSON instead of columns
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Print the newest entries
    #[command(after_help = "\
Examples:
  tollgate audit tail --follow
  tollgate audit tail --follow --subject alice --outcome budget_exhausted
  tollgate audit tail -n 100 --json | jq 'select(.kind == \"denied\")'")]
    Tail(TailOptions),
    /// Write every entry, or those of a filter, for other programs
    #[command(after_help = "\
Examples:
  tollgate audit export --format csv --from 7d > week.csv
  tollgate audit export --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z | gzip > november.gz
  tollgate audit export --run-id nightly-42 | jq .outcome

Oldest first, in constant memory, beside a gateway that runs.")]
    Export(ExportOptions),
    /// Check the trail: its chain, and the checkpoints over it
    #[command(after_help = "\
Examples:
  tollgate audit verify --config tollgate.toml
  tollgate audit verify --path copy.db --checkpoints checkpoints.jsonl --public-key checkpoint.pub
  tollgate audit verify --config tollgate.toml --from 2026-07-01 --to 2026-07-02 --json
  tollgate audit verify --config tollgate.toml --content

Each finding names the row or the checkpoint. Without --config, checkpoints and key are looked for
beside the database. What it proves, and what it can't: README.md, \"The audit trail\".

Exits with 0 if all is as it was written; with 1 if anything is not; with 2 on a wrong option, or
where something can't be read.")]
    Verify(verify::Options),
    /// Print the public key of the checkpoints, for `audit verify`
    #[command(after_help = "\
Example:
  tollgate audit public-key --config tollgate.toml > checkpoint.pub")]
    PublicKey(Database),
}

#[derive(Debug, Args)]
struct TailOptions {
    #[command(flatten)]
    database: Database,
    /// How many of the newest entries to begin with
    #[arg(short = 'n', long, default_value_t = 20)]
    lines: u32,
    /// Go on with new ones as they come
    #[arg(short, long)]
    follow: bool,
    /// JSON lines instead of columns
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: audit::FilterOptions,
}

#[derive(Debug, Args)]
struct ExportOptions {
    #[command(flatten)]
    database: Database,
    /// JSON, an object a line, as the API has them; or a heading and a line an entry (RFC 4180),
    /// where texts that a spreadsheet would take for a formula get a ' in front
    #[arg(long, value_enum, default_value_t = audit::Format::Jsonl)]
    format: audit::Format,
    #[command(flatten)]
    filter: audit::FilterOptions,
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration
    #[arg(short, long, default_value = "tollgate.toml", env = "TOLLGATE_CONFIG")]
    config: PathBuf,
}

/// Where the audit database is: given, or as a configuration says.
#[derive(Debug, Args)]
struct Database {
    /// The database [default: audit.path of --config, else data/tollgate.db]
    #[arg(long)]
    path: Option<PathBuf>,
    /// The configuration to take audit.path from, where there is no --path
    #[arg(short, long, env = "TOLLGATE_CONFIG")]
    config: Option<PathBuf>,
}

impl Database {
    /// The `[audit]` that says where it is.
    fn audit(&self) -> Result<AuditConfig, Failure> {
        match (&self.path, &self.config) {
            (Some(path), _) => Ok(AuditConfig { path: path.clone(), ..AuditConfig::default() }),
            (None, Some(file)) => Ok(config::load(file, config::environment())?.audit),
            (None, None) => Ok(AuditConfig::default()),
        }
    }
}

/// Why a command failed, for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve(file) => serve::run(&file.config),
        Command::Dev(options) => dev::run(&options),
        Command::CheckConfig(file) => {
            let (mut out, mut err) = (io::stdout(), io::stderr());
            return check_config::run(&file.config, config::environment(), &mut out, &mut err);
        }
        Command::MintToken(options) => mint_token::run(&options),
        Command::Redact(options) => match redact::run(&options) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Migrate(database) => migrate(&database),
        Command::Openapi => openapi(),
        Command::Audit(AuditCommand::Tail(options)) => tail(options),
        Command::Audit(AuditCommand::Export(options)) => export(options),
        Command::Audit(AuditCommand::Verify(options)) => return verify::run(options),
        Command::Audit(AuditCommand::PublicKey(database)) => verify::public_key(&database),
        Command::Budget(BudgetCommand::Show(asked)) => {
            budget::show(asked.admin, &asked.agent, asked.json, &mut io::stdout())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            ExitCode::FAILURE
        }
    }
}

fn migrate(database: &Database) -> Result<(), Failure> {
    let (audit, runtime) = (database.audit()?, runtime()?);
    match audit.store {
        AuditStore::Sqlite => {
            let applied = runtime.block_on(sqlite::migrate(&audit.path))?;
            say(&format_args!("{}: {applied} migrations applied", audit.path.display()))
        }
        AuditStore::Postgres => {
            let applied = runtime.block_on(postgres::migrate(&audit))?;
            say(&format_args!("audit.url: {applied} migrations applied"))
        }
    }
}

fn openapi() -> Result<(), Failure> {
    say(&http::document().to_pretty_json()?)
}

fn tail(options: TailOptions) -> Result<(), Failure> {
    let store = options.database.audit()?;
    let TailOptions { lines: count, follow, json, filter, .. } = options;
    let asked = audit::Tail { filter: filter.0, count, follow, json };
    runtime()?.block_on(async {
        let trail = ask_trail(&store).await?;
        Ok(audit::tail(&*trail, &asked, &mut io::stdout()).await?)
    })
}

fn export(options: ExportOptions) -> Result<(), Failure> {
    let store = options.database.audit()?;
    let asked = audit::Export { format: options.format, filter: options.filter.0 };
    runtime()?.block_on(async {
        let trail = ask_trail(&store).await?;
        Ok(audit::export(&*trail, &asked, &mut io::stdout()).await?)
    })
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Prints to stdout what was asked for. A reader that has gone is no failure of ours.
fn say(text: &dyn Display) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn complain(failure: &Failure) {
    // Where stderr is gone there is nobody to tell.
    let _ = match failure.downcast_ref::<config::ConfigErrors>() {
        Some(errors) => check_config::list(errors, &mut io::stderr()),
        None => writeln!(io::stderr(), "tollgate: {failure}"),
    };
}

//! `tollgate dev`: a gateway that needs no service, no key and no configuration.

use std::{
    collections::HashSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use secrecy::SecretString;

use super::{Failure, file_limit, runtime, say, serve};
use crate::{
    app::StartError,
    auth::mint::{self, SigningKey, TokenSpec},
    config::{self, Config},
    domain::TrustLevel,
    provider,
    redact::LiveRedactor,
    telemetry::Telemetry,
};

pub(super) const ISSUER: &str = "tollgate-dev";
pub(super) const AUDIENCE: &str = "tollgate";
const TOKEN_TTL: Duration = Duration::from_hours(8);
/// Whoever tries `--upstream` gives its key here, where no process list shows it.
const UPSTREAM_KEY: &str = "TOLLGATE_UPSTREAM_KEY";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where agents call
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Health and readiness
    #[arg(long, default_value = "127.0.0.1:9090")]
    admin_listen: SocketAddr,
    /// Where the audit database and the dev issuer's key are kept
    #[arg(long, default_value = "data")]
    data: PathBuf,
    /// Put this OpenAI-compatible server behind the gateway; its key comes from
    /// `TOLLGATE_UPSTREAM_KEY`
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// A model of --upstream to offer; repeatable [default: all that it lists]
    #[arg(long = "model", value_name = "NAME", requires = "upstream")]
    models: Vec<String>,
    /// Export spans to this OTLP collector, such as `http://127.0.0.1:4317`
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// What to log, such as info or tollgate=debug
    #[arg(long, default_value = "info")]
    log: String,
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let key = issuer_key(&options.data)?;
    let runtime = runtime()?;
    let mut config = base_config(options)?;
    match &options.upstream {
        Some(url) => runtime.block_on(add_upstream(&mut config, url, &options.models))?,
        None => add_scripted(&mut config)?,
    }
    config::validate(&config)?;
    let telemetry = Telemetry::start(&config.telemetry)?;
    runtime.block_on(async {
        let served = serve_dev(&config, &key, telemetry.redactor().clone()).await;
        telemetry.shutdown().await;
        served
    })
}

async fn serve_dev(
    config: &Config,
    key: &SigningKey,
    redactor: LiveRedactor,
) -> Result<(), Failure> {
    file_limit::raise();
    let mut signals = serve::Signals::listen()?;
    let app = serve::start(config, redactor, &mut signals).await.map_err(in_terms_of_options)?;
    let Some(app) = app else { return Ok(()) };
    let token = mint::mint(key, &token_spec())?;
    let model = config.models.first().map_or("demo", |model| model.name.as_str());
    say(&welcome(app.address(), model, &token))?;
    serve::end(app, signals, async || {}).await
}

/// Here the addresses are options, not keys of a configuration.
fn in_terms_of_options(error: StartError) -> StartError {
    match error {
        StartError::Listen { key: "server.listen", address, source } => {
            StartError::Listen { key: "--listen", address, source }
        }
        StartError::Listen { address, source, .. } => {
            StartError::Listen { key: "--admin-listen", address, source }
        }
        other => other,
    }
}

/// Where the dev issuer's key is kept.
pub(super) fn key_path(data: &Path) -> PathBuf {
    data.join("dev-issuer.pem")
}

fn jwks_path(data: &Path) -> PathBuf {
    data.join("dev-issuer.jwks.json")
}

/// The dev issuer's key, made at the first start, and beside it the JWKS that the gateway reads.
fn issuer_key(data: &Path) -> Result<SigningKey, Failure> {
    fs::create_dir_all(data).map_err(|error| format!("cannot make {}: {error}", data.display()))?;
    let path = key_path(data);
    let key =
        if path.exists() { SigningKey::load(&path)? } else { SigningKey::generate_file(&path)? };
    fs::write(jwks_path(data), key.public_jwks().to_string())?;
    Ok(key)
}

fn token_spec() -> TokenSpec {
    let capabilities = config::CapabilitiesConfig::default().vocabulary;
    TokenSpec {
        issuer: ISSUER.to_owned(),
        audience: vec![AUDIENCE.to_owned()],
        subject: "dev".to_owned(),
        tier: Some("pro".to_owned()),
        agent: Some("dev".to_owned()),
        capabilities,
        trust: Some(TrustLevel::L3),
        ttl: TOKEN_TTL,
        ..TokenSpec::default()
    }
}

/// Everything but providers and models.
fn base_config(options: &Options) -> Result<Config, Failure> {
    let mut config: Config = toml::from_str(BASE)?;
    config.server.listen = options.listen;
    config.server.admin_listen = options.admin_listen;
    config.audit.path = options.data.join("tollgate.db");
    config.telemetry.log.clone_from(&options.log);
    config.telemetry.otlp_endpoint.clone_from(&options.otlp);
    for issuer in &mut config.auth.issuers {
        issuer.jwks_file = Some(jwks_path(&options.data));
    }
    Ok(config)
}

/// `free` is there for people to see what a limit looks like.
const BASE: &str = r#"
[telemetry]
log_format = "text"

[[auth.issuers]]
issuer = "tollgate-dev"
audience = ["tollgate"]
algorithms = ["EdDSA"]
jwks_file = ""

[[tools]]
name = "fleet_ps"
requires = ["fleet:read"]

[[tools]]
name = "fleet_up"
requires = ["fleet:write"]

[[tiers]]
name = "pro"
[[tiers.limits]]
model = "*"
requests_per_minute = 6_000
concurrent = 64

[[tiers]]
name = "free"
[[tiers.limits]]
model = "*"
requests_per_minute = 5
concurrent = 2
"#;

const SCRIPTED: &str = r#"
[[providers]]
name = "scripted"
kind = "scripted"
token_interval_ms = 60

[[providers]]
name = "scripted-fast"
kind = "scripted"

[[models]]
name = "demo"
requires = ["model:reasoning"]
routes = [{ provider = "scripted", model = "demo" }]
price = { input = 0.35, cached_input = 0.10, output = 0.75 }

[[models]]
name = "demo-fast"
requires = ["model:reasoning"]
routes = [{ provider = "scripted-fast", model = "demo-fast" }]
price = { input = 0.35, cached_input = 0.10, output = 0.75 }

[[models]]
name = "demo-tool"
requires = ["model:reasoning"]
routes = [{ provider = "scripted-fast", model = "demo-tool" }]
"#;

fn add_scripted(config: &mut Config) -> Result<(), Failure> {
    let scripted: Config = toml::from_str(SCRIPTED)?;
    config.providers = scripted.providers;
    config.models = scripted.models;
    Ok(())
}

/// Puts an `OpenAI`-compatible server behind the gateway, with the models that it lists.
async fn add_upstream(config: &mut Config, url: &str, models: &[String]) -> Result<(), Failure> {
    let table = toml::toml! {
        name = "upstream"
        kind = "openai"
        base_url = url
    };
    let mut upstream: config::ProviderConfig = table.try_into()?;
    let key = std::env::var(UPSTREAM_KEY).ok().filter(|key| !key.is_empty());
    upstream.api_key = key.map(SecretString::from);
    let mut names = if models.is_empty() {
        provider::list_models(&upstream).await.map_err(|cause| {
            format!("{url} does not list its models ({cause}); is it the base URL, with /v1? Else name them with --model")
        })?
    } else {
        models.to_vec()
    };
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    if names.is_empty() {
        return Err(format!("{url} lists no models; name one with --model").into());
    }
    config.models = names
        .into_iter()
        .map(|name| config::ModelConfig {
            concurrent: None,
            requires: vec!["model:reasoning".to_owned()],
            routes: vec![config::RouteConfig {
                provider: "upstream".to_owned(),
                model: name.clone(),
            }],
            max_input_tokens: None,
            max_output_tokens: None,
            price: None,
            name,
        })
        .collect();
    config.providers = vec![upstream];
    Ok(())
}

/// A token, and three lines to paste.
fn welcome(address: SocketAddr, model: &str, token: &str) -> String {
    let url = format!("http://{address}/v1");
    // As it was started: after `make run` it is on nobody's PATH.
    let program = std::env::args().next().unwrap_or_else(|| "tollgate".to_owned());
    let body = format!(
        r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"Hello, gateway"}}]}}"#
    );
    let headers = format!("-H 'authorization: Bearer {token}' -H 'content-type: application/json'");
    format!(
        "\
Tollgate listens on http://{address}. A token, good for 8 hours (more: {program} mint-token --help):

{token}

A streamed chat:
curl -N {url}/chat/completions {headers} -d '{body}'

A native stream, which can be resumed and canceled:
curl -N {url}/streams {headers} -d '{body}'

The Python SDK (pip install openai):
python3 -c 'from openai import OpenAI; [print(c.choices[0].delta.content or \"\", end=\"\", flush=True) for c in OpenAI(base_url=\"{url}\", api_key=\"{token}\").chat.completions.create(model=\"{model}\", stream=True, messages=[{{\"role\": \"user\", \"content\": \"Hello, gateway\"}}])]; print()'

The API, to try in a browser: http://{address}/docs — who spent what: {program} audit tail --follow
"
    )
}

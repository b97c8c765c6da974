//! Every rule of validation, each broken by itself.

mod auth;
mod budget;
mod catalog;
mod redaction;

use std::path::PathBuf;

use rcgen::generate_simple_self_signed;
use tollgate::config::{Config, validate};

use super::{BASE, TempFile, base_with, errors_of};

/// Replaces `piece` of the base and wants one error, at `key`, that says `message`.
fn refused(piece: &str, other: &str, key: &str, message: &str) {
    let errors = errors_of(&base_with(piece, other));
    assert_eq!(errors.len(), 1, "{other}: {errors:?}");
    assert_eq!(errors[0].key, key, "{other}: {}", errors[0]);
    assert!(errors[0].message.contains(message), "{other}: {}", errors[0]);
}

fn taken(piece: &str, other: &str) {
    if let Err(errors) = Config::from_toml_str(&base_with(piece, other)) {
        panic!("{other}: {errors}");
    }
}

#[test]
fn numbers_have_bounds() {
    let cases = [
        ("server", "body_limit_bytes", "0"),
        ("server", "header_timeout_s", "0"),
        ("server", "body_idle_timeout_s", "0"),
        ("server", "request_timeout_s", "100000"),
        ("server", "drain_s", "3601"),
        ("admission", "max_connections", "0"),
        ("admission", "max_connections_per_address", "0"),
        ("admission", "max_connections_per_address", "1000001"),
        ("admission", "max_in_flight", "0"),
        ("admission", "address_requests_per_second", "0"),
        ("admission", "address_burst", "0"),
        ("admission", "caller_requests_per_second", "0"),
        ("admission", "caller_burst", "0"),
        ("auth", "leeway_s", "301"),
        ("auth", "max_token_lifetime_s", "0"),
        ("auth", "jwks_max_stale_s", "2592001"),
        ("auth", "jwks_refresh_s", "0"),
        ("budget", "replicas", "0"),
        ("budget", "replicas", "1001"),
        ("audit", "spool_limit_bytes", "16777215"),
        ("audit", "checkpoint_rows", "0"),
        ("audit", "unknown_after_s", "659"),
        ("audit", "connect_timeout_ms", "99"),
        ("audit", "statement_timeout_ms", "600001"),
        ("stream", "replay_ttl_s", "0"),
        ("stream", "orphan_timeout_s", "0"),
        ("stream", "keepalive_s", "301"),
        ("stream", "replay_limit_frames", "0"),
        ("stream", "replay_limit_bytes", "1023"),
        ("stream", "max_streams", "0"),
    ];
    for (section, name, number) in cases {
        let line = format!("{name} = {number}\n");
        let text = match section {
            "server" => base_with("[server]\n", &format!("[server]\n{line}")),
            "auth" => {
                base_with("leeway_s = 30\n", "").replacen("[auth]\n", &format!("[auth]\n{line}"), 1)
            }
            _ => format!("{BASE}\n[{section}]\n{line}"),
        };
        let errors = errors_of(&text);
        assert_eq!(errors.len(), 1, "{name}: {errors:?}");
        assert_eq!(errors[0].key, format!("{section}.{name}"));
        assert!(errors[0].message.ends_with(&format!(", not {number}")), "{}", errors[0]);
    }
}

#[test]
fn numbers_within_arrays_have_bounds() {
    let names =
        ["connect_timeout_ms", "first_token_timeout_ms", "answer_timeout_ms", "idle_timeout_ms"];
    for name in names {
        let key = format!("providers[0].{name}");
        refused("name = \"up\"", &format!("name = \"up\"\n{name} = 0"), &key, "must be from 1");
        let forever = format!("name = \"up\"\n{name} = 99_999_999");
        refused("name = \"up\"", &forever, &key, "not 99999999");
    }
    let limit = "requests_per_minute = 60";
    let key = "tiers[0].limits[0]";
    refused(limit, "requests_per_minute = 0", &format!("{key}.requests_per_minute"), "from 1");
    refused(limit, "concurrent = 0", &format!("{key}.concurrent"), "from 1");
}

#[test]
fn the_admin_port_is_another_than_the_public_one() {
    let listen = "listen = \"127.0.0.1:8080\"";
    let both =
        |public: &str, admin: &str| format!("listen = \"{public}\"\nadmin_listen = \"{admin}\"");
    let key = "server.admin_listen";
    refused(listen, &both("127.0.0.1:80", "127.0.0.1:80"), key, "never public");
    refused(listen, &both("0.0.0.0:80", "127.0.0.1:80"), key, "never public");
    refused(listen, &both("127.0.0.1:80", "[::]:80"), key, "never public");
    taken(listen, &both("127.0.0.1:0", "127.0.0.1:0"));
    taken(listen, &both("127.0.0.1:80", "127.0.0.2:80"));
}

#[test]
fn not_every_peer_can_be_a_trusted_proxy() {
    let listen = "[server]";
    let key = "server.trusted_proxies[1]";
    let all = "[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"0.0.0.0/0\"]";
    refused(listen, all, key, "believes every peer");
    taken(listen, "[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"fd00::/8\"]");
}

#[test]
fn tls_files_exist_and_hold_what_they_should() {
    let pair = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let cert = TempFile::new(&pair.cert.pem());
    let key = TempFile::new(&pair.signing_key.serialize_pem());
    let tls = |cert: &TempFile, key: &TempFile| {
        let (cert, key) = (cert.path().display(), key.path().display());
        format!("[server]\ntls = {{ cert = \"{cert}\", key = \"{key}\" }}")
    };
    taken("[server]", &tls(&cert, &key));
    refused("[server]", &tls(&key, &key), "server.tls.cert", "no certificate");
    refused("[server]", &tls(&cert, &cert), "server.tls.key", "no private key");
    let gone = TempFile(PathBuf::from("/nonexistent/tls.pem"));
    refused("[server]", &tls(&gone, &key), "server.tls.cert", "can't be read");
}

#[test]
fn what_runs_beside_the_calls_has_rules_too() {
    for (section, key, message) in [
        ("[audit]\npath = \"\"", "audit.path", "no path of a file"),
        ("[audit]\npath = \"/\"", "audit.path", "no path of a file"),
        ("[audit]\nspool = \"\"", "audit.spool", "no path of a directory"),
        ("[audit]\nspool = \"/dev/null\"", "audit.spool", "no path of a directory"),
        ("[audit]\ncheckpoints = \"\"", "audit.checkpoints", "or stdout"),
        ("[audit]\ncheckpoints = \"/\"", "audit.checkpoints", "no path of a file"),
        ("[audit]\ncheckpoint_key = \"\"", "audit.checkpoint_key", "no path of a file"),
        ("[audit]\nstore = \"postgres\"", "audit.url", "is missing; write postgres://"),
        ("[audit]\nurl = \"mysql://u@h/d\"", "audit.url", "must begin with postgres://"),
        ("[audit]\nurl = \"postgres://h/d\"", "audit.url", "names no user"),
        ("[audit]\nurl = \"postgres://:p@h/d\"", "audit.url", "names no user"),
        ("[audit]\nurl = \"postgres://u:p@h\"", "audit.url", "names no database"),
        ("[audit]\nurl = \"postgres://u:p@h/d#x\"", "audit.url", "has no fragment"),
        (
            "[audit]\nurl = \"postgres://u:p@h/d?pass=x\"",
            "audit.url",
            "has a parameter that is none",
        ),
        ("[audit]\nowner_url = \"postgres://u@h\"", "audit.owner_url", "names no database"),
        ("[audit]\narchive = \"/dev/null\"", "audit.archive", "no path of a directory"),
        (
            "[audit]\nstore = \"postgres\"\nurl = \"postgres://u@h/d\"\nretention_days = 1",
            "audit.archive",
            "is missing",
        ),
        ("[telemetry]\nlog = \"tollgate=loud\"", "telemetry.log", "no filter"),
        ("[telemetry]\nservice_name = \"\"", "telemetry.service_name", "is empty"),
        ("[telemetry]\notlp_endpoint = \"otel:4317\"", "telemetry.otlp_endpoint", "https://"),
    ] {
        refused("[capabilities]", &format!("{section}\n\n[capabilities]"), key, message);
    }
    let urls = "[audit]\nstore = \"postgres\"\nurl = \"postgres://u:p@h/d?sslmode=verify-full\"\n\
                owner_url = \"postgresql://o@%2Frun%2Fpostgresql/d\"\n";
    taken("[capabilities]", &format!("{urls}\n[capabilities]"));
    let fine = "[telemetry]\nlog = \"info,tollgate=debug\"\notlp_endpoint = \"http://otel:4317\"\n";
    taken("[capabilities]", &format!("{fine}\n[capabilities]"));
}

#[test]
fn a_configuration_made_in_code_keeps_the_same_rules() {
    let mut config = Config::from_toml_str(BASE).unwrap();
    validate(&config).unwrap();
    config.stream.keepalive_s = 0;
    config.models[0].routes[0].provider = "gone".to_owned();
    let errors = validate(&config).expect_err("two rules are broken");
    let keys: Vec<&str> = errors.iter().map(|error| error.key.as_str()).collect();
    assert_eq!(keys, ["models[0].routes[0].provider", "stream.keepalive_s"]);
}

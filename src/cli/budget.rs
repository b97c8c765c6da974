//! `tollgate budget show`: how an agent's budgets stand, asked of a running gateway.

use std::{
    io::{self, ErrorKind, Read as _, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde::Deserialize;

use super::{Failure, audit::printable};
use crate::domain::MicroUsd;

const PATIENCE: Duration = Duration::from_secs(10);
/// An answer is no longer; a gateway's is far below.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// What `GET /budgets` on the admin port answers.
#[derive(Debug, Deserialize)]
struct List {
    data: Vec<Budget>,
}

#[derive(Debug, Deserialize)]
struct Budget {
    #[serde(rename = "budget")]
    name: String,
    owner: String,
    model: Option<String>,
    unit: String,
    limit: u64,
    used: u64,
    reserved: u64,
    remaining: u64,
    resets_at: Option<String>,
}

/// Prints the budgets of an agent, or of a subject without one.
pub(super) fn show(
    admin: SocketAddr,
    agent: &str,
    json: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let body = get(admin, &format!("/budgets?agent={}", encoded(agent)))
        .map_err(|error| no_answer(admin, &error))?;
    let printed = match serde_json::from_str::<List>(&body) {
        Ok(_) if json => writeln!(out, "{body}"),
        Ok(list) => print(&list, out),
        Err(_) => {
            let problem: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            let title = problem["title"].as_str().unwrap_or("its answer is not understood");
            return Err(format!("{admin}: {}", printable(title)).into());
        }
    };
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn no_answer(admin: SocketAddr, error: &io::Error) -> String {
    format!(
        "the gateway's admin port {admin} does not answer: {error}\n\
         Is the gateway running? `--admin` takes the address of its `server.admin_listen`."
    )
}

/// One plain request to a server of our own, next door: no TLS, no redirects, no keep-alive.
fn get(admin: SocketAddr, path: &str) -> io::Result<String> {
    let mut socket = TcpStream::connect_timeout(&admin, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    write!(socket, "GET {path} HTTP/1.0\r\nhost: {admin}\r\n\r\n")?;
    let mut answer = String::new();
    socket.take(MAX_ANSWER_BYTES).read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it is no HTTP"))
}

/// As a query's value (RFC 3986 §2.1).
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn print(list: &List, out: &mut impl Write) -> io::Result<()> {
    let heading = ["BUDGET", "OWNER", "MODEL", "LIMIT", "USED", "RESERVED", "REMAINING", "RESETS"];
    columns(out, heading.map(str::to_owned))?;
    for budget in &list.data {
        let amount = |amount: u64| match budget.unit.as_str() {
            "micro_usd" => format!("${}", MicroUsd(amount)),
            _ => amount.to_string(),
        };
        let text = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), printable);
        columns(
            out,
            [
                printable(&budget.name),
                printable(&budget.owner),
                text(&budget.model),
                amount(budget.limit),
                amount(budget.used),
                amount(budget.reserved),
                amount(budget.remaining),
                text(&budget.resets_at),
            ],
        )?;
    }
    out.flush()
}

fn columns(out: &mut impl Write, columns: [String; 8]) -> io::Result<()> {
    let [budget, owner, model, limit, used, reserved, remaining, resets] = columns;
    writeln!(
        out,
        "{budget:<19}  {owner:<20}  {model:<20}  {limit:>14}  {used:>14}  {reserved:>14}  \
         {remaining:>14}  {resets}"
    )
}

//! URLs of other servers. Nothing here shows the URL: people put secrets into them.

use std::net::IpAddr;

use http::Uri;

/// An absolute `http` or `https` URL with a host, and without credentials or a fragment.
///
/// # Errors
/// What is wrong with it and what to do.
pub(super) fn parse(text: &str) -> Result<Uri, &'static str> {
    if text.contains('#') {
        return Err("a URL of a server has no fragment (\"#…\"); remove it");
    }
    let malformed = "is not a URL; write https://host/path";
    let url: Uri = text.parse().map_err(|_| malformed)?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err("must begin with https:// or http://");
    }
    let authority = url.authority().ok_or(malformed)?;
    if authority.as_str().contains('@') {
        return Err("holds credentials; take them out of the URL");
    }
    if authority.host().is_empty() {
        return Err(malformed);
    }
    let port = &authority.as_str()[authority.host().len()..];
    match port.strip_prefix(':').map(str::parse::<u16>) {
        None | Some(Ok(1..)) => Ok(url),
        Some(_) => Err("has a port that is none; ports are from 1 to 65535"),
    }
}

/// Does the URL lead to this machine, where nobody listens in on plain HTTP?
pub(super) fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

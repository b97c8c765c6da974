//! How many connections one address may have.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
};
use tollgate::http::server::{Addresses, Bounds};

use super::{Server, WHO, bounds, read_to_end, read_until, start};

/// From an address of this machine's other than the usual one.
async fn connect_from(server: &Server, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    socket.connect(server.address).await.unwrap()
}

async fn ask(client: &mut TcpStream) {
    client.write_all(WHO).await.unwrap();
    read_until(client, "\r\n\r\nhttp 127.0.0.").await;
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_connection_too_many_of_one_address_is_closed_at_once_and_others_are_served() {
    let server = start(Bounds { max_connections_per_address: 2, ..bounds() }).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    ask(&mut first).await;
    ask(&mut second).await;

    assert_eq!(read_to_end(&mut server.connect().await).await, "");

    ask(&mut connect_from(&server, "127.0.0.2").await).await;
    ask(&mut first).await;
    server.stopped().await;
}

#[tokio::test]
async fn a_connection_that_ends_gives_its_place_back() {
    let server = start(Bounds { max_connections_per_address: 1, ..bounds() }).await;
    for _ in 0..3 {
        let mut client = server.connect().await;
        ask(&mut client).await;
        assert_eq!(read_to_end(&mut server.connect().await).await, "");
        drop(client);
        server.connections_gone().await;
    }
}

#[tokio::test]
async fn a_flood_of_one_address_takes_no_place_of_the_others() {
    let short = Bounds { max_connections: 2, max_connections_per_address: 1, ..bounds() };
    let server = start(short).await;
    let mut first = server.connect().await;
    ask(&mut first).await;
    for _ in 0..50 {
        assert_eq!(read_to_end(&mut server.connect().await).await, "");
    }

    ask(&mut connect_from(&server, "127.0.0.2").await).await;
}

#[tokio::test]
async fn a_trusted_proxy_may_have_as_many_as_there_are() {
    let proxies = vec!["127.0.0.2/32".parse::<IpNet>().unwrap()];
    let short = Bounds { max_connections_per_address: 1, trusted_proxies: proxies, ..bounds() };
    let server = start(short).await;
    let mut first = connect_from(&server, "127.0.0.2").await;
    let mut second = connect_from(&server, "127.0.0.2").await;

    ask(&mut first).await;
    ask(&mut second).await;
}

#[test]
fn an_ipv6_network_counts_as_one_address_and_ipv4_within_ipv6_as_itself() {
    let addresses = Arc::new(Addresses::new(1, Vec::new()));
    let _first = addresses.take(ip("2001:db8:0:1::1")).unwrap();

    assert!(addresses.take(ip("2001:db8:0:1:ffff::2")).is_none(), "of the same /64");
    let _other_network = addresses.take(ip("2001:db8:0:2::1")).unwrap();
    let _mapped = addresses.take(ip("::ffff:192.0.2.1")).unwrap();
    let _mapped_too = addresses.take(ip("::ffff:192.0.2.2")).unwrap();
    assert!(addresses.take(ip("192.0.2.1")).is_none(), "it has one as a mapped address");
    assert_eq!(addresses.refused(), 2);
}

#[test]
fn an_address_is_forgotten_with_its_last_connection() {
    let addresses = Arc::new(Addresses::new(2, vec!["10.0.0.0/8".parse().unwrap()]));
    let places: Vec<_> =
        (0..=255).map(|last| addresses.take(IpAddr::from([192, 0, 2, last])).unwrap()).collect();
    let second = addresses.take(ip("192.0.2.7")).unwrap();
    assert!(addresses.take(ip("192.0.2.7")).is_none());
    let _proxied = addresses.take(ip("10.1.2.3")).unwrap();
    assert_eq!(addresses.entries(), 256);

    drop(places);
    assert_eq!(addresses.entries(), 1);
    drop(second);

    assert_eq!(addresses.entries(), 0);
}

//! Delivery of messages to `onemonitord`: UDP for most, TCP for states and for what does not fit a datagram.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::key::PublicKey;
use super::message::{Kind, Message, MessageError};
use crate::node::tools::{Ask, Tools};

/// Sends messages to one receiver.
#[derive(Debug)]
pub struct Sender {
    target: SocketAddr,
    udp: UdpSocket,
    key: Option<PublicKey>,
    datagram: usize,
    limit: Duration,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// the message could not be made: {0}
    #[error("the message could not be made: {0}")]
    Message(#[from] MessageError),
    /// {target} ({by}): {source}
    #[error("{target} ({by}): {source}")]
    Io {
        /// The receiver.
        target: SocketAddr,
        /// UDP or TCP.
        by: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// {target} (TCP): no connection within {limit:?}
    #[error("{target} (TCP): not taken within {limit:?}")]
    Slow {
        /// The receiver.
        target: SocketAddr,
        /// The limit.
        limit: Duration,
    },
}

/// How long the receiver may take to close its end after it has everything. It gives no other sign of having got it.
const FAREWELL: Duration = Duration::from_millis(500);

impl Sender {
    /// A sender to `target`; `datagram` is the longest datagram, `limit` the time for one TCP message.
    ///
    /// # Errors
    /// When no socket can be had.
    pub async fn new(
        target: SocketAddr,
        key: Option<PublicKey>,
        datagram: usize,
        limit: Duration,
    ) -> std::io::Result<Self> {
        let any: IpAddr = if target.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
        let udp = UdpSocket::bind((any, 0)).await?;
        Ok(Self { target, udp, key, datagram, limit })
    }

    /// The receiver.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// Longest datagram.
    #[must_use]
    pub fn datagram(&self) -> usize {
        self.datagram
    }

    /// Bytes that `message` has on the wire; the largest number when it can't be made.
    #[must_use]
    pub fn size(&self, message: &Message) -> usize {
        message.encode(self.key.as_ref()).map_or(usize::MAX, |bytes| bytes.len())
    }

    /// Sends `message`: by TCP when it must arrive (`surely`, and states), all else by UDP when it fits. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// [`SendError`]; the message must then count as not sent. A datagram may be lost without an error.
    pub async fn send(&self, message: &Message, surely: bool) -> Result<usize, SendError> {
        let bytes = message.encode(self.key.as_ref())?;
        if surely || message.kind == Kind::State || bytes.len() > self.datagram {
            self.by_tcp(&bytes).await?;
        } else {
            let sent = self.udp.send_to(&bytes, self.target).await;
            sent.map_err(|source| SendError::Io { target: self.target, by: "UDP", source })?;
        }
        Ok(bytes.len())
    }

    /// Sends ready-made bytes as a datagram (the form of the collectd era).
    ///
    /// # Errors
    /// [`SendError::Io`].
    pub async fn datagram_of(&self, bytes: &[u8]) -> Result<usize, SendError> {
        let sent = self.udp.send_to(bytes, self.target).await;
        sent.map_err(|source| SendError::Io { target: self.target, by: "UDP", source })
    }

    async fn by_tcp(&self, bytes: &[u8]) -> Result<(), SendError> {
        let exchange = async {
            let mut stream = TcpStream::connect(self.target).await?;
            stream.set_nodelay(true)?;
            stream.write_all(bytes).await?;
            stream.shutdown().await?;
            // A receiver that went away before it read everything answers with a reset.
            match timeout(FAREWELL, stream.read(&mut [0; 1])).await {
                Ok(Err(error)) => Err(error),
                Ok(Ok(_)) | Err(_) => Ok(()),
            }
        };
        match timeout(self.limit, exchange).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(SendError::Io { target: self.target, by: "TCP", source }),
            Err(_) => Err(SendError::Slow { target: self.target, limit: self.limit }),
        }
    }
}

/// Finds the receiver's address. `auto` is the one that ssh came from (`ssh_client`: the variable SSH_CLIENT). Names are
/// asked of `getent`, because a static program can't load the host's resolvers; the first address wins.
///
/// # Errors
/// A reason for people.
pub async fn resolve(
    address: &str,
    port: u16,
    ssh_client: Option<&str>,
    tools: &dyn Tools,
) -> Result<SocketAddr, String> {
    let name = if address == "auto" {
        let first = ssh_client.and_then(|text| text.split_whitespace().next());
        first.ok_or(
            "NETWORK/MONITOR_ADDRESS of monitord.conf is auto, and this was not started over ssh: set the address",
        )?
    } else {
        address
    };
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    // A zone (fe80::1%eth0) can't be kept by the plain form.
    if let Ok(ip) = bare.split('%').next().unwrap_or(bare).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    if bare.starts_with('-') || bare.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("{bare:?} (NETWORK/MONITOR_ADDRESS) is no address"));
    }
    let limit = Duration::from_secs(10);
    let answer = tools.ask(Ask::new("getent", ["ahosts", bare], limit)).await?;
    let unknown = |_| format!("the name {bare} (NETWORK/MONITOR_ADDRESS) is not known on this host");
    let told = answer.good("getent", limit).map_err(unknown)?;
    let found = told.lines().filter_map(|line| line.split_whitespace().next()?.parse::<IpAddr>().ok()).next();
    found.map(|ip| SocketAddr::new(ip, port)).ok_or_else(|| unknown(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::fake::Fake;

    fn message(kind: Kind, text: &str) -> Message {
        Message { kind, success: true, host: 3, epoch: 1, text: text.to_owned() }
    }

    async fn sender(target: SocketAddr, datagram: usize) -> Sender {
        Sender::new(target, None, datagram, Duration::from_secs(2)).await.expect("sockets")
    }

    #[tokio::test]
    async fn small_ones_go_by_udp_and_states_large_ones_and_what_must_arrive_by_tcp() {
        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let target = tcp.local_addr().expect("address");
        let udp = UdpSocket::bind(target).await.expect("the same port");
        let sender = sender(target, 100).await;
        sender.send(&message(Kind::Beacon, "1"), false).await.expect("sent");
        let mut buffer = [0; 1000];
        let length = udp.recv(&mut buffer).await.expect("there");
        assert_eq!(Message::decode(&buffer[..length]).expect("good"), message(Kind::Beacon, "1"));
        let noise: String = (0..500_u32).map(|n| char::from(33 + (n * n % 90) as u8)).collect();
        for (sent, surely) in [
            (message(Kind::State, "x"), false),
            (message(Kind::System, &noise), false),
            (message(Kind::System, "x"), true),
        ] {
            let receive = async {
                let (mut stream, _) = tcp.accept().await.expect("a connection");
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.expect("read");
                all
            };
            let (all, result) = tokio::join!(receive, sender.send(&sent, surely));
            result.expect("sent");
            assert_eq!(Message::decode(&all).expect("good"), sent);
        }
    }

    #[tokio::test]
    async fn a_receiver_that_is_not_there_is_an_error() {
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let target = free.local_addr().expect("address");
        drop(free);
        let error =
            sender(target, 1000).await.send(&message(Kind::State, "x"), false).await.expect_err("refused");
        assert!(error.to_string().contains("refused"), "{error}");
    }

    #[tokio::test]
    async fn addresses_are_found() {
        let tools = Fake(|ask: &Ask| {
            assert_eq!(ask.args, ["ahosts", "fe.example"]);
            Ok("10.0.0.9      STREAM fe.example\n10.0.0.9  DGRAM\n".to_owned())
        });
        let of = |address: &'static str, ssh: Option<&'static str>| {
            let tools = &tools;
            async move { resolve(address, 4124, ssh, tools).await.map(|a| a.to_string()) }
        };
        assert_eq!(of("10.1.1.1", None).await.as_deref(), Ok("10.1.1.1:4124"));
        assert_eq!(of("::1", None).await.as_deref(), Ok("[::1]:4124"));
        assert_eq!(of("auto", Some("192.0.2.7 50000 22")).await.as_deref(), Ok("192.0.2.7:4124"));
        assert_eq!(of("fe.example", None).await.as_deref(), Ok("10.0.0.9:4124"));
        assert!(of("auto", None).await.expect_err("unknown").contains("set the address"));
        assert!(of("-x", None).await.is_err());
    }
}

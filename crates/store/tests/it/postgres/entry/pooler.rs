//! Connecting through a pooler that accepts the connection and drops its start-up options.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::{Server, open, refused, told, works};

/// Forwards connections to a server, with their start-up options only if `passes_options` is set.
struct Pooler {
    port: u16,
    passes_options: Arc<AtomicBool>,
}

impl Pooler {
    async fn before(server: &Server, passes_options: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let pooler = Self {
            port: listener.local_addr().unwrap().port(),
            passes_options: Arc::new(AtomicBool::new(passes_options)),
        };
        let (to, passes) = (server.cluster.port, Arc::clone(&pooler.passes_options));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, to, passes.load(Ordering::SeqCst)));
            }
        });
        pooler
    }

    fn url(&self) -> String {
        format!("postgres://app@127.0.0.1:{}/ledger", self.port)
    }
}

async fn carry(mut near: TcpStream, to: u16, passes_options: bool) -> std::io::Result<()> {
    let mut far = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
    let length = near.read_u32().await?;
    let mut words = vec![0; length as usize - 4];
    near.read_exact(&mut words).await?;
    if !passes_options {
        words = without_options(&words);
    }
    far.write_u32(u32::try_from(words.len()).unwrap() + 4)
        .await?;
    far.write_all(&words).await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}

/// The format: a version, then names and values, each terminated by a zero byte, and a final zero byte.
fn without_options(words: &[u8]) -> Vec<u8> {
    let (version, pairs) = words.split_at(4);
    let mut kept = version.to_vec();
    let words: Vec<&[u8]> = pairs.split(|byte| *byte == 0).collect();
    for pair in words.chunks_exact(2).filter(|pair| !pair[0].is_empty()) {
        if pair[0] != b"options" {
            kept.extend([pair[0], b"\0", pair[1], b"\0"].concat());
        }
    }
    kept.push(0);
    kept
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_drops_what_safety_rests_on_is_refused() {
    let server = Server::start("host ledger app 127.0.0.1/32 trust");
    let pooler = Pooler::before(&server, false).await;
    let why = refused(&pooler.url(), None).await;
    assert!(
        why.contains("synchronous_commit is off and must be on") && why.contains("pooler"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_comes_back_through_such_a_pooler_is_refused() {
    let server = Server::start("host ledger app 127.0.0.1/32 trust");
    let pooler = Pooler::before(&server, true).await;
    let world = open(&pooler.url(), None).await.unwrap();
    works(&world).await;
    pooler.passes_options.store(false, Ordering::SeqCst);
    server.dismiss();
    let why = told(&world).await;
    assert!(why.contains("synchronous_commit is off"), "{why}");
    pooler.passes_options.store(true, Ordering::SeqCst);
    works(&world).await;
}

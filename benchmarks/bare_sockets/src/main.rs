//! The throughput of a bare socket: the limit to which the benchmarks compare the network path.
//!
//! `bare-sockets tcp|unix BYTES IN_FLIGHT` starts a process that answers each request byte with BYTES bytes of warm
//! memory, then reads numbers from stdin: for each number n it fetches n such answers into one warm buffer, IN_FLIGHT
//! of them asked for ahead, and prints a line.

use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, bytes, in_flight, serve @ ..] = arguments.as_slice() else {
        eprintln!("usage: bare-sockets tcp|unix BYTES IN_FLIGHT");
        std::process::exit(2);
    };
    let number = |text: &str| text.parse::<usize>().map_err(std::io::Error::other);
    let (bytes, in_flight) = (number(bytes)?, number(in_flight)?);
    if !serve.is_empty() {
        return answer(kind, bytes);
    }
    let mut server = Command::new(std::env::current_exe()?)
        .args([kind.as_str(), &bytes.to_string(), "0", "serve"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    std::io::BufReader::new(server.stdout.take().expect("piped")).read_line(&mut address)?;
    let mut stream = connect(kind, address.trim())?;
    let mut batch = vec![0_u8; bytes];
    for line in std::io::stdin().lines() {
        let n = number(line?.trim())?;
        let mut asked = 0;
        for done in 0..n {
            while asked < n && asked < done + in_flight {
                stream.write_all(&[1])?;
                asked += 1;
            }
            stream.read_exact(&mut batch)?;
        }
        println!("{n}");
    }
    drop(stream);
    server.wait().map(drop)
}

fn connect(kind: &str, address: &str) -> std::io::Result<Box<dyn Stream>> {
    if kind == "unix" {
        return Ok(Box::new(UnixStream::connect(address)?));
    }
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

fn answer(kind: &str, bytes: usize) -> std::io::Result<()> {
    let mut stream: Box<dyn Stream> = if kind == "unix" {
        let path = std::env::temp_dir().join(format!("bare-sockets-{}", std::process::id()));
        let listener = UnixListener::bind(&path)?;
        println!("{}", path.display());
        let (stream, _) = listener.accept()?;
        std::fs::remove_file(path)?;
        Box::new(stream)
    } else {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        println!("{}", listener.local_addr()?);
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Box::new(stream)
    };
    let warm = vec![7_u8; bytes];
    let mut requests = [0_u8; 64];
    loop {
        let asked = stream.read(&mut requests)?;
        if asked == 0 {
            return Ok(());
        }
        for _ in 0..asked {
            stream.write_all(&warm)?;
        }
    }
}

//! Delivery to a Redis server over TLS that checks both sides, and what each broken certificate says.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::harness::{Broker, Kind, run, until};
use crate::message::Message;
use crate::queues::free_port;
use crate::transport_nats::{Certificates, certificates};
use crate::transport_redis::{AGENTS_STREAM, Entry, REPLIES, reply};

/// A Redis server that speaks TLS alone.
struct Server {
    port: u16,
    folder: tempfile::TempDir,
    _child: Child,
}

impl Server {
    async fn start(pems: &Certificates, (certificate, key): &(String, String)) -> Self {
        let (port, folder) = (free_port().await, tempfile::tempdir().unwrap());
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--tls-port", &port.to_string(), "--tls-auth-clients", "yes"]);
        command.arg("--tls-cert-file").arg(file("server.pem", certificate));
        command.arg("--tls-key-file").arg(file("server.key", key));
        command.arg("--tls-ca-cert-file").arg(file("ca.pem", &pems.ca));
        file("client.pem", &pems.client.0);
        file("client.key", &pems.client.1);
        command.arg("--dir").arg(folder.path()).kill_on_drop(true);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("redis-server, which these cases run");
        until("redis listens", async || {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
            connected.map(drop).map_err(|err| err.to_string())
        })
        .await;
        Self { port, folder, _child: child }
    }

    /// The JSON that `redis-cli` prints.
    async fn ask(&self, command: &[&str]) -> Value {
        let file = |name: &str| self.folder.path().join(name);
        let mut cli = Command::new("redis-cli");
        cli.args(["--tls", "--json", "-h", "localhost", "-p", &self.port.to_string()]);
        cli.arg("--cacert").arg(file("ca.pem")).arg("--cert").arg(file("client.pem"));
        let output = cli.arg("--key").arg(file("client.key")).args(command).output().await.unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }
}

fn delivery(server: &str, ca: &str, client: Option<&(String, String)>) -> Value {
    let config = json!({
        "server": server, "stream": AGENTS_STREAM, "replyTo": REPLIES, "caCertificate": ca,
    });
    let credentials = client.map_or(
        json!({}),
        |(certificate, key)| json!({ "clientCertificate": certificate, "clientKey": key }),
    );
    json!({ "mode": "redis", "config": config, "credentials": credentials })
}

/// Registers `b` anew and tests it.
async fn tested(broker: &Broker, delivery: Value) -> Value {
    broker.admin.patch("/agents/b", &json!({ "delivery": delivery })).await.expect(200);
    broker.admin.post("/agents/b/delivery/test", &json!({})).await.expect(200).body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoffs_and_verdicts_go_over_tls_and_broken_certificates_are_named() {
    let (pems, others) = (certificates(), certificates());
    let server = Server::start(&pems, &pems.server).await;
    let old = Server::start(&pems, &pems.expired).await;
    let plain = crate::transport_redis::Server::start("").await;
    run(Kind::Sqlite, &[], async |broker| {
        let a = broker.pull("a", &["b"]).await;
        let url = format!("rediss://localhost:{}", server.port);
        let whole = delivery(&url, &pems.ca, Some(&pems.client));
        let b = broker.agent(json!({ "agentId": "b", "delivery": whole })).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let entry = until("the entry", async || {
            let found = server.ask(&["XRANGE", AGENTS_STREAM, "-", "+"]).await;
            let fields = found.pointer("/0/1").and_then(Value::as_array).cloned();
            fields.ok_or_else(|| found.to_string())
        })
        .await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let entry = Entry(entry.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect());
        let accept = reply(&b, &entry, "accept", json!({})).to_string();
        server.ask(&["XADD", REPLIES, "*", "body", &accept]).await;
        broker.handoff_becomes(&message, "ACCEPTED").await;

        let expired = format!("rediss://localhost:{}", old.port);
        let by_address = format!("rediss://127.0.0.1:{}", server.port);
        let no_tls = format!("rediss://localhost:{}", plain.port);
        let (ca, client) = (&pems.ca, Some(&pems.client));
        for (delivery, field, answered) in [
            (delivery(&url, &others.ca, client), "/delivery/config/caCertificate", "invalid peer"),
            (delivery(&by_address, ca, client), "/delivery/config/server", "not valid for name"),
            (delivery(&expired, ca, client), "/delivery/config/server", "expired"),
            (delivery(&url, ca, None), "/delivery/credentials/clientCertificate", "alert"),
            (
                delivery(&url, ca, Some(&others.client)),
                "/delivery/credentials/clientCertificate",
                "alert",
            ),
        ] {
            let test = tested(broker, delivery).await;
            assert_eq!(test["delivered"], false, "{test}");
            assert_eq!(
                (&test["failure"], &test["field"]),
                (&json!("tls"), &json!(field)),
                "{test}"
            );
            assert!(test["answered"].as_str().unwrap().contains(answered), "{answered}: {test}");
            assert!(!test.to_string().contains("PRIVATE KEY"), "{test}");
        }
        // TLS to a port without it, and the other way round: what the server makes of it differs by what it is sent.
        let config = json!({ "server": url.replace("rediss", "redis"), "stream": AGENTS_STREAM, "caCertificate": null });
        let in_plain_text = json!({ "mode": "redis", "config": config, "credentials": {} });
        for delivery in [in_plain_text, delivery(&no_tls, ca, client)] {
            let test = tested(broker, delivery).await;
            assert_eq!(test["delivered"], false, "{test}");
            assert_eq!(test["field"], "/delivery/config/server", "{test}");
        }
        let test = tested(broker, delivery(&url, ca, client)).await;
        assert_eq!(test["delivered"], true, "{test}");
    })
    .await;
}

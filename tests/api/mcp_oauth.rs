//! The MCP door as an OAuth resource server (specification §11.1, docs/doors/mcp.md#oauth): metadata, tokens of an issuer whose
//! keys are made here, and hostile tokens.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData};
use reqwest::Method;
use serde_json::{Value, json};

use handoffd::clock::{Clock, SystemClock};

use crate::harness::{Broker, Kind, run};

const ISSUER: &str = "https://issuer.example";
const PUBLIC: &str = "http://127.0.0.1:8080";
const AUDIENCE: &str = "http://127.0.0.1:8080/mcp";

/// A key of the issuer, with its public half as a JSON Web Key.
struct SigningKey {
    id: &'static str,
    algorithm: Algorithm,
    private: EncodingKey,
    public: Value,
    raw: Vec<u8>,
}

impl SigningKey {
    fn elliptic(id: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let raw = pair.der_bytes().to_vec();
        // An uncompressed point: 4, x, y.
        let (x, y) = raw[1..].split_at(32);
        let public = json!({
            "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        });
        let private = EncodingKey::from_ec_der(&pair.serialize_der());
        Self { id, algorithm: Algorithm::ES256, private, public, raw }
    }

    fn edwards(id: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let raw = pair.der_bytes().to_vec();
        let x = URL_SAFE_NO_PAD.encode(&raw);
        let public = json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": x });
        let private = EncodingKey::from_ed_der(&pair.serialize_der());
        Self { id, algorithm: Algorithm::EdDSA, private, public, raw }
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(self.algorithm) };
        encode(&header, claims, &self.private).unwrap()
    }
}

/// An issuer's key set, and how often it was read.
#[derive(Clone, Default)]
struct KeySet {
    keys: Arc<Mutex<Vec<Value>>>,
    reads: Arc<AtomicUsize>,
}

impl KeySet {
    async fn serve(&self) -> String {
        async fn answer(State(set): State<KeySet>) -> String {
            set.reads.fetch_add(1, Ordering::Relaxed);
            let keys = json!({ "keys": *set.keys.lock().unwrap() });
            // As a file of some editors is, with a mark of its encoding.
            format!("\u{feff}{keys}")
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }
}

fn now() -> u64 {
    u64::try_from(SystemClock::default().now().0 / 1_000_000).unwrap()
}

fn claims(agent: &str) -> Value {
    json!({ "iss": ISSUER, "aud": AUDIENCE, "client_id": agent, "exp": now() + 300, "iat": now(), "scope": "read handoffs" })
}

fn with(agent: &str, name: &str, value: Value) -> Value {
    let mut claims = claims(agent);
    claims[name] = value;
    claims
}

/// `tools/list` with a bearer: status, `WWW-Authenticate`, body.
async fn list(broker: &Broker, bearer: Option<&str>) -> (u16, String, Value) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
    let answer = broker
        .caller(bearer)
        .request(Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/list")
        .json(&body)
        .send()
        .await
        .unwrap();
    let status = answer.status().as_u16();
    let challenge = answer.headers().get("www-authenticate");
    let challenge = challenge.map_or_else(String::new, |value| value.to_str().unwrap().to_owned());
    (status, challenge, answer.json().await.unwrap_or_default())
}

async fn refused(broker: &Broker, token: &str, error: &str, what: &str) {
    let (status, challenge, body) = list(broker, Some(token)).await;
    let expected = if error == "insufficient_scope" { 403 } else { 401 };
    assert_eq!(status, expected, "{what}: {body}");
    assert!(challenge.contains(&format!("error=\"{error}\"")), "{what}: {challenge}");
    assert!(
        challenge.contains(&format!(
            "resource_metadata=\"{PUBLIC}/.well-known/oauth-protected-resource/mcp\""
        )),
        "{what}: {challenge}"
    );
    assert!(!body.to_string().contains(token), "{what}");
}

async fn on_both(case: impl AsyncFn(&Broker, &KeySet)) {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let set = KeySet::default();
        let url = set.serve().await;
        let settings = [
            ("HANDOFFD_SERVER__PUBLIC_URL", PUBLIC),
            ("HANDOFFD_DOORS__MCP__OAUTH__ISSUER", ISSUER),
            ("HANDOFFD_DOORS__MCP__OAUTH__JWKS_URL", url.as_str()),
            ("HANDOFFD_DOORS__MCP__OAUTH__AGENT_CLAIM", "client_id"),
            ("HANDOFFD_DOORS__MCP__OAUTH__SCOPE", "handoffs"),
        ];
        run(kind, &settings, async |broker| case(broker, &set).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_the_issuer_names_an_agent_and_a_key_counts_on() {
    on_both(async |broker, set| {
        let (one, two) = (SigningKey::elliptic("k1"), SigningKey::edwards("k2"));
        // A key of an unknown kind does not make the others useless.
        set.keys.lock().unwrap().extend([json!({ "kty": "NEW", "kid": "k0" }), one.public.clone()]);
        let (a, _b) = broker.pull_pair().await;
        let metadata = broker.caller(None).get("/.well-known/oauth-protected-resource").await;
        let metadata = metadata.expect(200).body;
        assert_eq!(
            metadata,
            json!({
                "resource": AUDIENCE, "authorization_servers": [ISSUER], "bearer_methods_supported": ["header"],
                "resource_name": "handoffd", "scopes_supported": ["handoffs"],
            })
        );
        let below = broker.caller(None).get("/.well-known/oauth-protected-resource/mcp").await;
        assert_eq!(below.expect(200).body, metadata);
        let (status, _, body) = list(broker, Some(&one.sign(&claims("a")))).await;
        assert_eq!((status, &body["result"]["tools"][1]["name"]), (200, &json!("hand_off")), "{body}");
        // The same agent by its key, and an anonymous caller.
        assert_eq!(list(broker, a.api.key.as_deref()).await.0, 200);
        let (status, challenge, _) = list(broker, None).await;
        assert!(status == 401 && challenge.contains("resource_metadata=") && !challenge.contains("error="));
        // The list has several audiences, and a key came new.
        set.keys.lock().unwrap().push(two.public.clone());
        let token = two.sign(&with("b", "aud", json!(["other", AUDIENCE])));
        let until = tokio::time::Instant::now() + std::time::Duration::from_secs(15);
        while list(broker, Some(&token)).await.0 != 200 {
            assert!(tokio::time::Instant::now() < until, "the new key is read within ten seconds");
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
        assert!(set.reads.load(Ordering::Relaxed) <= 3, "keys are not read for each token");
        // Only at this door: the API knows no tokens.
        broker.caller(Some(&one.sign(&claims("a")))).get("/handoffs").await.expect(401);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tokens_are_refused() {
    on_both(async |broker, set| {
        let (key, stranger) = (SigningKey::elliptic("k1"), SigningKey::elliptic("k1"));
        set.keys.lock().unwrap().push(key.public.clone());
        broker.pull_pair().await;
        let good = key.sign(&claims("a"));
        assert_eq!(list(broker, Some(&good)).await.0, 200);
        for (what, claims) in [
            ("another audience", with("a", "aud", json!("http://elsewhere/mcp"))),
            ("no audience", with("a", "aud", Value::Null)),
            ("another issuer", with("a", "iss", json!("https://issuer.example/"))),
            ("expired", with("a", "exp", json!(now() - 120))),
            ("no end", with("a", "exp", Value::Null)),
            ("not yet", with("a", "nbf", json!(now() + 120))),
            ("no agent", with("nobody", "sub", json!("a"))),
            ("an agent of a wrong type", with("a", "client_id", json!(["a"]))),
        ] {
            refused(broker, &key.sign(&claims), "invalid_token", what).await;
        }
        // The error names the fault, and a claim of another type does not count as absent (finding S8 of 0.3.0).
        for (name, value) in [
            ("nbf", json!((now() + 120).to_string())),
            ("nbf", Value::Null),
            ("nbf", json!(1e300)),
            ("nbf", json!(99_999_999_999_999_999_999_u128 as f64)),
            ("nbf", json!(u64::MAX)),
            ("exp", json!(1e300)),
            ("iat", json!("now")),
            ("exp", json!((now() + 300).to_string())),
            ("iss", json!([ISSUER])),
            ("iss", json!([ISSUER, "https://issuer.example/"])),
            ("aud", json!([AUDIENCE, 7])),
            ("aud", json!({ AUDIENCE: true })),
            ("sub", json!(7)),
            ("scope", json!(["handoffs"])),
        ] {
            let token = key.sign(&with("a", name, value.clone()));
            let (status, _, body) = list(broker, Some(&token)).await;
            let told = body["detail"].as_str().unwrap_or_default();
            assert!(status == 401 && told.contains(&format!("`{name}`")), "{name} {value}: {body}");
        }
        let late = key.sign(&with("a", "exp", json!(now() - 120)));
        let (_, _, body) = list(broker, Some(&late)).await;
        assert!(body["detail"].as_str().unwrap().contains("is over"), "{body}");
        let poor = key.sign(&with("a", "scope", json!("handoffsx read")));
        refused(broker, &poor, "insufficient_scope", "another scope").await;
        refused(broker, &stranger.sign(&claims("a")), "invalid_token", "a key of the same id")
            .await;
        let unknown = SigningKey { id: "k9", ..SigningKey::elliptic("k9") };
        refused(broker, &unknown.sign(&claims("a")), "invalid_token", "an unknown key").await;
        // The public key is not a secret: as an HMAC's key it proves nothing.
        let header = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::HS256) };
        let forged = encode(&header, &claims("a"), &EncodingKey::from_secret(&key.raw)).unwrap();
        refused(broker, &forged, "invalid_token", "HS256 with the public key").await;
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let body = good.split('.').nth(1).unwrap();
        let signature = good.split('.').nth(2).unwrap();
        for header in [
            json!({ "alg": "none", "kid": "k1" }),
            json!({ "alg": "NONE", "kid": "k1" }),
            json!({ "alg": "ES256" }),
            json!({ "alg": "ES384", "kid": "k1" }),
            json!({ "alg": "EdDSA", "kid": "k1" }),
            json!({ "alg": "ES256", "kid": "k1", "jwk": key.public }),
            json!({ "alg": "ES256", "kid": "k1", "crit": ["exp"] }),
        ] {
            for signature in ["", signature] {
                let token = format!("{}.{body}.{signature}", part(header.clone()));
                refused(broker, &token, "invalid_token", &header.to_string()).await;
            }
        }
        for token in ["..", "a.b.c", &format!("{good}x"), &good[..good.len() - 3]] {
            refused(broker, token, "invalid_token", token).await;
        }
        let long = format!(
            "{}.{body}.{signature}",
            part(json!({ "alg": "ES256", "kid": "k".repeat(20_000) }))
        );
        refused(broker, &long, "invalid_token", "too long").await;
        assert!(
            set.reads.load(Ordering::Relaxed) <= 2,
            "unknown keys do not make the broker read again and again"
        );
    })
    .await;
}

/// A key set with keys of one id: each that may have signed is tried, wherever it is (finding S8 of 0.3.0).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_chosen_by_what_it_is_for_and_not_by_its_place() {
    let key = SigningKey::elliptic("k1");
    let with = |more: Value| {
        let mut public = key.public.clone();
        public.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        public
    };
    let other = SigningKey::elliptic("k1").public;
    let edwards = SigningKey::edwards("k1").public;
    let unnamed = {
        let mut public = key.public.clone();
        public.as_object_mut().unwrap().remove("kid");
        public
    };
    let plain = key.public.clone();
    for (keys, told) in [
        (vec![other.clone(), plain.clone()], ""),
        (vec![plain.clone(), other.clone()], ""),
        (vec![edwards.clone(), with(json!({ "use": "enc" })), plain.clone()], ""),
        (vec![with(json!({ "key_ops": ["verify"] }))], ""),
        (vec![with(json!({ "key_ops": ["encrypt"] }))], "key_ops"),
        (vec![with(json!({ "use": "enc" }))], "`use`"),
        (vec![with(json!({ "alg": "ES384" }))], "`alg`"),
        (vec![edwards], "type or curve"),
        (vec![other], "signature"),
        (vec![unnamed], "key id"),
    ] {
        let set = KeySet::default();
        *set.keys.lock().unwrap() = keys.clone();
        let url = set.serve().await;
        let settings = [
            ("HANDOFFD_SERVER__PUBLIC_URL", PUBLIC),
            ("HANDOFFD_DOORS__MCP__OAUTH__ISSUER", ISSUER),
            ("HANDOFFD_DOORS__MCP__OAUTH__JWKS_URL", url.as_str()),
            ("HANDOFFD_DOORS__MCP__OAUTH__AGENT_CLAIM", "client_id"),
        ];
        run(Kind::Sqlite, &settings, async |broker| {
            broker.pull_pair().await;
            let (status, _, body) = list(broker, Some(&key.sign(&claims("a")))).await;
            let expected = if told.is_empty() { 200 } else { 401 };
            assert_eq!(status, expected, "{keys:?}: {body}");
            assert!(told.is_empty() || body["detail"].as_str().unwrap().contains(told), "{body}");
        })
        .await;
    }
}

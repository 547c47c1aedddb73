//! Tests of the forms of credentials.

use proptest::prelude::*;

use super::*;

/// So many characters of a token, not all alike. Made here, so that no file holds what looks like one.
fn made(count: usize) -> String {
    "A7bC2dE9fG4hJ6kL3mN5pQ8rS".chars().cycle().take(count).collect()
}

fn hex(count: usize) -> String {
    "0a1b2c3d4e5f67".chars().cycle().take(count).collect()
}

fn ids(text: &str) -> Vec<&'static str> {
    CredentialForms::builtin().find(text, None).into_iter().map(|one| one.id).collect()
}

/// (form, text around it before, the credential, text after)
type Sample = (&'static str, String, String, String);

fn samples() -> Vec<Sample> {
    let base32: String = "ABCDEFGH234567QR".to_owned();
    let key = format!("{}\n{}", made(64), made(40));
    let of =
        |id, before: &str, secret: String| (id, before.to_owned(), secret, " and more".to_owned());
    let mut all = vec![
        of("aws-access-key", "key: ", format!("AKIA{base32}")),
        of("aws-access-key", "", format!("ASIA{base32}")),
        of("aws-secret-key", "aws_secret_access_key = ", made(40)),
        of("aws-secret-key", "\"SecretAccessKey\": \"", made(40)),
        of("gcp-api-key", "https://maps.example/?key=", format!("AIza{}", made(35))),
        of("gcp-oauth-token", "token ", format!("ya29.{}", made(60))),
        of("gcp-oauth-secret", "", format!("GOCSPX-{}", made(28))),
        of("azure-storage-key", "AccountName=a;AccountKey=", format!("{}==", made(86))),
        of(
            "azure-shared-access-key",
            "Endpoint=sb://a/;SharedAccessKey=",
            format!("{}=", made(43)),
        ),
        of(
            "azure-shared-access-signature",
            "https://a.example/b?sv=1&sig=",
            format!("{}%3D", made(43)),
        ),
        of("azure-client-secret", "", format!("abc8Q~{}", made(34))),
        of("github-token", "git clone with ", format!("ghp_{}", made(36))),
        of("github-token", "", format!("github_pat_{}_{}", made(22), made(59))),
        of("gitlab-token", "(", format!("glpat-{}", made(20))),
        of("slack-token", "", format!("xoxb-123456789012-123456789012-{}", made(24))),
        of(
            "slack-webhook",
            "https://hooks.slack.com/services/",
            format!("T01234567/B01234567/{}", made(24)),
        ),
        of("stripe-key", "", format!("sk_live_{}", made(24))),
        of("webhook-secret", "", format!("whsec_{}", made(32))),
        of("anthropic-key", "x-api-key: ", format!("sk-ant-api03-{}", made(80))),
        of("openai-key", "", format!("sk-proj-{}", made(48))),
        of("openai-key", "", format!("sk-{}", made(48))),
        of("hugging-face-token", "", format!("hf_{}", "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh")),
        of("npm-token", "//registry/:_authToken=", format!("npm_{}", made(36))),
        of("pypi-token", "", format!("pypi-AgE{}", made(60))),
        of("sendgrid-key", "", format!("SG.{}.{}", made(22), made(43))),
        of("digitalocean-token", "", format!("dop_v1_{}", hex(64))),
        of("databricks-token", "", format!("dapi{}", hex(32))),
        of("shopify-token", "", format!("shpat_{}", hex(32))),
        of("vault-token", "", format!("hvs.{}", made(24))),
        of("handoffd-key", "key ", format!("hd_{}", made(43))),
        of("jwt", "session=", format!("eyJ{}.eyJ{}.{}", made(20), made(40), made(43))),
        of("bearer-token", "Authorization: Bearer ", made(32)),
        of("basic-credentials", "Authorization: Basic ", format!("{}==", made(22))),
        of(
            "private-key",
            "file:\n",
            format!("-----BEGIN RSA PRIVATE KEY-----\n{key}\n-----END RSA PRIVATE KEY-----"),
        ),
        of(
            "private-key",
            "file: ",
            format!("-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----", made(64)),
        ),
    ];
    all.extend(passwords());
    all
}

fn passwords() -> Vec<Sample> {
    let of =
        |id, before: &str, secret: String| (id, before.to_owned(), secret, " and more".to_owned());
    vec![
        of("password", "Server=db;Database=x;User Id=sa;Password=", "correcthorse".to_owned()),
        of("password", "Driver={ODBC Driver 18};Server=db;UID=sa;PWD={", "hunter".to_owned()),
        of("password", "jdbc:postgresql://db/x?user=app&password=", "hunter".to_owned()),
        of("password", "host=db user=app password=", "h0rse-battery".to_owned()),
        of("password", "Server=db;User Id=sa;Password = ", "Zq8vK2mPw7Lt".to_owned()),
        of("password", "Server=db; Pwd= ", "Zq8vK2mPw7Lt".to_owned()),
        (
            "password",
            "Password = ".to_owned(),
            "Zq8vK2mPw7Lt".to_owned(),
            "; Server = db".to_owned(),
        ),
        (
            "password",
            "host=db user=app password='".to_owned(),
            "Zq8v K2m".to_owned(),
            "' dbname=x".to_owned(),
        ),
        (
            "password",
            "Pwd=".to_owned(),
            "correcthorse".to_owned(),
            ";Server=db;Database=x".to_owned(),
        ),
        (
            "password",
            "jdbc:oracle:thin:scott/".to_owned(),
            "tiger".to_owned(),
            "@db.internal:1521:orcl".to_owned(),
        ),
        (
            "url-password",
            "postgres://admin:".to_owned(),
            "secret".to_owned(),
            "@db.internal/x".to_owned(),
        ),
        (
            "url-password",
            "see redis://:".to_owned(),
            "p4ss:word".to_owned(),
            "@cache:6379/0".to_owned(),
        ),
    ]
}

#[test]
fn f5_12_each_form_is_found_where_it_stands_and_replaced_there() {
    let forms = CredentialForms::builtin();
    for (id, before, secret, after) in samples() {
        let text = format!("{before}{secret}{after}");
        let found = forms.find(&text, None);
        let [one] = found.as_slice() else { panic!("{id} in {text}: {found:?}") };
        assert_eq!((one.id, &text[one.place.clone()]), (id, &*secret), "{text}");
        assert_eq!(forms.redact(&text, None), Some(format!("{before}[REDACTED:{id}]{after}")));
        let again = forms.redact(&format!("{before}[REDACTED:{id}]{after}"), None);
        assert_eq!(again, None, "a replaced text is not a credential: {before}");
    }
    assert!(forms.forms.iter().all(|form| form.pattern().is_some()), "each pattern compiles");
    let known: Vec<_> = samples().iter().map(|sample| sample.0).collect();
    // A form without words is told by a member's name alone.
    for form in forms.forms.iter().filter(|form| !form.entry.after.is_empty()) {
        assert!(known.contains(&form.entry.id.as_str()), "{} has no sample", form.entry.id);
    }
}

#[test]
fn f5_12_in_base64_each_form_is_found_and_replaced_as_a_whole() {
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
    let forms = CredentialForms::builtin();
    for (id, before, secret, after) in samples() {
        let text = format!("{before}{secret}{after}");
        for token in [
            STANDARD.encode(&text),
            STANDARD_NO_PAD.encode(&text),
            URL_SAFE.encode(&text),
            URL_SAFE_NO_PAD.encode(&text),
        ] {
            let alone = forms.find(&token, None);
            let [one] = alone.as_slice() else { panic!("{id} in {token}: {alone:?}") };
            assert_eq!((one.id, one.place.clone()), (id, 0..token.len()), "{text}");
            let around = |inside: &str| format!("a file: {inside}\nand {{\"k\":\"{inside}\"}}");
            let safe = forms.redact(&around(&token), None);
            assert_eq!(safe, Some(around(&format!("[REDACTED:{id}]"))));
        }
    }
    let (id, before, secret, after) = samples().swap_remove(9);
    let text = format!("{}{before}{secret}{after}", "the file begins here\n".repeat(9));
    let token = STANDARD.encode(&text);
    let lines: Vec<_> =
        token.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    for broken in [lines.join("\n"), lines.join("\r\n")] {
        assert_eq!(forms.redact(&broken, None), Some(format!("[REDACTED:{id}]")), "{broken}");
    }
    let token = URL_SAFE_NO_PAD.encode(format!("ghp_{}", made(36)));
    let path = format!("https://a.example/v1/{token}/x");
    assert_eq!(ids(&path), ["github-token"], "{path}");
}

#[test]
fn f5_12_base64_of_other_than_ascii_characters_is_text() {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let key = format!("ghp_{}", made(36));
    for before in ["Schlüssel: ", "鍵は", "🔑 ", "k🔑鍵ü ", "\u{7ff}\u{ffff}\u{10ffff}"] {
        for lead in 0..16 {
            let text = format!("{}{before}{key}", "x ".repeat(lead / 2) + &" ".repeat(lead % 2));
            for token in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                assert_eq!(ids(&token), ["github-token"], "{text}");
                let path = format!("a/{}/{token}", "b".repeat(MIN_BASE64));
                if token.bytes().all(is_part) {
                    assert_eq!(ids(&path), ["github-token"], "{path}");
                }
            }
        }
    }
}

#[test]
fn f5_12_base64_without_a_credential_is_none() {
    use base64::engine::general_purpose::STANDARD;
    for text in [
        STANDARD.encode("The supplier limits its liability to the fees of the last twelve months."),
        STANDARD.encode("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        STANDARD.encode("postgres://user:password@localhost/db"),
        STANDARD.encode((0..=255).collect::<Vec<u8>>()),
        "usr/share/doc/postgresql-15/contrib/extension".to_owned(),
        "A".repeat(10_000),
        "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7b".to_owned(),
        "x".repeat(MIN_BASE64 - 1),
        "-".repeat(4_001),
    ] {
        assert_eq!(ids(&text), Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn f5_12_no_form_but_a_password_in_a_url_is_shorter_than_what_is_skipped() {
    for (id, before, secret, after) in samples() {
        let text = format!("{before}{secret}{after}");
        for window in text.as_bytes().windows(SHORTEST - 1) {
            let window = std::str::from_utf8(window).unwrap();
            let found = CredentialForms::builtin().search(window, 0);
            let short = ["url-password", "password"];
            assert!(found.iter().all(|one| short.contains(&one.id)), "{id}: {window}");
        }
    }
}

#[test]
fn f5_12_a_members_name_tells_what_its_value_is() {
    let forms = CredentialForms::builtin();
    let found = forms.find(&made(40), Some("aws_secret_access_key")).first().map(|one| one.id);
    assert_eq!(found, Some("aws-secret-key"));
    assert_eq!(forms.find(&made(40), Some("commit")), []);
    // Finding G9 of 0.3.0.
    let whole = |text: &str, member: &str| {
        let found = forms.find(text, Some(member));
        found.first().filter(|one| one.place == (0..text.len())).map(|one| one.id)
    };
    for member in ["password", "db_password", "Passwd", "PGPASSWORD"] {
        assert_eq!(whole("horse", member), Some("password"), "{member}");
    }
    for text in ["Server=db;Password = horse", "amqp://app:horse@mq/"] {
        assert_eq!(whole(text, "connectionString"), Some("password"), "{text}");
    }
    let key = made(24);
    for member in ["client_secret", "apiKey", "X-API-Key", "refresh_token", "WEBHOOK_SECRET"] {
        assert_eq!(whole(&key, member), Some("named-secret"), "{member}");
    }
    for (text, member) in [
        (key.as_str(), "client_id"),
        (key.as_str(), "apiKeyHash"),
        (key.as_str(), "cursor"),
        (key.as_str(), "leaseToken"),
        ("in the vault, see the runbook", "api_key"),
        ("not-needed-in-this-environment", "api_key"),
        ("your-api-key-goes-here-123", "api_key"),
        ("${STRIPE_API_KEY_2}", "api_key"),
        ("abc123", "api_key"),
        ("", "password"),
        ("required", "password"),
        ("the password has eight characters", "password"),
        ("${DB_PASSWORD}", "password"),
        ("[REDACTED:password]", "password"),
        ("horse", "password_hint"),
        ("Server=db;Integrated Security=true", "connection_string"),
        ("postgres://db.internal/x", "database_url"),
        ("Server=db;Password=<password>", "connection_string"),
    ] {
        assert_eq!(forms.find(text, Some(member)), [], "{member}: {text}");
    }
}

#[test]
fn f5_12_stand_ins_and_ordinary_text_are_no_credentials() {
    let jwt = "eyJhbGciOi (the header of a JWT) . eyJ";
    for text in [
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "Authorization: Bearer <token>",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer ${GITHUB_TOKEN_OF_THE_RUNNER}",
        "the bearer acknowledgementsandrepresentations of this letter",
        "Authorization: Basic <credentials>",
        "Basic understanding of the matter",
        "postgres://user:password@localhost/db",
        "postgres://$USER:$PASSWORD@host/db",
        "postgres://user:<password>@host/db",
        "postgres://user:****@host/db",
        "cvs://:pserver:anoncvs@sources.example:/cvs/src",
        "Server=db;User Id=sa;Password=<password>;",
        "Server=db;User Id=sa;Password=${DB_PASSWORD};Encrypt=true",
        "jdbc:postgresql://db/x?user=app&password=secret",
        "login(user, password=getpass(), timeout=3)",
        "let user = first; password = second; connect(user, password);",
        "Password = required; Username = optional",
        "set password='your new password'",
        "let user = user1; password = user2.password; connect(user, password);",
        "UPDATE t SET password='\" + md5(pw) + \"' WHERE id = 1",
        "def f(password=None, pwd=default_pwd): ...",
        "jdbc:oracle:thin:@db.internal:1521:orcl",
        "http://Benutzer:Passwort@Server:Port/",
        "https://example.org:8443/path?at=a@b.example",
        "http://localhost:8080/@scope/name",
        "mailto:a@b.example, https://a.example: see b@c.example",
        "sk-learn, sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7b\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7b\n-----END CERTIFICATE-----",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "MAKIAVELLIANPRINCIPLES2024 and hf_transfer_is_enabled, npm_config_registry",
        "0af7651916cd43dd8448eb211c80319c, 3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        jwt,
    ] {
        assert_eq!(ids(text), Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn f5_12_a_long_text_does_not_grow_past_its_limit() {
    let text = format!("{} AKIA{}", "x".repeat(479), "ABCDEFGH234567QR");
    let safe = CredentialForms::builtin().redact(&text, None).unwrap();
    assert_eq!(safe.chars().count(), 500);
    assert!(!safe.contains("AKIA"), "{safe}");
}

proptest! {
    #[test]
    fn f5_12_the_runs_are_the_parts_that_are_long_enough(path in "([a-c0]{0,30}[-_+/]){0,6}[a-c0]{0,30}") {
        let bytes = path.as_bytes();
        let (mut runs, mut done) = (Vec::new(), 0);
        while let Some(start) = next_run(bytes, done, is_part) {
            done = (start..bytes.len()).find(|at| !is_part(bytes[*at])).unwrap_or(bytes.len());
            runs.push(&bytes[start..done]);
        }
        let parts = bytes.split(|byte| !is_part(*byte)).filter(|part| part.len() >= MIN_BASE64);
        prop_assert_eq!(runs, parts.collect::<Vec<_>>());
    }

    #[test]
    fn f5_12_what_is_text_in_base64_begins_as_text(text in "\\PC{15,40}", cut in 0..9_usize) {
        let token = base64::engine::general_purpose::STANDARD_NO_PAD.encode(&text);
        prop_assert!(begins_text(token.as_bytes()));
        // The end of a character without its beginning.
        let broken = [&[b'a'; 9][..cut], "é".as_bytes().get(1..).unwrap(), &[b'a'; 15]].concat();
        let token = base64::engine::general_purpose::STANDARD_NO_PAD.encode(broken);
        prop_assert!(!begins_text(token.as_bytes()));
    }

    #[test]
    fn f5_12_nothing_panics_and_what_was_replaced_stays_so(
        before in any::<String>(), at in 0..37_usize, after in "[ .,;\\n]{1,4}"
    ) {
        let samples = samples();
        let (_, lead, secret, end) = &samples[at.min(samples.len() - 1)];
        let text = format!("{before} {lead}{secret}{end}{after}{before}");
        let safe = CredentialForms::builtin().redact(&text, None);
        prop_assert!(safe.is_some_and(|safe| !safe.contains(&**secret) || secret.len() < 12));
    }
}

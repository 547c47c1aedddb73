//! The broker's own role at AWS: keys of the environment, a web identity, a container's or an instance's role, in the
//! order of the object store's chain.

use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

/// Timeout of one request for credentials.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request with its retries: an attempt waits for it.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// The provider of the broker's credentials. `environment` holds the `AWS_…` variables that the chain reads; nothing is
/// asked before the first use.
///
/// # Errors
/// Why the environment's variables make no chain.
pub fn provider(
    region: &str,
    environment: &[(String, String)],
) -> Result<AwsCredentialProvider, String> {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in environment {
        if name.starts_with("AWS_")
            && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
        {
            builder = builder.with_config(key, value);
        }
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let chain = builder
        .with_region(region)
        // The builder makes a client of a bucket, of which only the credentials are taken.
        .with_bucket_name("none")
        .with_client_options(ClientOptions::new().with_timeout(REQUEST_TIMEOUT))
        .with_retry(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: 2,
            retry_timeout: RETRY_TIMEOUT,
        })
        .build()
        .map_err(|why| why.to_string())?;
    Ok(chain.credentials().clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Json;
    use axum::http::{HeaderMap, StatusCode};
    use axum::routing::get;
    use serde_json::json;

    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[tokio::test]
    async fn keys_of_the_environment_come_first() {
        let environment = environment(&[
            ("AWS_ACCESS_KEY_ID", "AKID"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_SESSION_TOKEN", "token"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/nobody"),
        ]);
        let credential =
            provider("eu-west-1", &environment).unwrap().get_credential().await.unwrap();
        assert_eq!(
            (credential.key_id.as_str(), credential.secret_key.as_str()),
            ("AKID", "secret")
        );
        assert_eq!(credential.token.as_deref(), Some("token"));
    }

    #[tokio::test]
    async fn a_containers_role_is_asked_once_until_it_expires() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let answer = move |headers: HeaderMap| {
            let count = Arc::clone(&count);
            async move {
                if headers.get("authorization").is_none_or(|token| token != "of the pod") {
                    return Err(StatusCode::FORBIDDEN);
                }
                count.fetch_add(1, Ordering::SeqCst);
                Ok(Json(json!({
                    "AccessKeyId": "ASIA", "SecretAccessKey": "short", "Token": "lived",
                    "Expiration": "2099-01-01T00:00:00Z",
                })))
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/credentials", listener.local_addr().unwrap());
        let router = axum::Router::new().route("/credentials", get(answer));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "of the pod").unwrap();
        let provider = provider(
            "eu-west-1",
            &environment(&[
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.to_str().unwrap()),
            ]),
        )
        .unwrap();
        for _ in 0..2 {
            let credential = provider.get_credential().await.unwrap();
            assert_eq!(credential.token.as_deref(), Some("lived"));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        server.abort();
    }
}

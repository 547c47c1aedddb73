//! A bucket of an S3-compatible server, as the settings and the `AWS_…` variables name it.

use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::error::ArchiveError;
use crate::config::Config;

/// Timeout of one request to a server: a segment of 16 MiB over a slow line.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of one operation with all its retries: a reader waits for it.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// Retries after the first attempt.
const RETRIES: usize = 3;

/// The bucket of a URL, and the prefix of its keys; `setting` is the setting's name for errors.
pub(super) fn bucket(
    setting: &str,
    parsed: &url::Url,
    config: &Config,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<(AmazonS3Builder, Path), ArchiveError> {
    let wrong = |why: &dyn std::fmt::Display| ArchiveError::Config(format!("{setting}: {why}"));
    let bucket = parsed.host_str().filter(|host| !host.is_empty());
    let bucket = bucket.ok_or_else(|| wrong(&"no bucket"))?;
    let prefix = Path::from_url_path(parsed.path()).map_err(|err| wrong(&err))?;
    let mut builder = AmazonS3Builder::new();
    for (name, value) in environment {
        if name.starts_with("AWS_")
            && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
        {
            builder = builder.with_config(key, value);
        }
    }
    let retention = &config.retention;
    builder = builder
        .with_bucket_name(bucket)
        .with_region(&retention.s3_region)
        .with_allow_http(retention.s3_allow_http)
        .with_client_options(
            ClientOptions::new()
                .with_allow_http(retention.s3_allow_http)
                .with_timeout(REQUEST_TIMEOUT)
                .with_connect_timeout(CONNECT_TIMEOUT),
        )
        .with_retry(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        });
    if !retention.s3_endpoint.is_empty() {
        // In its normal form: the client panics at signs that a URL has to encode.
        let endpoint = url::Url::parse(&retention.s3_endpoint)
            .map_err(|err| ArchiveError::Config(format!("retention.s3_endpoint: {err}")))?;
        builder = builder.with_endpoint(endpoint.as_str().trim_end_matches('/'));
    }
    // The client takes the process's provider; the program and the tests install the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok((builder, prefix))
}

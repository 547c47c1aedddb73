//! One exchange with a server of a transport that speaks HTTP.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use tokio::time::timeout;

use handoffd_broker::egress::exchange::failure_of;
use handoffd_broker::transport::{AttemptFailure, FailureClass};

/// Sends a request and reads its answer, up to `max` bytes, within `limit`.
///
/// # Errors
/// The failure; `reached` is `false` where no byte of the request left.
pub async fn exchange(
    request: RequestBuilder,
    limit: Duration,
    max: usize,
) -> Result<(u16, Vec<u8>), AttemptFailure> {
    let exchange = timeout(limit, async {
        let response = request.send().await.map_err(|why| failure_of(&why))?;
        Ok((response.status().as_u16(), read(response, max).await?))
    });
    exchange.await.unwrap_or_else(|_| {
        Err(AttemptFailure::reached(FailureClass::Timeout, None, "no answer in time"))
    })
}

async fn read(mut response: Response, max: usize) -> Result<Vec<u8>, AttemptFailure> {
    let status = response.status().as_u16();
    let failed = |class, why: String| AttemptFailure::reached(class, Some(status), why);
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if body.len() + chunk.len() <= max => body.extend_from_slice(&chunk),
            Ok(Some(_)) => {
                let why = format!("answered {status} with more than {max} bytes");
                return Err(failed(FailureClass::BodyTooLarge, why));
            }
            Err(_) => {
                let why = format!("answered {status}, but the connection broke within its body");
                return Err(failed(FailureClass::Protocol, why));
            }
        }
    }
}

/// The failure of an answer that is not the service's own.
pub fn foreign(status: u16, service: &str) -> AttemptFailure {
    let class = if status == 200 { FailureClass::Protocol } else { FailureClass::Status };
    AttemptFailure::reached(
        class,
        Some(status),
        format!("answered {status}, and not as {service} does"),
    )
}

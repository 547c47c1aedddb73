//! Messages that a server sends, one by one or as a batch: verdicts of a reply channel, and handoffs. Each is acknowledged by
//! itself.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use handoffd_broker::transport::{AttemptFailure, Disposition, Sink};

/// A message that was received and is not acknowledged.
#[async_trait]
pub trait Inbound: Send + Sync {
    fn body(&self) -> Bytes;

    /// Acknowledges the message, after it published the answer or parked the message where `disposition` says so.
    ///
    /// # Errors
    /// The server did not take the answer or the parked message: the message stays unacknowledged.
    async fn settle(self, disposition: Disposition) -> Result<(), AttemptFailure>;

    /// Tells the server that the message is still at work, so that it delivers the message to no other consumer.
    async fn hold(&self) {}
}

/// Hands messages to the sink, `at_once` of them at most, until `stopping`, the end of `messages` or a failure. Messages
/// with equal [`Sink::order`] go one after the other, in the order of their arrival. A message that the broker cannot take
/// now is offered again after the pause, before later ones of its order.
///
/// # Errors
/// The first failure of the connection. The server delivers unacknowledged messages again.
pub async fn drain<M: Inbound>(
    messages: impl Stream<Item = Result<M, AttemptFailure>> + Send,
    sink: &dyn Sink,
    stopping: &CancellationToken,
    at_once: usize,
) -> Result<(), AttemptFailure> {
    let mut messages = std::pin::pin!(messages);
    let mut at_work = FuturesUnordered::new();
    let mut orders: HashSet<String> = HashSet::new();
    let mut next: Option<(Option<String>, M)> = None;
    loop {
        if let Some((order, message)) = next.take() {
            let free = order.as_ref().is_none_or(|order| !orders.contains(order));
            if free && at_work.len() < at_once {
                orders.extend(order.clone());
                at_work.push(async move { (order, take(message, sink, stopping).await) });
            } else {
                next = Some((order, message));
            }
        }
        tokio::select! {
            biased;
            Some((order, outcome)) = at_work.next() => {
                if let Some(order) = order {
                    orders.remove(&order);
                }
                outcome?;
            }
            () = stopping.cancelled() => break,
            arrived = messages.next(), if next.is_none() => match arrived {
                Some(arrived) => {
                    let message = arrived?;
                    next = Some((sink.order(&message.body()), message));
                }
                None => break,
            },
        }
    }
    while let Some((_, outcome)) = at_work.next().await {
        outcome?;
    }
    Ok(())
}

async fn take<M: Inbound>(
    message: M,
    sink: &dyn Sink,
    stopping: &CancellationToken,
) -> Result<(), AttemptFailure> {
    loop {
        match sink.take(message.body()).await {
            Disposition::Later(pause) => {
                message.hold().await;
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => return Ok(()),
                    () = sleep(pause.max(Duration::from_millis(10))) => {}
                }
            }
            disposition => return message.settle(disposition).await,
        }
    }
}

/// Messages that are taken one after the other, and their key.
type Line<T> = (Option<String>, Vec<(T, Bytes)>);

/// Takes the messages of one batch and returns them with the disposition of each, never [`Disposition::Later`]: it
/// tries such a message again after its pause. Messages that are left at `stopping` are not in the answer and stay
/// unacknowledged.
pub async fn take_all<T>(
    sink: &dyn Sink,
    batch: Vec<(T, Bytes)>,
    stopping: &CancellationToken,
) -> Vec<(T, Bytes, Disposition)> {
    let mut lines: Vec<Line<T>> = Vec::new();
    for (tag, message) in batch {
        let key = sink.order(&message);
        match lines.iter_mut().find(|(known, _)| key.is_some() && *known == key) {
            Some((_, line)) => line.push((tag, message)),
            None => lines.push((key, vec![(tag, message)])),
        }
    }
    let lines = lines.into_iter().map(|(_, line)| async move {
        let mut taken = Vec::with_capacity(line.len());
        for (tag, message) in line {
            let Some(what) = take_until(sink, &message, stopping).await else { break };
            taken.push((tag, message, what));
        }
        taken
    });
    futures_util::future::join_all(lines).await.into_iter().flatten().collect()
}

async fn take_until(
    sink: &dyn Sink,
    message: &Bytes,
    stopping: &CancellationToken,
) -> Option<Disposition> {
    loop {
        if stopping.is_cancelled() {
            return None;
        }
        match sink.take(message.clone()).await {
            Disposition::Later(pause) => {
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => return None,
                    () = tokio::time::sleep(pause) => {}
                }
            }
            what => return Some(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures_util::stream;
    use tokio::time::Instant;

    use super::*;
    use handoffd_broker::transport::FailureClass;

    type Journal = Arc<Mutex<Vec<String>>>;

    struct Letter(&'static str, Journal);

    #[async_trait]
    impl Inbound for Letter {
        fn body(&self) -> Bytes {
            Bytes::from_static(self.0.as_bytes())
        }

        async fn settle(self, disposition: Disposition) -> Result<(), AttemptFailure> {
            self.1.lock().unwrap().push(format!("{disposition:?} {}", self.0));
            Ok(())
        }
    }

    /// Takes a second for each message; one whose body has `later` is put off once.
    #[derive(Default)]
    struct Slow(Mutex<HashSet<Bytes>>);

    #[async_trait]
    impl Sink for Slow {
        async fn take(&self, message: Bytes) -> Disposition {
            sleep(Duration::from_secs(1)).await;
            let later = message.windows(5).any(|part| part == b"later");
            if later && self.0.lock().unwrap().insert(message) {
                return Disposition::Later(Duration::from_secs(5));
            }
            Disposition::Done
        }

        fn order(&self, message: &[u8]) -> Option<String> {
            let order = *message.first()? as char;
            order.is_ascii_lowercase().then(|| order.to_string())
        }
    }

    async fn run(
        letters: &[&'static str],
        then: Option<FailureClass>,
    ) -> (Vec<String>, Duration, Result<(), AttemptFailure>) {
        let journal = Journal::default();
        let letters: Vec<_> =
            letters.iter().map(|text| Ok(Letter(text, Arc::clone(&journal)))).collect();
        let end = then.map(|class| Err(AttemptFailure::unreached(class, "broke")));
        let (sink, begun) = (Slow::default(), Instant::now());
        let outcome = drain(
            stream::iter(letters.into_iter().chain(end)),
            &sink,
            &CancellationToken::new(),
            4,
        )
        .await;
        let journal = journal.lock().unwrap().clone();
        (journal, begun.elapsed(), outcome)
    }

    #[tokio::test(start_paused = true)]
    async fn messages_of_one_order_go_one_after_the_other() {
        let (journal, took, _) = run(&["a later", "b", "a 2", "a 3"], None).await;
        assert_eq!(journal, ["Done b", "Done a later", "Done a 2", "Done a 3"]);
        assert_eq!(took.as_secs(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_allowed_are_at_work() {
        let (_, took, _) = run(&["1", "2", "3", "4", "5", "6", "7", "8"], None).await;
        assert_eq!(took.as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_is_told() {
        let (_, _, outcome) = run(&["1"], Some(FailureClass::Connect)).await;
        assert_eq!(outcome.map_err(|failure| failure.class), Err(FailureClass::Connect));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_settles_what_is_at_work_and_takes_nothing_more() {
        let journal = Journal::default();
        let letter = |text| Ok(Letter(text, Arc::clone(&journal)));
        let letters = stream::iter([letter("1"), letter("later"), letter("3")]);
        let stopping = CancellationToken::new();
        let sink = Slow::default();
        let stop = async {
            sleep(Duration::from_millis(1500)).await;
            stopping.cancel();
        };
        let letters = letters.chain(stream::pending());
        let (outcome, ()) = tokio::join!(drain(letters, &sink, &stopping, 2), stop);
        assert_eq!(outcome, Ok(()));
        assert_eq!(*journal.lock().unwrap(), ["Done 1", "Done 3"]);
    }
}

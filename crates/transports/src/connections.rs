//! Connections to servers, shared by the agents whose settings and credentials are the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use handoffd_broker::transport::ConnectionKey;

/// Time without use after which a connection is dropped.
const IDLE: Duration = Duration::from_mins(5);

struct Entry<C> {
    connection: Arc<OnceCell<C>>,
    used_at: Instant,
}

/// Open connections by what they depend on. Concurrent callers share one attempt to connect.
pub struct Connections<C>(Mutex<HashMap<ConnectionKey, Entry<C>>>);

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<C: Clone + Send + Sync + 'static> Connections<C> {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionKey, Entry<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open connection, with the time since its last use, or a new one by `connect`, which should bound its time. It goes on
    /// when its caller gives up, for the next one: of several servers the first may be silent for longer than one attempt.
    ///
    /// # Errors
    /// That of `connect`; the next caller tries again.
    pub async fn get<E, F>(
        &self,
        key: ConnectionKey,
        connect: impl FnOnce() -> F,
    ) -> Result<(C, Duration), E>
    where
        E: Send + 'static,
        F: Future<Output = Result<C, E>> + Send + 'static,
    {
        let now = Instant::now();
        let (cell, idle) = {
            let mut open = self.lock();
            open.retain(|_, entry| now.duration_since(entry.used_at) < IDLE);
            let entry = open
                .entry(key)
                .or_insert_with(|| Entry { connection: Arc::default(), used_at: now });
            let idle = now.duration_since(entry.used_at);
            entry.used_at = now;
            (Arc::clone(&entry.connection), idle)
        };
        if let Some(connection) = cell.get() {
            return Ok((connection.clone(), idle));
        }
        let connecting = connect();
        let dial = async move { cell.get_or_try_init(|| connecting).await.cloned() };
        match tokio::spawn(dial).await {
            Ok(connection) => Ok((connection?, idle)),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // The runtime ends.
            Err(_) => std::future::pending().await,
        }
    }

    /// Drops a connection that broke; those who use it keep their clones.
    pub fn forget(&self, key: ConnectionKey) {
        self.lock().remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_shared_until_it_breaks_or_idles() {
        let (connections, made) = (Connections::default(), Arc::new(AtomicU32::new(0)));
        let key = ConnectionKey::of(&["server", "secret"]);
        assert_ne!(key, ConnectionKey::of(&["servers", "ecret"]));
        let get = async |key| {
            let made = Arc::clone(&made);
            let connect = || async move { Ok::<_, ()>(made.fetch_add(1, Ordering::SeqCst)) };
            connections.get(key, connect).await.unwrap().0
        };
        assert_eq!((get(key).await, get(key).await), (0, 0));
        assert_eq!(get(ConnectionKey::of(&["other"])).await, 1);
        connections.forget(key);
        assert_eq!(get(key).await, 2);
        tokio::time::advance(IDLE).await;
        assert_eq!(get(key).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_leaves_the_dial_to_the_next() {
        let (connections, key) = (Connections::default(), ConnectionKey::of(&["server"]));
        let second = Duration::from_secs(1);
        let get = |what| {
            let connect = move || async move {
                tokio::time::sleep(3 * second).await;
                Ok::<_, ()>(what)
            };
            connections.get(key, connect)
        };
        assert!(tokio::time::timeout(2 * second, get("first")).await.is_err());
        let got = tokio::time::timeout(2 * second, get("second")).await;
        assert_eq!(got.unwrap().unwrap().0, "first");
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let connections = Connections::default();
        let key = ConnectionKey::of(&["server"]);
        assert_eq!(connections.get(key, || async { Err("away") }).await, Err("away"));
        assert!(connections.get(key, || async { Ok::<_, ()>(7) }).await.is_ok());
    }
}

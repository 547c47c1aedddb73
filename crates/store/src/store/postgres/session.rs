//! Connections of the write path. A batch's statements go out in flights: sent together, executed in order, answered
//! together, so that a batch waits for three or four round trips, however many statements it has.
//!
//! A connection has no task of its own: the task that awaits a flight drives it, and no thread is woken
//! to pass bytes on.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, Config, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::call::Call;
use super::connect::{self, PoolHealth, TRIED_AFTER};
use super::failure::broken;
use super::servers::Servers;
use super::statistics::PlanCaching;
use super::{PostgresOptions, tls};
use crate::store::{Result, StoreError};

/// Most statements that a connection keeps prepared; their texts vary with the tables that a batch writes.
const PREPARED: usize = 256;

/// Age at which a connection is replaced, as the pool does.
const LIFETIME: Duration = Duration::from_mins(30);

/// Longest wait for a connection to say goodbye.
const FAREWELL: Duration = Duration::from_millis(500);

type Driver = Pin<Box<dyn Future<Output = std::result::Result<(), tokio_postgres::Error>> + Send>>;

struct Session {
    client: Client,
    /// Gone once the connection broke.
    driver: Option<Driver>,
    prepared: HashMap<String, Statement>,
    since: Instant,
    used: Instant,
}

impl Session {
    async fn open(config: &Config, tls: &MakeRustlsConnect, messages: &str) -> Result<Self> {
        let (client, connection) = config.connect(tls.clone()).await.map_err(broken)?;
        let driver: Option<Driver> = Some(Box::pin(connection));
        let now = Instant::now();
        let mut session = Self { client, driver, prepared: HashMap::new(), since: now, used: now };
        session.fly(&[Call::plain(connect::settings(messages))]).await?;
        Ok(session)
    }

    /// Sends statements together, and returns the rows of each. The first failure is the flight's; the server
    /// executes nothing after it, within a transaction.
    async fn fly(&mut self, calls: &[Call]) -> Result<Vec<Vec<Row>>> {
        self.prepare(calls).await?;
        let client = &self.client;
        let prepared = &self.prepared;
        let flight = calls.iter().map(|call| {
            Box::pin(async move {
                if call.plain {
                    return client.batch_execute(&call.text).await.map(|()| Vec::new());
                }
                let statement = &prepared[&*call.text];
                client.query_raw(statement, call.values()).await?.try_collect().await
            })
        });
        let rows = drive(&mut self.driver, flight.collect()).await;
        self.used = Instant::now();
        rows.into_iter().map(|rows| rows.map_err(broken)).collect()
    }

    /// Prepares what this connection has not seen yet, in one flight.
    async fn prepare(&mut self, calls: &[Call]) -> Result<()> {
        if calls.iter().any(|call| call.unbound) {
            return Err(StoreError::Refused("a value cannot be sent".to_owned()));
        }
        let mut missing: Vec<&Call> = Vec::new();
        for call in calls.iter().filter(|call| !call.plain) {
            let known = self.prepared.contains_key(&*call.text);
            if !known && missing.iter().all(|other| other.text != call.text) {
                missing.push(call);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        if self.prepared.len() + missing.len() > PREPARED {
            self.prepared.clear();
            missing = calls.iter().filter(|call| !call.plain).collect();
        }
        let client = &self.client;
        let flight = missing
            .iter()
            .map(|call| Box::pin(client.prepare_typed(&call.text, &call.types)))
            .collect();
        let statements = drive(&mut self.driver, flight).await;
        for (call, statement) in missing.into_iter().zip(statements) {
            tracing::trace!(sql = &*call.text);
            self.prepared.insert(call.text.clone().into_owned(), statement.map_err(broken)?);
        }
        Ok(())
    }

    async fn close(self) {
        let Self { client, driver, prepared, .. } = self;
        drop((prepared, client));
        if let Some(driver) = driver {
            // It has nothing left to lose.
            let _ = timeout(FAREWELL, driver).await;
        }
    }
}

/// Polls requests on one connection, and the connection itself, until all are answered. A request is sent when it is
/// polled first: all of them in their order, before any answer is awaited. Behind one that fails before it is sent none
/// is sent, `COMMIT` least of all; its failure is then the last answer.
async fn drive<T, E>(
    driver: &mut Option<Driver>,
    mut flight: Vec<Pin<Box<impl Future<Output = std::result::Result<T, E>>>>>,
) -> Vec<std::result::Result<T, E>> {
    let mut answers: Vec<Option<std::result::Result<T, E>>> = flight.iter().map(|_| None).collect();
    let mut sent = 0;
    std::future::poll_fn(|context| {
        // Once more after the connection: what it has read is there at once.
        for passed in [false, true] {
            let mut open = false;
            for (place, request) in flight.iter_mut().enumerate() {
                if answers[place].is_some() {
                    continue;
                }
                match request.as_mut().poll(context) {
                    Poll::Ready(Err(err)) if place >= sent => {
                        answers.truncate(place);
                        answers.push(Some(Err(err)));
                        sent = usize::MAX;
                        break;
                    }
                    Poll::Ready(done) => answers[place] = Some(done),
                    Poll::Pending => open = true,
                }
            }
            flight.truncate(answers.len());
            sent = sent.max(flight.len());
            if !open {
                return Poll::Ready(());
            }
            if !passed
                && driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready())
            {
                // With it go the answers that will not come: their requests fail.
                *driver = None;
            }
        }
        Poll::Pending
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// The connections of the write path to one database.
pub(super) struct Sessions {
    servers: Arc<Servers>,
    /// How to reach each of them.
    ways: Vec<(Config, MakeRustlsConnect)>,
    /// The lowest level of server messages.
    messages: &'static str,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Session>>,
    open: AtomicU32,
    patience: Duration,
    health: PoolHealth,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Opens the first of at most `most` connections.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the settings cannot be, or the server turns the user away;
    /// [`StoreError::Unavailable`] where it cannot be reached in time.
    pub(super) async fn open(
        servers: &Arc<Servers>,
        options: &PostgresOptions,
        most: u32,
        messages: &'static str,
        health: &PoolHealth,
    ) -> Result<Arc<Self>> {
        let ways = servers.all().iter().map(tls::configure).collect::<Result<_>>()?;
        let sessions = Arc::new(Self {
            servers: Arc::clone(servers),
            ways,
            messages,
            places: Arc::new(Semaphore::new(most as usize)),
            idle: Mutex::default(),
            open: AtomicU32::new(0),
            patience: options.acquire_timeout,
            health: health.clone(),
        });
        let first = sessions.connect().await?;
        sessions.keep(first);
        Ok(sessions)
    }

    /// Connections in use and unused.
    pub(super) fn counts(&self) -> (u32, u32) {
        let idle = u32::try_from(self.lock().len()).unwrap_or(u32::MAX);
        (self.open.load(Ordering::Relaxed), idle)
    }

    pub(super) async fn close(&self) {
        self.places.close();
        let idle = std::mem::take(&mut *self.lock());
        for session in idle {
            session.close().await;
        }
    }

    /// A transaction, whose `BEGIN` is part of its first flight.
    pub(super) async fn begin(self: &Arc<Self>, plans: PlanCaching) -> Result<Tx> {
        let begin = match plans {
            PlanCaching::Fitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
            PlanCaching::Kept => {
                "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL plan_cache_mode = force_generic_plan"
            }
        };
        let permit = timeout(self.patience, Arc::clone(&self.places).acquire_owned())
            .await
            .map_err(|_| StoreError::Unavailable("no connection in time".to_owned()))?
            .map_err(|_| StoreError::Unavailable("closed".to_owned()))?;
        let session = match self.take().await {
            Some(session) => session,
            None => self.connect().await?,
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Tx {
            session: Some(session),
            sessions: Arc::clone(self),
            begin: Some(begin),
            _permit: permit,
        })
    }

    /// Carries out one statement by itself.
    pub(super) async fn fetch(self: &Arc<Self>, call: Call) -> Result<Vec<Row>> {
        let mut tx = self.begin(PlanCaching::Fitted).await?;
        tx.begin = None;
        let rows = tx.fetch(call).await?;
        tx.done();
        Ok(rows)
    }

    async fn connect(&self) -> Result<Session> {
        let (config, tls) = &self.ways[self.servers.find().await?];
        timeout(self.patience, Session::open(config, tls, self.messages))
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("no connection in time".to_owned())))
    }

    /// An unused connection; one that was not used for a while is tried first.
    async fn take(&self) -> Option<Session> {
        loop {
            let mut session = self.lock().pop()?;
            let idle = session.used.elapsed();
            if idle < TRIED_AFTER && !self.health.covers(idle) {
                return Some(session);
            }
            let tried = timeout(self.patience, session.fly(&[Call::plain("")])).await;
            if let Ok(Ok(_)) = tried {
                return Some(session);
            }
        }
    }

    fn keep(&self, session: Session) {
        let fresh = session.driver.is_some() && session.since.elapsed() < LIFETIME;
        if fresh && !self.places.is_closed() {
            self.lock().push(session);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction. Dropped before its end, it takes its connection along, and the server rolls it back.
pub(super) struct Tx {
    session: Option<Session>,
    sessions: Arc<Sessions>,
    /// The statement that begins it, until the first flight.
    begin: Option<&'static str>,
    _permit: OwnedSemaphorePermit,
}

impl Tx {
    /// Sends statements together, and returns the rows of each.
    ///
    /// # Errors
    /// The first failure. Also [`StoreError::Refused`] where an update did not find its rows.
    pub(super) async fn fly(&mut self, calls: Vec<Call>) -> Result<Vec<Vec<Row>>> {
        let Some(begin) = self.begin else {
            return self.sent(&calls).await;
        };
        let mut all = vec![Call::plain(begin)];
        all.extend(calls);
        let sent = match self.sent(&all).await {
            // The connection may have broken since its last use: nothing was written yet, so that it can be said again.
            Err(StoreError::Unavailable(_)) if self.lost() => {
                self.sessions.health.raise();
                self.session = Some(self.sessions.connect().await?);
                self.sent(&all).await
            }
            sent => sent,
        };
        self.begin = None;
        sent.map(|mut rows| rows.split_off(1))
    }

    pub(super) async fn fetch(&mut self, call: Call) -> Result<Vec<Row>> {
        Ok(self.fly(vec![call]).await?.pop().unwrap_or_default())
    }

    /// Sends the last statements, and `COMMIT` with them: the server carries it out as a rollback where one before
    /// it fails.
    ///
    /// # Errors
    /// The first failure. After [`StoreError::Unavailable`] the transaction may be committed all the same.
    pub(super) async fn commit(mut self, mut calls: Vec<Call>) -> Result<()> {
        calls.push(Call::plain("COMMIT"));
        match self.fly(calls).await {
            Ok(_) => {
                self.done();
                Ok(())
            }
            Err(err) => {
                self.give_up(&err).await;
                Err(err)
            }
        }
    }

    /// Ends a transaction that failed, and keeps the connection unless it broke.
    pub(super) async fn give_up(self, err: &StoreError) {
        if !matches!(err, StoreError::Unavailable(_))
            && let Err(err) = self.rollback().await
        {
            tracing::debug!(%err, "a transaction was not rolled back by its own connection");
        }
    }

    /// Gives the transaction up, and keeps the connection if it can be.
    pub(super) async fn rollback(mut self) -> Result<()> {
        if self.begin.is_none() {
            self.fly(vec![Call::plain("ROLLBACK")]).await?;
        }
        self.done();
        Ok(())
    }

    /// Keeps the connection, which is in no transaction.
    pub(super) fn done(mut self) {
        if let Some(session) = self.session.take() {
            self.sessions.keep(session);
        }
    }

    fn lost(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.driver.is_none())
    }

    async fn sent(&mut self, calls: &[Call]) -> Result<Vec<Vec<Row>>> {
        let Some(session) = &mut self.session else {
            return Err(StoreError::Unavailable("the connection broke".to_owned()));
        };
        let rows = session.fly(calls).await?;
        for (call, rows) in calls.iter().zip(&rows) {
            call.check(rows)?;
        }
        Ok(rows)
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.sessions.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test]
    async fn a_flight_of_many_statements_is_sent_in_order_before_any_is_answered() {
        let (sent, answered) = (RefCell::new(Vec::new()), Cell::new(0));
        let flight = (0..100).map(|number| {
            let (sent, answered) = (&sent, &answered);
            Box::pin(async move {
                assert_eq!(answered.get(), 0, "{number} was sent after an answer");
                sent.borrow_mut().push(number);
                tokio::task::yield_now().await;
                answered.set(answered.get() + 1);
                Ok::<_, ()>(number)
            })
        });
        let answers = drive(&mut None, flight.collect()).await;
        assert_eq!(answers, (0..100).map(Ok).collect::<Vec<_>>());
        assert_eq!(*sent.borrow(), (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn nothing_is_sent_behind_a_statement_that_cannot_be() {
        let sent = RefCell::new(Vec::new());
        let flight = (0..4).map(|number| {
            let sent = &sent;
            Box::pin(async move {
                if number == 2 {
                    return Err(number);
                }
                sent.borrow_mut().push(number);
                tokio::task::yield_now().await;
                Ok(number)
            })
        });
        let answers = drive(&mut None, flight.collect()).await;
        assert_eq!(answers, [Ok(0), Ok(1), Err(2)]);
        assert_eq!(*sent.borrow(), [0, 1]);
    }
}

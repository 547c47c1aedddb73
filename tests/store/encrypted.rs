//! Postgres over TLS.

use std::sync::Arc;

use crate::fixture::{given, submit};
use crate::harness::Bed;

pub async fn every_connection_is_encrypted_where_the_url_asks_for_it(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let listening = bed.store.listen().await.unwrap();
    let mut raw = bed.raw().await;
    let ours = "pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE datname = current_database() AND application_name = 'handoffd'";
    let (all, plain) = (raw.count(ours).await, raw.count(&format!("{ours} AND NOT ssl")).await);
    assert!(all >= 2, "one that writes and one that listens: {all}");
    assert_eq!(plain, 0);
    drop(listening);
}

//! A database URL that names several servers.

use std::sync::Arc;

use handoffd::store::StoreError;

use crate::harness::{Bed, behind_a_dead_server, open_with};

pub async fn where_no_server_answers_the_store_is_away(_bed: Arc<Bed>) {
    let away = open_with("postgres://u:secret@127.0.0.1:1,127.0.0.1:2/d", None).await;
    let why = match away {
        Err(StoreError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(
        why.contains("server 1: ") && why.contains("server 2: ") && !why.contains("secret"),
        "{why}"
    );
}

pub async fn what_a_server_says_is_told_where_none_is_the_primary(bed: Arc<Bed>) {
    let missing = format!("{}_missing", behind_a_dead_server(bed.url()));
    let away = open_with(&missing, None).await;
    // invalid_catalog_name
    assert!(
        matches!(&away, Err(StoreError::Unavailable(why)) if why.contains("3D000")),
        "the other server may have it: {away:?}"
    );
}

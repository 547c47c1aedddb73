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
    assert!(why.contains("none of the 2 servers") && !why.contains("secret"), "{why}");
}

pub async fn a_server_that_turns_the_user_away_is_told_from_one_that_is_away(bed: Arc<Bed>) {
    let missing = format!("{}_missing", behind_a_dead_server(bed.url()));
    let refused = open_with(&missing, None).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
}

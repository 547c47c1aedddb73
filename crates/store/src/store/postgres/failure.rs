//! Maps server errors to store errors, without the server's text, which may quote data.

use crate::store::StoreError;

/// The fault when one session gets another's statement, or does not find its own.
pub(super) const POOLER: &str = "a pooler between the broker and Postgres does not keep prepared statements; set \
    max_prepared_statements = 200 in pgbouncer (1.21 or newer), pool_mode = session, or connect to Postgres itself";

/// Maps an error of the driver or of the server.
pub(super) fn failed(err: sqlx::Error) -> StoreError {
    use sqlx::Error as E;
    match err {
        E::Database(err) => {
            let code = err.code().unwrap_or_default().into_owned();
            let place = err.constraint().or_else(|| err.table());
            let server = err.try_downcast_ref::<sqlx::postgres::PgDatabaseError>();
            judge(&code, place, server.and_then(|err| err.r#where()))
        }
        E::PoolTimedOut => StoreError::Unavailable("no connection in time".to_owned()),
        E::PoolClosed => StoreError::Unavailable("closed".to_owned()),
        // Their texts name the operating system's or the handshake's complaint, never a value.
        err @ (E::Io(_) | E::Tls(_)) => StoreError::Unavailable(err.to_string()),
        E::Protocol(_) | E::BeginFailed | E::WorkerCrashed => {
            StoreError::Unavailable("the connection broke".to_owned())
        }
        E::ColumnDecode { index, .. } => {
            StoreError::Refused(format!("column {index} cannot be read"))
        }
        E::Configuration(_) => StoreError::Refused("the configuration is wrong".to_owned()),
        _ => StoreError::Refused("the driver cannot do this".to_owned()),
    }
}

/// Maps an error of the write path's driver or of the server.
#[expect(clippy::needless_pass_by_value, reason = "maps an error")]
pub(super) fn broken(err: tokio_postgres::Error) -> StoreError {
    if let Some(err) = err.as_db_error() {
        let place = err.constraint().or_else(|| err.table());
        return judge(err.code().code(), place, err.where_());
    }
    // The driver tells its own kinds apart by their texts alone; those of a connection are all that can pass.
    match err.to_string() {
        text if text.starts_with("error serializing") || text.starts_with("expected ") => {
            StoreError::Refused("the driver cannot do this".to_owned())
        }
        text if text.starts_with("error deserializing") || text.starts_with("invalid ") => {
            StoreError::Refused(text)
        }
        text if text.starts_with("authentication") => StoreError::Refused(text),
        // The text of the operating system or of the handshake, never a value.
        text => StoreError::Unavailable(match std::error::Error::source(&err) {
            Some(source) => format!("{text}: {source}"),
            None => text,
        }),
    }
}

/// Maps a SQLSTATE (PostgreSQL manual, appendix A). `within` is the server's context: the broker's own statements have none, a
/// function that a trigger calls has one.
fn judge(code: &str, place: Option<&str>, within: Option<&str>) -> StoreError {
    let text = match place {
        Some(place) => format!("SQLSTATE {code} at {place}"),
        None => format!("SQLSTATE {code}"),
    };
    match code {
        // unique_violation, serialization_failure, deadlock_detected
        "23505" | "40001" | "40P01" => StoreError::Conflict(text),
        // A standby; too slow; takes no connections; locked; idle too long; outcome unknown.
        "25006" | "57014" | "55000" | "55P03" | "25P03" | "40003" => StoreError::Unavailable(text),
        _ if ["08", "53", "57P", "58"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Unavailable(text)
        }
        // character_not_in_repertoire, untranslatable_character: a NUL in a text. A start refuses a database that is not
        // UTF-8, whose other characters would end here too.
        "22021" | "22P05" => StoreError::Refused("a text holds a NUL character".to_owned()),
        // duplicate_prepared_statement, invalid_sql_statement_name: another session's, or gone with it.
        "42P05" | "26000" => StoreError::Denied(format!("{text}: {POOLER}")),
        // Classes of a value that does not fit: data exceptions, and limits of the program. In a function of the operator's
        // it says nothing of the broker's value.
        _ if within.is_none_or(str::is_empty)
            && ["22", "54"].iter().any(|class| code.starts_with(class)) =>
        {
            StoreError::Refused(text)
        }
        _ => StoreError::Denied(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_pass_are_told_from_those_that_stay() {
        for code in ["57P01", "57P03", "53300", "08006", "25006", "57014", "55000", "58030"] {
            assert!(matches!(judge(code, None, None), StoreError::Unavailable(_)), "{code}");
        }
        for code in ["23505", "40001", "40P01"] {
            assert!(matches!(judge(code, None, None), StoreError::Conflict(_)), "{code}");
        }
        for code in ["22021", "22001", "54000"] {
            assert!(matches!(judge(code, None, None), StoreError::Refused(_)), "{code}");
        }
        for code in ["42501", "P0001", "23502", "28P01", "42P01", "42P05", "XX001", ""] {
            assert!(matches!(judge(code, None, None), StoreError::Denied(_)), "{code}");
        }
    }

    #[test]
    fn a_value_that_a_trigger_cannot_take_is_the_database_s_refusal() {
        for code in ["22012", "22001", "22000", "54000", "P0001"] {
            let within = Some("PL/pgSQL function boom() line 1 at PERFORM");
            assert!(matches!(judge(code, None, within), StoreError::Denied(_)), "{code}");
        }
    }

    #[test]
    fn a_pooler_that_loses_prepared_statements_is_named() {
        for code in ["42P05", "26000"] {
            assert!(judge(code, None, None).to_string().contains("pgbouncer"), "{code}");
        }
    }

    #[test]
    fn the_message_names_a_place_and_no_value() {
        let err = judge("23505", Some("handoffs_pkey"), None);
        assert!(err.to_string().ends_with("SQLSTATE 23505 at handoffs_pkey"), "{err}");
    }
}

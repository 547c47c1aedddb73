//! The limit of open files: each connection takes a file, and so does all else that a broker opens.

use super::StartError;
use crate::http::places::KEPT;
use handoffd_broker::config::Server;

/// Connections of the separate listener of metrics.
pub(super) const METRICS_CONNECTIONS: usize = 64;

/// Fewer connections than these are no service.
const FEWEST: usize = 32;

/// How many connections the API's listener takes: as many as the settings say, and no more than fit three quarters of the limit of
/// open files, which is raised as far as it may be. The last quarter is for the store, deliveries and files.
///
/// # Errors
/// [`StartError::Config`] where the limit leaves no room for connections.
pub(super) fn connections(settings: &Server) -> Result<usize, StartError> {
    let Some(limit) = raised() else { return Ok(settings.max_connections) };
    let metrics = settings.metrics_listen.map_or(0, |_| METRICS_CONNECTIONS + KEPT);
    let most = fitting(limit, metrics);
    if most < FEWEST {
        return Err(StartError::Config(format!(
            "the limit of open files is {limit}: three quarters of it, for connections, leave room for {most}, and the broker asks \
             for {FEWEST}; raise it (ulimit -n, LimitNOFILE=), 1024 is usual"
        )));
    }
    let asked = settings.max_connections;
    if asked > most {
        tracing::warn!(
            asked,
            limit,
            most,
            "server.max_connections does not fit the limit of open files: fewer are taken; raise the limit (ulimit -n, LimitNOFILE=)"
        );
    }
    Ok(asked.min(most))
}

/// The connections of the API's listener that fit a limit, beside those of the listener of metrics.
const fn fitting(limit: usize, metrics: usize) -> usize {
    (limit - limit / 4).saturating_sub(metrics + KEPT)
}

/// The limit of open files, once it is as high as this process may have it. `None`: there is none.
#[cfg(unix)]
fn raised() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    // A system may give less than it says; what was there before then stays.
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised,
        Err(_) => limit,
    };
    limit.current.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
fn raised() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_quarter_of_the_files_to_all_else() {
        assert_eq!(fitting(1_024, 0), 752);
        assert_eq!(fitting(1_024, 80), 672);
        assert_eq!(fitting(16, 0), 0);
        assert!(fitting(usize::MAX, 80) > 1 << 40);
    }
}

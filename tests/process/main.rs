//! The broker as an operator sees it: a process that is killed, stopped, started twice and cut off,
//! under load, with real receivers. Every case ends with the verifier and with a count: what was
//! acknowledged is there once, and reached its receiver.
//!
//! The Postgres half needs a server: `HANDOFFD_TEST_POSTGRES_URL` names one on which databases may
//! be made. `HANDOFFD_TEST_ROUNDS` asks for more kills than the few that CI has time for.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(missing_docs, unreachable_pub, reason = "nobody's library")]

mod backlog;
mod broker;
mod cuts;
mod kills;
mod load;
mod pair;
mod receiver;
mod site;
mod starts;
mod stops;
mod world;

/// Runs each case on each side.
macro_rules! on_both_sides {
    ($($file:ident: $($case:ident),+ $(,)?;)+) => {
        mod sqlite {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::site::run(crate::site::Side::Sqlite, crate::$file::$case).await;
                }
            )+)+
        }
        mod postgres {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::site::run(crate::site::Side::Postgres, crate::$file::$case).await;
                }
            )+)+
        }
    };
}

on_both_sides! {
    kills:
        killed_under_load_nothing_acknowledged_is_lost;
    stops:
        told_to_stop_under_load_it_ends_well_and_loses_nothing,
        long_polls_and_waits_end_with_the_broker,
        a_second_signal_ends_it_at_once,
        a_stop_is_bounded_whatever_the_receiver_does;
    starts:
        it_is_ready_when_it_says_where_it_listens,
        another_master_key_is_refused,
        a_wrong_setting_is_named;
    backlog:
        what_found_its_receiver_full_waits_for_no_poll,
        what_found_the_broker_full_waits_for_no_poll;
    cuts:
        senders_that_go_away_lose_nothing_and_repeat_nothing,
        a_receiver_that_hangs_up_is_tried_again,
        a_slow_receiver_does_not_delay_another;
}

mod on_one_side {
    use crate::site::{Side, run};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_sqlite_file_is_served_once() {
        run(Side::Sqlite, crate::starts::a_file_that_is_served_is_refused).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_brokers_share_the_work_and_deliver_nothing_twice() {
        run(Side::Postgres, crate::pair::two_share_the_work_and_deliver_nothing_twice).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_broker_that_is_left_takes_over() {
        run(Side::Postgres, crate::pair::the_one_that_is_left_takes_over).await;
    }
}

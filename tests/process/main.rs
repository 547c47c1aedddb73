//! The broker as an operator sees it: a process that is killed, stopped, started twice and cut off,
//! under load, with real receivers. Every case ends with the verifier and with a count: what was
//! acknowledged is there once, and reached its receiver.
//!
//! The Postgres half needs a server: `HANDOFFD_TEST_POSTGRES_URL` names one on which databases may
//! be made. `HANDOFFD_TEST_ROUNDS` asks for more kills than the few that CI has time for.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(clippy::too_many_lines, reason = "a case reads from its first request to its last count")]
#![allow(unreachable_pub, reason = "not a library")]

mod apart;
mod archive;
mod backlog;
mod broker;
mod collector;
mod connections;
mod crash;
mod cuts;
#[path = "../support/databases.rs"]
mod databases;
mod erasures;
mod events;
mod failover;
mod figures;
mod figures_transports;
mod full;
mod isolation;
mod kills;
mod load;
mod logs;
mod noticed;
mod opinions;
mod overload;
mod pace;
mod pair;
mod proxy;
#[path = "../api/python.rs"]
#[allow(dead_code, reason = "the API's cases use more of it")]
mod python;
#[path = "../api/queues.rs"]
#[allow(dead_code, reason = "the API's cases use more of it")]
mod queues;
mod receiver;
mod remote;
mod remote_agent;
mod rollouts;
mod site;
mod soak;
mod stalls;
mod starts;
mod steps;
mod stops;
mod traces;
mod upgrades;
mod witnessing;
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
    crash:
        killed_at_each_step_one_broker_breaks_no_law,
        f2_killed_while_handoffs_fail_each_failure_is_in_the_log_once,
        killed_while_queues_are_cut_and_killed_breaks_no_law,
        killed_while_receivers_ask_each_question_is_in_the_log_once,
        killed_within_a_conversation_at_a_door_each_step_is_in_the_log_once,
        killed_while_groups_gather_and_streams_run_one_broker_breaks_no_law;
    events:
        killed_while_telling_nothing_is_missed;
    erasures:
        killed_within_an_erasure_it_goes_on_and_nothing_is_unexplained;
    stops:
        told_to_stop_under_load_it_ends_well_and_loses_nothing,
        long_polls_and_waits_end_with_the_broker,
        a_second_signal_ends_it_at_once,
        a_stop_is_bounded_whatever_the_receiver_does;
    starts:
        it_is_ready_when_it_says_where_it_listens,
        another_master_key_is_refused,
        a_missing_master_key_is_refused_and_stays_missing,
        a_changed_admin_key_names_those_that_are_still_valid,
        a_wrong_setting_is_named,
        a_start_that_cannot_listen_delivers_nothing,
        f4_6_a_pod_beside_a_service_of_its_name_starts;
    upgrades:
        a_store_of_0_1_0_opens_goes_on_and_verifies,
        a_store_of_0_2_0_opens_goes_on_and_verifies,
        a_store_of_0_3_0_opens_goes_on_and_verifies,
        a_store_of_0_4_0_opens_goes_on_and_verifies;
    witnessing:
        a_log_that_was_cut_and_grew_anew_fits_no_head_that_was_kept,
        a_place_or_witness_that_cannot_be_is_named;
    backlog:
        what_found_its_receiver_full_waits_for_no_poll,
        what_found_the_broker_full_waits_for_no_poll;
    archive:
        killed_at_any_step_the_archive_loses_nothing;
    steps:
        an_archive_that_ends_at_any_step_loses_nothing,
        an_erasure_that_ends_at_any_step_is_finished_by_the_next_broker,
        f4_7_a_purge_that_ends_at_any_step_is_finished_by_the_next,
        a_compression_that_ends_at_any_step_is_finished_by_the_next_broker,
        a_webhooks_compression_that_ends_at_any_step_is_finished_by_the_next_broker;
    opinions:
        an_opinion_that_ends_at_any_step_is_recorded_by_the_next_broker,
        a_broker_killed_while_the_classifier_thinks_leaves_the_question_to_the_next,
        brokers_that_share_a_database_ask_once_about_each_message;
    cuts:
        senders_that_go_away_lose_nothing_and_repeat_nothing,
        a_receiver_that_hangs_up_is_tried_again,
        a_slow_receiver_does_not_delay_another;
    isolation:
        receivers_in_trouble_cost_the_others_nothing;
    overload:
        ten_times_too_much_is_refused_and_costs_no_memory;
    logs:
        no_line_of_a_whole_run_holds_what_was_planted,
        f2_3_each_rollback_escalation_and_dead_letter_is_a_line_at_warn,
        f3_6_each_step_of_an_edge_is_a_line_under_its_audit_event,
        a_setting_under_its_former_name_is_a_line_at_warn;
    traces:
        a_handoff_is_one_trace_over_http,
        a_handoff_is_one_trace_over_grpc,
        without_a_header_the_message_says_the_trace,
        a_trace_goes_on_after_a_restart,
        what_is_not_sampled_is_not_exported_and_goes_on,
        a_collector_that_hangs_holds_nothing_up;
}

/// Connections have nothing to do with the store.
mod of_connections {
    use crate::connections;
    use crate::site::{Side, run};

    macro_rules! cases {
        ($($case:ident),+ $(,)?) => {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    run(Side::Sqlite, connections::$case).await;
                }
            )+
        };
    }

    cases! {
        silent_connections_at_the_limit_of_files_stop_nobody,
        a_limit_of_files_without_room_for_connections_is_refused,
        a_connection_that_asks_for_nothing_ends,
        while_each_connection_is_at_work_health_is_answered,
        answers_without_a_window_are_bounded_and_end,
        what_connections_hold_unread_is_bounded,
        heads_that_never_end_are_bounded,
    }
}

mod on_one_side {
    use crate::site::{Side, run};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "ten thousand erasures, timed by hand: run with --ignored --nocapture"]
    async fn ten_thousand_handoffs_of_one_person_on_sqlite() {
        run(Side::Sqlite, crate::erasures::ten_thousand_handoffs_of_one_person).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "ten thousand erasures, timed by hand: run with --ignored --nocapture"]
    async fn ten_thousand_handoffs_of_one_person_on_postgres() {
        run(Side::Postgres, crate::erasures::ten_thousand_handoffs_of_one_person).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "figures for docs/performance.md: run with --ignored --nocapture"]
    async fn figures_of_a_group_on_sqlite() {
        run(Side::Sqlite, crate::figures::figures_of_a_group_beside_as_many_handoffs).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "figures for docs/performance.md: run with --ignored --nocapture"]
    async fn figures_of_a_group_on_postgres() {
        run(Side::Postgres, crate::figures::figures_of_a_group_beside_as_many_handoffs).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "figures for docs/performance.md: run with --ignored --nocapture"]
    async fn figures_of_a_chunk_on_sqlite() {
        run(Side::Sqlite, crate::figures::figures_of_a_chunk_to_its_receiver).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "figures for docs/performance.md: run with --ignored --nocapture"]
    async fn figures_of_a_chunk_on_postgres() {
        run(Side::Postgres, crate::figures::figures_of_a_chunk_to_its_receiver).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "figures for docs/performance.md: run with --ignored --nocapture"]
    async fn figures_of_the_transports_on_sqlite() {
        run(Side::Sqlite, crate::figures_transports::figures_of_the_transports).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "figures for docs/performance.md: run with --ignored --nocapture"]
    async fn figures_of_the_transports_on_postgres() {
        run(Side::Postgres, crate::figures_transports::figures_of_the_transports).await;
    }

    /// Each kill may hit a batch that is in one database and not yet in the other.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn killed_between_two_databases_nothing_acknowledged_is_lost() {
        run(Side::Apart, crate::kills::killed_under_load_nothing_acknowledged_is_lost).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn killed_at_each_step_between_two_databases_the_next_start_ends_it() {
        run(Side::Apart, crate::apart::killed_at_each_step_the_next_start_ends_it).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn killed_at_each_step_between_two_databases_another_broker_ends_it() {
        run(Side::Apart, crate::apart::killed_at_each_step_another_broker_ends_it).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_sqlite_file_is_served_once() {
        run(Side::Sqlite, crate::starts::a_file_that_is_served_is_refused).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_acknowledged_is_lost_on_a_full_disk() {
        run(Side::Sqlite, crate::full::nothing_acknowledged_is_lost_on_a_full_disk).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_archive_without_room_moves_nothing() {
        run(Side::Sqlite, crate::full::an_archive_without_room_moves_nothing).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_erasure_without_room_waits_for_it() {
        run(Side::Sqlite, crate::full::an_erasure_without_room_waits_for_it).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_bucket_is_as_good_as_a_folder() {
        run(Side::Postgres, crate::archive::a_bucket_is_as_good_as_a_folder).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_bucket_keeps_every_tree_head_and_replaces_none() {
        run(Side::Sqlite, crate::witnessing::a_bucket_keeps_every_tree_head_and_replaces_none)
            .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_brokers_share_the_work_and_deliver_nothing_twice() {
        run(Side::Postgres, crate::pair::two_share_the_work_and_deliver_nothing_twice).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_of_two_brokers_is_replaced_under_load_and_nothing_is_lost() {
        run(
            Side::Postgres,
            crate::rollouts::each_broker_is_replaced_under_load_and_nothing_is_lost,
        )
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_same_message_at_two_brokers_is_committed_once() {
        run(Side::Postgres, crate::pair::the_same_message_at_both_is_committed_once).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_one_broker_registered_is_not_refused_by_another() {
        run(Side::Postgres, crate::pair::what_one_registered_is_not_refused_by_the_other).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_brokers_tell_a_subscriber_nothing_twice() {
        run(Side::Postgres, crate::events::two_that_live_tell_nothing_twice).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_broker_that_is_left_goes_on_telling() {
        run(Side::Postgres, crate::events::the_broker_that_is_left_goes_on_telling).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn counts_add_up_and_a_dead_brokers_breaker_goes_with_it() {
        run(Side::Postgres, crate::noticed::counts_add_up_and_a_dead_brokers_breaker_goes_with_it)
            .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_broker_that_is_left_takes_over() {
        run(Side::Postgres, crate::pair::the_one_that_is_left_takes_over).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_dead_brokers_clock_does_not_matter() {
        run(Side::Postgres, crate::pair::a_dead_brokers_clock_does_not_matter).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_that_falls_silent_is_waited_for_so_long_and_no_longer() {
        let case = crate::stalls::a_server_that_falls_silent_is_waited_for_so_long_and_no_longer;
        run(Side::Postgres, case).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "an hour, by hand: run with --ignored --nocapture; docs/reliability.md says how"]
    async fn an_hour_at_half_of_saturation_on_sqlite() {
        run(Side::Sqlite, crate::soak::at_half_of_saturation_nothing_grows).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "an hour, by hand: run with --ignored --nocapture; docs/reliability.md says how"]
    async fn an_hour_at_half_of_saturation_on_postgres() {
        run(Side::Postgres, crate::soak::at_half_of_saturation_nothing_grows).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs two servers and haproxy: scripts/failover brings them"]
    async fn the_primary_dies_under_load() {
        crate::failover::the_primary_dies_under_load().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_of_two_brokers_follows_a_remote_task_and_the_other_takes_over() {
        let case = crate::remote::one_of_two_brokers_follows_a_remote_task_and_the_other_takes_over;
        run(Side::Postgres, case).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn killed_at_each_step_three_brokers_break_no_law() {
        run(Side::Postgres, crate::crash::killed_at_each_step_three_brokers_break_no_law).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn killed_while_groups_gather_and_streams_run_three_brokers_break_no_law() {
        let case =
            crate::crash::killed_while_groups_gather_and_streams_run_three_brokers_break_no_law;
        run(Side::Postgres, case).await;
    }
}

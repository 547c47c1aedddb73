//! One suite, both stores: every case runs on SQLite and on Postgres.
//!
//! The Postgres half needs a server: `HANDOFFD_TEST_POSTGRES_URL` names one on which databases may
//! be made. Each case gets a database of its own there, and drops it.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(unreachable_pub, reason = "not a library")]

mod apart;
mod attempts;
mod batches;
mod caps;
mod cold;
mod contracts;
mod costs;
#[path = "../support/databases.rs"]
mod databases;
mod deliveries;
mod encrypted;
mod erasure;
mod events;
mod fixture;
mod groups;
mod harness;
use handoffd::store::memory;
mod opinions;
mod outage;
mod plans;
mod reach;
mod reads;
mod receivers;
mod recovery;
mod roles;
mod schema;
mod schemas;
mod seals;
mod servers;
mod statements;
mod states;
mod streams;
mod tamper;
mod tree;

/// Runs each case on a side.
macro_rules! on {
    ($side:expr, $($file:ident: $($case:ident),+ $(,)?;)+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::harness::run($side, crate::$file::$case).await;
            }
        )+)+
    };
}

/// Runs each case on each side.
macro_rules! on_both_sides {
    ($($file:ident: $($case:ident),+ $(,)?;)+) => {
        mod sqlite {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::harness::run(crate::harness::Side::Sqlite, crate::$file::$case).await;
                }
            )+)+
        }
        mod postgres {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::harness::run(crate::harness::Side::Postgres, crate::$file::$case).await;
                }
            )+)+
        }
    };
}

/// Runs cases on the simulation's store: those that ask for what it keeps, and by the store alone. A case
/// that turns in circles until others are done (`everything_at_once_stays_sound`) would keep them from it:
/// memory never waits.
macro_rules! in_memory_too {
    ($($file:ident: $($case:ident),+ $(,)?;)+) => {
        mod in_memory {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::harness::run(crate::harness::Side::Memory, crate::$file::$case).await;
                }
            )+)+
        }
    };
}

in_memory_too! {
    states:
        records_about_state_are_listed_apart_with_their_contents;
    schema:
        a_tenant_keeps_its_first_log,
        a_fact_keeps_its_first_value;
    costs:
        every_window_has_the_same_costs_with_and_without_remembered_sums,
        records_after_a_remembered_block_count;
    tree:
        the_tree_has_all_records_and_proves_each_against_the_head,
        a_fresh_receipt_is_the_one_that_the_store_gives_later,
        brokers_that_append_at_once_grow_one_tree,
        a_batch_that_fails_leaves_the_tree_as_it_was;
    batches:
        a_submission_is_written_whole_and_reads_back_equal,
        concurrent_batches_make_one_dense_chain,
        batches_on_different_tasks_never_conflict,
        two_tenants_have_independent_logs,
        records_are_sealed_in_the_order_of_the_plan,
        a_new_handoff_that_exists_is_a_conflict_and_writes_nothing,
        a_new_task_that_exists_is_a_conflict,
        a_plan_that_writes_nothing_leaves_no_trace,
        a_plan_that_panics_leaves_no_trace,
        a_record_without_a_log_is_refused_and_writes_nothing,
        a_change_of_what_is_not_there_is_refused_and_writes_nothing,
        batches_on_one_task_see_each_other,
        a_batch_may_be_large,
        long_books_are_kept_and_books_that_did_not_change_are_left_alone,
        an_idempotency_key_is_kept_and_taken_once,
        agents_are_made_changed_found_and_removed,
        what_changes_among_the_agents_is_counted_and_told,
        an_agent_is_made_once_by_whoever_is_first,
        keys_are_made_changed_and_found_by_hash,
        dead_letters_are_kept,
        the_last_checkpoint_of_a_run_is_known;
    groups:
        a_group_is_written_whole_or_not_at_all_and_reads_back_equal,
        the_branches_of_a_group_go_out_at_once_and_what_is_behind_them_waits,
        what_the_end_of_a_group_withdraws_is_read_with_the_verdict;
    streams:
        the_numbers_of_a_stream_are_kept_once_and_read_in_order,
        a_stream_that_no_sound_broker_writes_is_found_and_named,
        an_open_stream_past_its_time_is_found_until_it_has_ended,
        a_line_is_served_by_one_broker_once_the_delivery_is_settled;
    opinions:
        an_opinion_is_due_from_its_commit_until_its_record,
        a_due_opinion_has_one_claim_at_a_time_and_its_number_is_the_token;
    deliveries:
        a_claim_has_what_an_attempt_needs,
        a_claim_of_a_compressed_message_has_what_was_sent,
        only_the_first_of_a_task_is_claimed,
        a_return_is_in_one_inbox_until_it_is_taken_out,
        nothing_is_claimed_before_its_time,
        a_claim_takes_the_oldest_first_and_no_more_than_asked,
        the_more_urgent_goes_first_and_a_task_keeps_its_order,
        an_attempt_is_counted_with_each_claim,
        a_claim_tells_whether_the_attempt_before_has_an_end,
        a_row_is_never_handed_out_twice,
        a_task_is_never_handed_out_twice_at_once,
        a_batch_does_not_undo_a_claim,
        a_settled_handoff_frees_the_next_of_its_task,
        due_receivers_are_found_by_mode,
        claims_of_silent_brokers_are_released,
        a_heartbeat_never_has_the_same_value_twice,
        a_broker_finds_and_frees_claims_of_its_own,
        a_claim_says_how_it_is_delivered,
        overdue_handoffs_are_open_and_past_their_deadline,
        a_handoff_behind_anothers_is_not_due,
        what_waits_follows_its_receiver,
        what_waits_is_listed,
        depths_are_counted;
    plans:
        tasks_that_ended_are_listed_by_how_they_ended_newest_first;
    reach:
        a_page_of_tasks_looks_at_a_bounded_number_and_the_next_goes_on,
        a_page_of_handoffs_looks_at_a_bounded_number_and_the_next_goes_on,
        a_look_ends_between_rows_of_one_time;
    reads:
        pages_have_no_gaps_and_no_repeats,
        pages_of_tasks_and_dead_letters_end,
        handoffs_are_filtered,
        tasks_are_filtered_by_who_took_part,
        open_handoffs_are_counted_by_receiver,
        a_receipt_is_the_record_that_committed,
        records_are_listed_by_task,
        records_are_listed_by_several_tasks,
        records_of_a_task_are_listed_from_its_end_in_a_window,
        a_handoff_without_a_record_is_named,
        another_tenant_sees_nothing;
    recovery:
        edges_are_kept_changed_and_seen_with_their_task,
        f2_2_refusals_are_counted_and_forgotten,
        what_is_open_of_a_task_is_seen_whole,
        escalations_are_kept_listed_and_found_when_overdue,
        a_ruling_is_kept_and_its_agents_come_with_the_handoff,
        a_dead_letter_is_decided_and_filtered,
        the_history_of_a_tasks_checkpoints_is_paged,
        who_stands_in_is_given_the_same_personal_data;
}

on_both_sides! {
    reach:
        a_page_of_tasks_looks_at_a_bounded_number_and_the_next_goes_on,
        a_page_of_handoffs_looks_at_a_bounded_number_and_the_next_goes_on,
        a_look_ends_between_rows_of_one_time,
        a_task_that_does_not_move_is_counted_however_many_began_after_it,
        a_delivery_that_is_tried_again_is_counted_apart;
    schema:
        migrating_again_changes_nothing,
        two_that_migrate_at_once_both_succeed,
        a_database_of_a_newer_version_is_refused,
        an_edited_migration_is_refused,
        a_tenant_keeps_its_first_log,
        a_fact_keeps_its_first_value,
        the_log_takes_no_change_from_anyone;
    costs:
        every_window_has_the_same_costs_with_and_without_remembered_sums,
        records_after_a_remembered_block_count;
    tree:
        the_tree_has_all_records_and_proves_each_against_the_head,
        a_fresh_receipt_is_the_one_that_the_store_gives_later,
        brokers_that_append_at_once_grow_one_tree,
        a_tree_that_lags_behind_catches_up,
        a_batch_that_fails_leaves_the_tree_as_it_was,
        the_first_key_signs_until_another_takes_its_place,
        of_two_that_settle_the_first_key_at_once_one_does;
    batches:
        a_submission_is_written_whole_and_reads_back_equal,
        concurrent_batches_make_one_dense_chain,
        batches_on_different_tasks_never_conflict,
        two_tenants_have_independent_logs,
        records_are_sealed_in_the_order_of_the_plan,
        a_new_handoff_that_exists_is_a_conflict_and_writes_nothing,
        a_new_task_that_exists_is_a_conflict,
        a_plan_that_writes_nothing_leaves_no_trace,
        a_plan_that_panics_leaves_no_trace,
        a_record_without_a_log_is_refused_and_writes_nothing,
        a_change_of_what_is_not_there_is_refused_and_writes_nothing,
        an_update_leaves_the_same_columns_alone,
        batches_on_one_task_see_each_other,
        a_batch_may_be_large,
        long_books_are_kept_and_books_that_did_not_change_are_left_alone,
        an_idempotency_key_is_kept_and_taken_once,
        agents_are_made_changed_found_and_removed,
        what_changes_among_the_agents_is_counted_and_told,
        no_change_of_an_agent_is_counted_before_it_is_there,
        an_agent_is_made_once_by_whoever_is_first,
        keys_are_made_changed_and_found_by_hash,
        dead_letters_are_kept,
        the_last_checkpoint_of_a_run_is_known,
        a_nul_in_a_text_is_kept_or_refused_and_breaks_no_neighbour;
    caps:
        caps_are_kept_with_their_books_and_seen_by_scope,
        of_many_charges_at_once_none_is_lost;
    contracts:
        contracts_are_kept_in_all_versions_and_never_written_over,
        contracts_put_since_are_found_also_under_an_old_date,
        contracts_of_an_older_state_of_the_database_are_those_that_it_has,
        what_a_dedupe_key_was_seen_with_is_kept_and_renewed;
    schemas:
        payload_schemas_are_kept_in_all_versions_and_never_written_over;
    groups:
        a_group_is_written_whole_or_not_at_all_and_reads_back_equal,
        the_branches_of_a_group_go_out_at_once_and_what_is_behind_them_waits,
        what_the_end_of_a_group_withdraws_is_read_with_the_verdict;
    streams:
        the_numbers_of_a_stream_are_kept_once_and_read_in_order,
        a_stream_that_no_sound_broker_writes_is_found_and_named,
        an_open_stream_past_its_time_is_found_until_it_has_ended,
        a_line_is_served_by_one_broker_once_the_delivery_is_settled;
    opinions:
        an_opinion_is_due_from_its_commit_until_its_record,
        a_due_opinion_has_one_claim_at_a_time_and_its_number_is_the_token;
    attempts:
        the_newest_attempts_of_a_handoff_are_kept;
    receivers:
        windows_of_several_brokers_add_up,
        the_last_of_each_kind_is_kept_whoever_writes_last,
        a_breaker_is_listed_while_its_broker_lives,
        notes_go_with_their_agent_and_with_their_time,
        tasks_without_movement_and_open_questions_are_counted;
    deliveries:
        a_claim_has_what_an_attempt_needs,
        a_claim_of_a_compressed_message_has_what_was_sent,
        only_the_first_of_a_task_is_claimed,
        a_row_for_another_receiver_than_its_handoffs_is_not_sent,
        a_return_is_in_one_inbox_until_it_is_taken_out,
        nothing_is_claimed_before_its_time,
        a_claim_takes_the_oldest_first_and_no_more_than_asked,
        the_more_urgent_goes_first_and_a_task_keeps_its_order,
        an_attempt_is_counted_with_each_claim,
        a_claim_tells_whether_the_attempt_before_has_an_end,
        a_row_is_never_handed_out_twice,
        a_task_is_never_handed_out_twice_at_once,
        a_batch_does_not_undo_a_claim,
        a_settled_handoff_frees_the_next_of_its_task,
        erased_content_is_claimed_empty,
        unreadable_content_keeps_no_neighbour_back,
        due_receivers_are_found_by_mode,
        claims_of_silent_brokers_are_released,
        a_heartbeat_never_has_the_same_value_twice,
        a_broker_finds_and_frees_claims_of_its_own,
        a_claim_says_how_it_is_delivered,
        a_broker_hands_back_its_own_claims,
        overdue_handoffs_are_open_and_past_their_deadline,
        a_handoff_behind_anothers_is_not_due,
        everything_at_once_stays_sound,
        what_waits_follows_its_receiver,
        what_waits_is_listed,
        one_broker_hears_of_anothers_commits,
        depths_are_counted;
    events:
        events_stand_in_the_order_of_their_records,
        events_are_listed_by_task_and_by_audience,
        an_event_comes_with_what_its_handoff_keeps,
        an_event_without_a_record_is_refused_and_writes_nothing,
        a_cursor_never_skips_a_late_commit,
        old_events_are_deleted_oldest_first,
        subscriptions_are_made_changed_found_and_removed,
        a_cursor_starts_behind_its_record_and_is_due_when_there_is_more,
        an_agents_cursor_is_due_for_what_is_addressed_to_it,
        a_cursor_has_one_broker_until_its_lease_ends,
        a_rewound_cursor_is_not_moved_by_who_served_it,
        the_last_attempts_are_remembered;
    cold:
        a_lease_has_one_owner_until_it_ends,
        of_many_that_want_a_lease_one_gets_it,
        a_mark_is_kept,
        what_may_still_be_needed_is_held_back,
        contents_become_cold_all_or_none,
        what_is_erased_while_cold_is_found_and_moved_out,
        a_cold_content_is_never_delivered_empty;
    plans:
        each_filter_of_a_list_is_served_by_an_index,
        a_task_with_most_of_the_handoffs_leaves_the_lists_of_tasks_their_index,
        what_waits_is_counted_by_indexes,
        tasks_that_ended_are_listed_by_how_they_ended_newest_first;
    seals:
        what_is_sealed_is_sealed_anew_as_a_whole_or_not_at_all;
    reads:
        pages_have_no_gaps_and_no_repeats,
        pages_of_tasks_and_dead_letters_end,
        handoffs_are_filtered,
        tasks_are_filtered_by_who_took_part,
        open_handoffs_are_counted_by_receiver,
        a_receipt_is_the_record_that_committed,
        records_are_listed_by_task,
        records_are_listed_by_several_tasks,
        records_of_a_task_are_listed_from_its_end_in_a_window,
        contents_come_only_when_asked_for,
        a_handoff_without_a_record_is_named,
        another_tenant_sees_nothing;
    recovery:
        edges_are_kept_changed_and_seen_with_their_task,
        f2_2_refusals_are_counted_and_forgotten,
        what_is_open_of_a_task_is_seen_whole,
        escalations_are_kept_listed_and_found_when_overdue,
        a_ruling_is_kept_and_its_agents_come_with_the_handoff,
        a_dead_letter_is_decided_and_filtered,
        the_history_of_a_tasks_checkpoints_is_paged,
        who_stands_in_is_given_the_same_personal_data;
    states:
        records_about_state_are_listed_apart_with_their_contents,
        rows_of_an_earlier_version_are_counted_and_added_ones_found;
    tamper:
        a_sound_log_is_well,
        every_changed_column_is_found_and_named,
        every_kind_of_tampering_is_found_and_told_apart,
        a_changed_node_of_the_tree_is_named,
        a_log_cut_with_its_head_is_found_against_a_kept_tree_head,
        a_log_rewritten_to_its_end_is_found_against_a_kept_tree_head,
        guards_of_the_log_that_are_off_are_named;
    erasure:
        a_page_goes_whole_with_its_record,
        an_update_of_what_was_read_before_brings_nothing_erased_back,
        what_stands_in_for_a_handoff_goes_with_its_data,
        handoffs_that_share_a_content_are_cleaned_over_two_pages,
        messages_and_checkpoints_go_where_that_is_asked,
        the_attempts_at_a_handoff_go_with_its_data_and_with_its_time,
        the_chunks_of_a_stream_go_with_its_message,
        what_came_back_from_a_backup_is_named,
        a_hold_on_the_subject_or_on_a_task_is_seen,
        holds_and_erasures_read_back_equal,
        what_is_held_is_listed_in_pages,
        a_page_ends_at_its_bound,
        scrubbing_may_be_repeated,
        erased_data_is_in_no_file;
}

/// As the role that brokers serve as: what its rights are for, and what they are not.
mod serving {
    use crate::harness::Side;

    on! { Side::Serving,
        roles:
            the_database_refuses_every_change_of_the_log,
            every_table_has_its_rights_and_no_other_table_has_any,
            the_role_changes_no_schema,
            what_is_to_be_migrated_is_the_owners_to_do,
            a_role_that_could_do_more_is_refused,
            a_role_is_made_once_and_its_rights_are_given_again,
            what_it_erases_is_left_to_the_servers_vacuum;
        schema:
            migrating_again_changes_nothing,
            a_tenant_keeps_its_first_log,
            a_fact_keeps_its_first_value;
        tree:
            the_tree_has_all_records_and_proves_each_against_the_head,
            a_tree_that_lags_behind_catches_up;
        batches:
            a_submission_is_written_whole_and_reads_back_equal,
            concurrent_batches_make_one_dense_chain,
            an_idempotency_key_is_kept_and_taken_once,
            agents_are_made_changed_found_and_removed,
            keys_are_made_changed_and_found_by_hash,
            dead_letters_are_kept;
        contracts:
            contracts_are_kept_in_all_versions_and_never_written_over,
            contracts_put_since_are_found_also_under_an_old_date,
            what_a_dedupe_key_was_seen_with_is_kept_and_renewed;
        schemas:
            payload_schemas_are_kept_in_all_versions_and_never_written_over;
        groups:
            a_group_is_written_whole_or_not_at_all_and_reads_back_equal,
            the_branches_of_a_group_go_out_at_once_and_what_is_behind_them_waits,
            what_the_end_of_a_group_withdraws_is_read_with_the_verdict;
        streams:
            the_numbers_of_a_stream_are_kept_once_and_read_in_order,
            a_stream_that_no_sound_broker_writes_is_found_and_named,
            an_open_stream_past_its_time_is_found_until_it_has_ended,
            a_line_is_served_by_one_broker_once_the_delivery_is_settled;
        receivers:
            windows_of_several_brokers_add_up,
            a_breaker_is_listed_while_its_broker_lives,
            notes_go_with_their_agent_and_with_their_time,
            tasks_without_movement_and_open_questions_are_counted;
        opinions:
            an_opinion_is_due_from_its_commit_until_its_record,
            a_due_opinion_has_one_claim_at_a_time_and_its_number_is_the_token;
        deliveries:
            a_claim_has_what_an_attempt_needs,
            a_claim_of_a_compressed_message_has_what_was_sent,
            claims_of_silent_brokers_are_released,
            a_broker_hands_back_its_own_claims,
            everything_at_once_stays_sound,
            what_waits_follows_its_receiver,
            one_broker_hears_of_anothers_commits,
            depths_are_counted;
        events:
            events_stand_in_the_order_of_their_records,
            old_events_are_deleted_oldest_first,
            subscriptions_are_made_changed_found_and_removed,
            a_cursor_has_one_broker_until_its_lease_ends,
            the_last_attempts_are_remembered;
        cold:
            a_lease_has_one_owner_until_it_ends,
            a_mark_is_kept,
            contents_become_cold_all_or_none,
            what_is_erased_while_cold_is_found_and_moved_out;
        recovery:
            edges_are_kept_changed_and_seen_with_their_task,
            f2_2_refusals_are_counted_and_forgotten,
            escalations_are_kept_listed_and_found_when_overdue;
        erasure:
            a_page_goes_whole_with_its_record,
            an_update_of_what_was_read_before_brings_nothing_erased_back,
            what_stands_in_for_a_handoff_goes_with_its_data,
            messages_and_checkpoints_go_where_that_is_asked,
            the_chunks_of_a_stream_go_with_its_message,
            holds_and_erasures_read_back_equal;
    }
}

/// Over TLS: what writes much, locks or listens.
mod over_tls {
    use crate::harness::Side;

    on! { Side::Encrypted,
        encrypted:
            every_connection_is_encrypted_where_the_url_asks_for_it;
        schema:
            migrating_again_changes_nothing;
        tree:
            the_tree_has_all_records_and_proves_each_against_the_head,
            a_batch_that_fails_leaves_the_tree_as_it_was;
        batches:
            a_submission_is_written_whole_and_reads_back_equal,
            concurrent_batches_make_one_dense_chain,
            a_new_handoff_that_exists_is_a_conflict_and_writes_nothing,
            a_change_of_what_is_not_there_is_refused_and_writes_nothing,
            batches_on_one_task_see_each_other,
            a_batch_may_be_large;
        deliveries:
            everything_at_once_stays_sound,
            one_broker_hears_of_anothers_commits;
        events:
            events_stand_in_the_order_of_their_records;
        erasure:
            a_page_goes_whole_with_its_record;
    }
}

/// The URL names two servers, and the first of them is away: what writes, listens or has connections of its own.
mod of_several_servers {
    use crate::harness::Side;

    on! { Side::Several,
        servers:
            where_no_server_answers_the_store_is_away,
            what_a_server_says_is_told_where_none_is_the_primary;
        schema:
            migrating_again_changes_nothing,
            two_that_migrate_at_once_both_succeed;
        batches:
            a_submission_is_written_whole_and_reads_back_equal,
            concurrent_batches_make_one_dense_chain;
        deliveries:
            everything_at_once_stays_sound,
            one_broker_hears_of_anothers_commits;
        erasure:
            a_page_goes_whole_with_its_record;
    }
}

/// With the log in a database of its own: what a batch, a read and an erasure do across the two.
mod log_apart {
    use crate::harness::Side;

    on! { Side::Apart,
        apart:
            a_batch_is_in_both_databases_and_leaves_nothing_between,
            a_log_that_takes_no_batch_leaves_nothing_of_it,
            operations_that_are_cut_once_the_log_is_prepared_leave_nothing,
            operations_that_refuse_the_commit_leave_nothing,
            a_log_that_is_cut_after_the_decision_gets_the_batch_later,
            a_log_that_is_cut_after_the_decision_keeps_its_readers_waiting,
            a_broker_that_is_slow_is_waited_for,
            a_broker_that_dies_before_it_decides_is_given_up,
            what_was_given_up_is_never_committed,
            names_that_are_not_ours_are_left_alone,
            an_eager_recovery_harms_no_batch,
            decisions_that_are_carried_out_are_let_go,
            databases_that_do_not_belong_together_are_refused,
            a_log_apart_is_for_good,
            both_kinds_of_database_have_the_same_log;
        schema:
            migrating_again_changes_nothing,
            a_tenant_keeps_its_first_log,
            the_log_takes_no_change_from_anyone;
        tree:
            the_tree_has_all_records_and_proves_each_against_the_head,
            a_fresh_receipt_is_the_one_that_the_store_gives_later,
            brokers_that_append_at_once_grow_one_tree,
            a_tree_that_lags_behind_catches_up,
            a_batch_that_fails_leaves_the_tree_as_it_was,
            the_first_key_signs_until_another_takes_its_place,
            of_two_that_settle_the_first_key_at_once_one_does;
        batches:
            a_submission_is_written_whole_and_reads_back_equal,
            concurrent_batches_make_one_dense_chain,
            two_tenants_have_independent_logs,
            a_new_handoff_that_exists_is_a_conflict_and_writes_nothing,
            a_plan_that_writes_nothing_leaves_no_trace,
            a_plan_that_panics_leaves_no_trace,
            a_record_without_a_log_is_refused_and_writes_nothing,
            batches_on_one_task_see_each_other,
            a_batch_may_be_large;
        deliveries:
            everything_at_once_stays_sound,
            depths_are_counted;
        events:
            events_stand_in_the_order_of_their_records,
            events_are_listed_by_task_and_by_audience,
            a_cursor_never_skips_a_late_commit;
        cold:
            what_may_still_be_needed_is_held_back,
            contents_become_cold_all_or_none,
            what_is_erased_while_cold_is_found_and_moved_out;
        opinions:
            an_opinion_is_due_from_its_commit_until_its_record;
        reads:
            a_receipt_is_the_record_that_committed,
            records_are_listed_by_task,
        records_are_listed_by_several_tasks,
        records_of_a_task_are_listed_from_its_end_in_a_window,
            contents_come_only_when_asked_for,
            a_handoff_without_a_record_is_named;
        tamper:
            a_changed_node_of_the_tree_is_named;
        erasure:
            a_page_goes_whole_with_its_record,
            what_stands_in_for_a_handoff_goes_with_its_data,
            handoffs_that_share_a_content_are_cleaned_over_two_pages,
            messages_and_checkpoints_go_where_that_is_asked,
            the_chunks_of_a_stream_go_with_its_message,
            what_came_back_from_a_backup_is_named,
            a_hold_on_the_subject_or_on_a_task_is_seen,
            what_is_held_is_listed_in_pages,
            a_page_ends_at_its_bound,
            scrubbing_may_be_repeated;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures by hand: run with --release --ignored --nocapture, on a server that flushes"]
async fn what_two_databases_cost() {
    apart::what_two_databases_cost().await;
}

//! One suite, both stores: every case runs on SQLite and on Postgres.
//!
//! The Postgres half needs a server: `HANDOFFD_TEST_POSTGRES_URL` names one on which databases may
//! be made. Each case gets a database of its own there, and drops it.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(missing_docs, unreachable_pub, reason = "nobody's library")]

mod batches;
mod deliveries;
mod fixture;
mod harness;
mod outage;
mod reads;
mod schema;
mod tamper;

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

on_both_sides! {
    schema:
        migrating_again_changes_nothing,
        two_that_migrate_at_once_both_succeed,
        a_database_of_a_newer_version_is_refused,
        an_edited_migration_is_refused,
        a_tenant_keeps_its_first_log,
        a_fact_keeps_its_first_value,
        the_log_takes_no_change_from_anyone;
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
        an_idempotency_key_is_kept_and_taken_once,
        agents_are_made_changed_found_and_removed,
        an_agent_is_made_once_by_whoever_is_first,
        keys_are_made_changed_and_found_by_hash,
        dead_letters_are_kept,
        the_last_checkpoint_of_a_run_is_known,
        a_nul_in_a_text_is_kept_or_refused_and_breaks_no_neighbour;
    deliveries:
        a_claim_has_what_an_attempt_needs,
        only_the_first_of_a_task_is_claimed,
        nothing_is_claimed_before_its_time,
        a_claim_takes_the_oldest_first_and_no_more_than_asked,
        an_attempt_is_counted_with_each_claim,
        a_row_is_never_handed_out_twice,
        a_task_is_never_handed_out_twice_at_once,
        a_batch_does_not_undo_a_claim,
        a_settled_handoff_frees_the_next_of_its_task,
        erased_content_is_claimed_empty,
        unreadable_content_keeps_no_neighbour_back,
        due_receivers_are_found_by_mode,
        claims_of_dead_brokers_are_released,
        a_broker_hands_back_its_own_claims,
        overdue_handoffs_are_open_and_past_their_deadline,
        a_handoff_behind_anothers_is_not_due,
        everything_at_once_stays_sound,
        depths_are_counted;
    reads:
        pages_have_no_gaps_and_no_repeats,
        pages_of_tasks_and_dead_letters_end,
        handoffs_are_filtered,
        tasks_are_filtered_by_who_took_part,
        open_handoffs_are_counted_by_receiver,
        a_receipt_is_the_record_that_committed,
        records_are_listed_by_task,
        contents_come_only_when_asked_for,
        a_handoff_without_a_record_is_named,
        another_tenant_sees_nothing;
    tamper:
        a_sound_log_is_well,
        an_erased_content_is_well,
        a_flipped_byte_of_a_record_is_named,
        a_flipped_byte_of_a_content_is_named,
        a_flipped_byte_of_personal_data_is_named,
        a_changed_column_is_named,
        a_deleted_record_is_named,
        a_deleted_content_is_named,
        a_truncated_log_is_named,
        a_log_truncated_with_its_head_verifies_and_is_shorter,
        a_rewritten_head_is_named;
}

//! The suite for all backends: plain functions, expanded to one test per case by [`conformance!`](crate::conformance!).
//!
//! Invariant: no case is skipped for any backend; a feature that one backend cannot support is offered by none of them.
//! Cases use only the [`Store`](crate::Store) trait and a clock that they set themselves. Features of a single backend (its
//! files, its locks) are tested with that backend, not here. A case that proves an item of the Intent Protocol's
//! checklist carries its number, as in `ip_021`.

mod audit;
mod world;

mod admit;
mod claim;
mod durability;
mod effects;
mod events;
mod gate;
mod grants;
mod lease;
mod mesh;
mod messages;
mod once;
mod operate;
mod outlines;
mod paging;
mod races;
mod records;
mod search;
mod settle;
mod steps;
mod tallies;
mod ties;
mod time;

pub use audit::audit;
pub use world::{ManualClock, START, World, claim_by, in_face, item};

pub use admit::*;
pub use claim::*;
pub use durability::*;
pub use effects::*;
pub use events::*;
pub use gate::*;
pub use grants::*;
pub use lease::*;
pub use mesh::*;
pub use messages::*;
pub use once::*;
pub use operate::*;
pub use outlines::*;
pub use paging::*;
pub use races::*;
pub use records::*;
pub use search::*;
pub use settle::*;
pub use steps::*;
pub use tallies::*;
pub use ties::*;
pub use time::*;

/// Generates a test of every case for one backend. `$fresh` is evaluated once per test and returns an empty [`World`].
#[macro_export]
macro_rules! conformance {
    ($backend:ident, $fresh:expr) => {
        $crate::conformance!(@cases $backend, $fresh;
            an_admitted_intent_is_stored_as_asked_ip_033_ip_043,
            an_intent_lives_as_long_as_it_was_given_ip_044,
            a_batch_is_admitted_whole_and_in_order,
            a_delayed_intent_waits_for_its_time_ip_038_ip_097,
            the_cap_counts_open_and_held_intents_and_refuses_whole_batches_ip_178,
            the_cap_sees_what_the_same_request_did_before,
            a_sequence_is_never_used_again_after_removal,
            a_refused_admission_leaves_no_trace,
            too_many_steps_are_refused_as_a_whole,
            a_restored_row_keeps_its_content_and_cannot_come_twice,
            a_restored_message_brings_its_history_and_its_nonce,
            a_claim_takes_a_lease_ip_012_ip_021_ip_020,
            second_claim_finds_nothing_ip_004_ip_095,
            order_is_priority_then_due_time_then_attempts_then_admission_ip_037_ip_078,
            fewer_attempts_win_between_equal_due_times_ip_078,
            namespaces_never_mix_ip_074_ip_075_ip_167,
            private_is_for_its_owner_and_public_for_all_ip_076_ip_077,
            own_public_intents_are_found_once,
            a_target_is_for_the_worker_of_that_name_ip_041_ip_079_ip_080,
            capabilities_match_whole_and_by_case_ip_042_ip_081_ip_082,
            a_goal_filters_exactly_and_its_absence_takes_all_ip_096,
            a_publisher_audience_takes_that_publishers_only,
            faces_never_see_each_others_rows,
            lanes_compete_by_rank_whatever_their_kind,
            a_batch_claim_is_bounded_and_gives_each_its_own_token_ip_104_ip_164,
            past_its_life_nothing_is_offered_ip_098,
            a_lapsed_lease_past_its_life_is_not_offered,
            used_up_attempts_are_not_offered_ip_099,
            a_heap_of_expired_heads_hides_no_live_row,
            a_flood_that_came_due_elsewhere_hides_no_row_that_came_due_here_ip_100,
            only_holder_and_token_together_use_a_lease_ip_007_ip_109_ip_118_ip_122_ip_188,
            a_lease_ends_at_its_instant_ip_020_ip_029_ip_030_ip_031_ip_110,
            extending_counts_from_now_ip_106,
            an_extended_lease_outlives_its_first_end,
            an_expired_lease_is_taken_over_at_once_ip_002_ip_016_ip_100,
            looking_at_a_lapsed_lease_takes_nothing_from_the_next_claim_ip_016,
            an_exhausted_lease_dies_when_anybody_claims_ip_017_ip_026_ip_166,
            an_exhausted_lease_dies_when_it_is_looked_at_ip_017_ip_026,
            the_last_error_is_kept_as_the_reason_of_death,
            observing_what_is_not_there_answers_none,
            completing_stores_the_result_ip_013_ip_113,
            completing_without_a_result_stores_none_ip_117,
            failing_backs_off_twice_as_long_each_time_ip_014_ip_022_ip_023_ip_046_ip_120_ip_165,
            failing_the_last_attempt_is_death_ip_015_ip_025_ip_166,
            failing_past_the_end_of_life_parks_the_row,
            a_holder_may_rule_out_another_attempt,
            a_holder_may_name_the_time_of_the_next_attempt,
            the_worker_of_a_lease_is_recorded_with_the_row_and_its_facts,
            a_worker_is_forgotten_with_its_lease_and_not_passed_on,
            success_forgets_the_earlier_error,
            the_facts_of_a_whole_life_tell_it_in_order,
            steps_of_a_request_see_what_earlier_ones_did,
            a_refused_step_leaves_its_neighbours_alone,
            cancelling_works_from_every_state_ip_019_ip_144,
            requeueing_works_from_every_state_and_begins_anew_ip_018_ip_145,
            a_holder_loses_its_lease_to_the_operator,
            a_row_is_removed_by_hand_unless_it_is_held_or_kept_for_ever,
            operators_touch_their_own_face_and_legal_edges_only,
            a_step_can_be_refused_if_the_row_has_changed,
            a_guarded_request_depends_on_its_first_step_alone,
            a_purge_of_everything_spares_other_faces_ip_140,
            a_purge_of_a_namespace_spares_the_others_ip_141,
            a_purge_goes_on_where_its_last_piece_stopped,
            a_piece_of_a_purge_looks_at_no_more_rows_than_it_may,
            a_sweep_moves_what_is_due_and_nothing_else,
            facts_record_how_far_the_wall_clock_is_from_engine_time,
            a_sweep_is_bounded_and_says_when_more_waits,
            each_face_has_its_own_way_with_a_lease_that_ran_out,
            a_cleanup_requeues_lapsed_leases_with_back_off_ip_024,
            a_cleanup_also_requeues_what_a_sweep_found_lapsed_ip_024,
            a_cleanup_buries_exhausted_leases_ip_017_ip_026,
            a_cleanup_removes_open_intents_past_their_life_ip_011,
            settled_intents_are_kept_seven_days_ip_179,
            a_cleanup_is_bounded_and_says_when_more_waits,
            a_cleanup_leaves_other_faces_alone,
            a_cleanup_follows_the_profile_of_its_face,
            the_next_due_instant_is_the_earliest_delay_or_lease,
            a_request_tells_whom_to_wake_and_when,
            a_record_is_read_as_it_was_put_ip_130,
            a_put_goes_through_only_on_the_version_it_saw,
            a_deleted_record_is_gone,
            an_expired_record_counts_as_absent_ip_131,
            owners_and_kinds_never_meet_ip_132,
            records_are_listed_by_name_in_pages,
            records_are_read_by_their_keys,
            expired_records_are_forgotten_oldest_first,
            forgetting_all_of_a_kind_spares_other_kinds,
            the_same_key_admits_once_and_answers_alike_ip_091,
            a_key_with_another_content_is_refused_ip_092,
            each_owner_has_its_own_keys_ip_093,
            a_key_may_come_twice_in_one_batch,
            one_conflict_refuses_the_whole_batch_and_names_the_item,
            a_refused_admission_uses_up_no_key,
            a_full_owner_still_gets_its_replays,
            a_key_is_free_again_after_its_time,
            a_key_outlives_the_intent_it_guards,
            keys_are_forgotten_by_time_by_owner_or_all_ip_138,
            a_nonce_passes_once_per_caller_ip_055_ip_056,
            a_nonce_is_burnt_even_if_the_step_is_refused,
            a_nonce_is_burnt_even_if_the_allowance_is_used_up,
            a_nonce_is_remembered_for_eleven_minutes,
            a_key_may_have_a_rate_of_its_own,
            an_expired_key_passes_nothing,
            sixty_requests_a_minute_pass_and_no_more_ip_094_ip_176,
            a_batch_takes_as_much_allowance_as_it_costs,
            the_main_key_has_no_allowance_to_use_up_ip_177,
            a_revoked_key_is_refused_and_leaves_no_trace_ip_138,
            a_key_past_its_time_is_unknown,
            intents_are_listed_newest_first_in_pages,
            each_filter_narrows_the_list,
            a_sparse_list_reaches_its_end,
            a_search_finds_rows_of_all_owners_and_protocols,
            dead_letters_are_found_by_their_death_latest_first,
            a_search_examines_no_more_rows_than_it_may,
            a_search_can_leave_out_what_changed_since_a_fact,
            dead_letters_are_listed_by_death_latest_first_ip_146,
            counts_follow_every_move,
            what_is_held_is_what_is_leased,
            the_oldest_claimable_row_is_known_for_each_face,
            each_commit_tells_what_happened_to_whom,
            events_come_in_order_with_what_a_reader_needs,
            no_fact_has_a_number_beyond_the_highest,
            a_reader_sees_its_own_events_and_passes_the_others,
            an_operator_reads_the_facts_of_all_owners_and_faces,
            a_position_beyond_the_end_is_answered_with_itself,
            facts_of_a_removed_intent_stay_but_are_not_streamed,
            old_facts_are_forgotten_and_their_numbers_never_used_again,
            a_face_forgets_its_own_facts_and_keeps_the_others,
            a_piece_of_forgetting_looks_at_no_more_facts_than_it_may,
            a_step_that_changes_nothing_tells_nothing,
            one_of_a_series_is_held_at_a_time_du_052,
            whoever_lets_go_makes_room_for_the_next_of_the_series,
            who_waits_in_a_series_can_be_cancelled,
            a_series_goes_on_when_its_holder_is_gone,
            a_lapsed_lease_stands_behind_whoever_holds_its_series_until_it_lets_go,
            a_claim_of_many_takes_one_of_each_series,
            an_open_one_of_its_series_serves_instead_du_054,
            a_recent_success_of_its_series_serves_instead_du_053_du_055,
            one_of_a_series_whoever_comes_first,
            children_are_found_by_their_parent_in_order,
            open_jobs_are_found_by_their_work,
            what_waits_and_runs_is_outlined_oldest_first_and_counted,
            an_outline_is_the_row_without_what_it_carries,
            a_job_is_found_by_what_its_payload_names,
            behind_a_refused_step_nothing_happens,
            a_failed_attempt_is_told_and_then_what_follows_du_057_du_059_du_060,
            an_attempt_that_nothing_cures_rests_as_failed_du_058,
            what_was_given_back_waits_where_it_stood_and_counts_no_attempt,
            what_an_earlier_start_held_is_taken_back_du_116,
            a_cleanup_keeps_as_long_as_it_is_told_du_121,
            requeueing_gives_a_life_as_long_as_the_first,
            no_attempt_of_a_job_has_the_number_of_another_du_123,
            the_last_records_come_first,
            a_permission_is_received_allowed_and_over,
            a_permission_past_its_time_is_not_allowed_any_more,
            a_permission_ends_by_the_time_of_day_and_not_by_engine_time,
            what_nobody_consented_to_goes_without_a_trace_an_hour_after_its_end,
            what_nobody_consented_to_is_bounded_for_each_and_for_all,
            a_transaction_is_held_from_its_first_commit_on,
            what_was_let_go_stays_and_is_found_again,
            one_row_is_taken_by_its_name_before_its_turn,
            what_is_settled_is_left_by_compensation_alone,
            a_refused_effect_ends_its_transaction_and_a_voided_one_its_lease,
            a_dead_process_leaves_its_transactions_where_they_are,
            what_is_under_way_is_found_in_the_order_of_admission,
            ended_permissions_and_transactions_are_in_nobodys_way,
            a_message_past_its_maximum_age_is_a_dead_letter,
            a_holder_may_ask_for_a_later_retry_or_give_up,
            a_message_given_back_past_its_maximum_age_is_a_dead_letter,
            a_message_walks_to_its_first_lease_in_one_commit,
            a_walk_takes_only_legal_steps,
            a_used_nonce_names_the_first_message,
            messages_are_listed_by_their_parties,
            messages_are_counted_by_their_parties_and_times,
            a_recipient_finds_what_waits_for_its_acknowledgement,
            later_steps_of_a_message_carry_their_details,
            a_delivered_message_waits_for_its_recipient_alone,
            a_delivered_intent_of_a_directory_keeps_its_lease_until_its_result,
            steps_without_a_lease_lead_into_the_queue_and_out_of_it,
            a_claim_that_needs_a_grant_is_refused_without_it_be_170,
            a_grant_past_its_time_permits_nothing,
            a_worker_takes_what_waits_for_its_recipient_be_171,
            a_worker_that_completes_a_message_delivers_it_be_172,
            a_message_that_its_workers_fail_follows_the_schedule_of_the_bus_be_173,
            a_message_is_held_by_a_node_or_by_a_worker_be_174,
            a_message_that_is_handed_over_counts_no_attempt,
            a_message_and_its_id_are_stored_together_or_not_at_all,
            an_id_without_end_is_never_forgotten,
            a_message_is_removed_at_its_end_and_its_id_says_so_cm_141,
            the_end_of_a_later_message_does_not_touch_an_id_that_was_used_again,
            messages_are_pruned_for_a_time_ahead,
            history_says_who_sent_a_message_as_long_as_its_id_is_known,
            a_delivery_waits_for_its_recipient_and_keeps_its_place,
            a_recipient_acknowledges_after_its_lease_has_ended,
            what_no_recipient_takes_is_dropped_after_its_time,
            an_item_of_a_named_queue_is_work_like_an_intent,
            a_key_without_its_message_is_found_and_corrected_cm_075,
            each_intent_goes_to_exactly_one_of_many_claimers_ip_004_ip_163,
            one_key_from_many_tasks_admits_once_ip_091,
            one_nonce_from_many_tasks_passes_once_ip_055,
            the_cap_holds_whoever_comes_first,
            one_of_many_settlements_counts,
            one_of_many_writers_of_a_version_wins,
            whole_lives_side_by_side_all_end_well_ip_163,
            reads_see_every_answered_write,
            a_request_whose_caller_went_away_is_done_whole_or_not_at_all,
            time_never_goes_back_in_the_ledger,
            looking_costs_no_commit,
        );
    };
    (@cases $backend:ident, $fresh:expr; $($case:ident),* $(,)?) => {
        mod $backend {
            #[allow(unused_imports, reason = "the expression may name anything of its surroundings")]
            use super::*;

            /// The generated cases, for the test that compares them with the source.
            pub(crate) const CASES: &[&str] = &[$(stringify!($case)),*];

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let world = $fresh;
                    $crate::conformance::$case(world.clone()).await;
                    world.is_sound().await;
                }
            )*
        }
    };
}

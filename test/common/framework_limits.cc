/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/framework_limits.h"

#include "common/framework.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <fnmatch.h>
#include <gtest/gtest.h>

namespace gaudi::test {

namespace {

/* What scripts/test knows a skip of these by. */
constexpr char beside_framework[] = "Beside a framework this is not so: ";
constexpr char without_imports[]  = "Without imports this is not so: ";

/* Why tests do not hold there, by their names: SUITE.TEST. */
struct limit {
    const char *why;
    std::vector<const char *> tests;
};

constexpr char not_mapped[] = "host memory of the application is staged, "
                              "unless UCX_GAUDI_SYNAPSE_HOST_MAP=y";

const limit limits[] = {
    {"the framework has its card for good, and a reset one is of no use",
     {"over/interruptions.*_the_own_card_is_reset*"}},
    {"the test opens the card itself, which the framework has",
     {"of_own_cards/contents.*",
      "adoption.what_is_gone_is_announced_when_no_card_can_be_opened",
      "application_memory.a_card_of_ours_is_not_lent_to_ucx",
      "application_memory.a_card_of_the_program_is_used_and_stays_open",
      "application_memory.a_card_that_ucx_opens_is_left_to_it",
      "application_memory.a_card_that_we_opened_first_is_shared",
      "application_memory.a_range_across_two_allocations_is_refused",
      "application_memory.a_refused_unmap_announces_it_again",
      "application_memory.a_shared_card_that_is_closed_holds_up_nobody",
      "application_memory.after_hlthunk_close_copies_end_with_an_error",
      "application_memory.events_tell_address_and_size_around_the_driver_calls",
      "application_memory.hundred_thousand_mappings_are_told_apart",
      "application_memory.mapped_while_the_cards_close_is_of_no_card_until_"
      "then",
      "application_memory.memory_of_ours_on_a_lost_card_is_refused_and_freed",
      "application_memory.memory_that_goes_while_registered_is_harmless",
      "application_memory.the_same_address_on_two_cards_goes_to_neither",
      "application_memory.two_memory_domains_share_an_adopted_card",
      "application_memory.what_the_driver_does_not_free_stays_known",
      "freed_handle.that_another_thread_gets_at_once_stays_known",
      "served_copies.do_not_wait_for_the_card_table",
      "that_are/linked_libraries.map_memory_that_is_known_exactly/"
      "bound_already",
      "that_are/linked_libraries.map_memory_that_is_known_exactly/"
      "bound_at_its_call",
      "that_are/linked_libraries.map_memory_that_is_known_exactly/loaded_late",
      "unseen_memory.is_any_address_of_its_card_behind_all_that_is_known",
      "unseen_memory.is_replaced_by_what_is_mapped_there_next",
      "unseen_memory.is_what_the_program_maps_by_pointers_from_before",
      "ucx_info.lists_the_cards_that_variables_make_visible",
      "ucx_info.lists_the_named_cards_only"}},
    {"the process has the framework's card, and needs no other",
     {"host_way.needs_no_card_here", "program_ipc.needs_no_card_here",
      "no_card.*",
      "example_uct_host_to_device.ends_with_an_error_when_every_card_is_taken",
      "example_ucp_host_to_device.says_what_can_be_missing_without_a_card"}},
    {"SynapseAI has one device per process, and drives all there",
     {"program_cards.in_reset_hold_up_nobody_who_asks_what_memory_is",
      "program_cards.serve_while_another_one_is_waited_for_that_is_in_reset",
      "program_cards.that_are_removed_leave_no_descriptor"}},
    {"each allocation is one of SynapseAI's, with a dma-buf of its own",
     {"keys.of_freed_memory_that_is_in_use_keep_its_addresses",
      "keys.of_neighbours_at_reused_addresses_show_the_new_bytes"}},
    {"the framework has all of the memory as one block, all of which is device "
     "memory, and gives it out again as it likes",
     {"allocation.a_page_goes_back_when_its_last_part_goes",
      "allocation.a_small_one_takes_the_rest_of_a_large_ones_pages",
      "allocation.a_thousand_small_ones_share_a_page",
      "allocation.exhaustion_by_small_ones_is_no_memory_and_loses_nothing",
      "allocation.that_touches_another_is_known_from_its_first_byte",
      "bad_address.a_failed_copy_completes_once_with_an_error",
      "bad_address.every_operation_refuses_what_no_allocation_covers",
      "detection.the_cache_learns_of_allocations_and_forgets_freed_ones",
      "dmabuf.memory_may_be_freed_before_its_dmabuf",
      "dmabuf.of_parts_does_not_use_up_their_block",
      "dmabuf.what_is_no_device_memory_is_not_exported",
      "memory_domain.a_freed_address_does_not_come_back_at_once",
      "memory_domain.device_memory_outside_allocations_cannot_be_registered",
      "memory_domain.exhaustion_is_no_memory_and_loses_nothing",
      "memory_domain.freed_memory_goes_with_its_last_registration",
      "program_memory.is_none_when_it_is_freed",
      "program_memory.is_not_touched_behind_its_end",
      "registrations.an_idle_one_does_not_keep_memory_from_being_freed",
      "registrations.ranges_out_of_this_world_are_refused",
      "registrations.reach_over_the_end_as_far_as_ucp_rounds_up"}},
    {"the framework is preloaded, and has the driver's library loaded",
     {"application_memory.mapped_before_the_open_is_copied_and_told_exactly",
      "check.*", "*/check_of_faults.*",
      "command_line.env_prints_exports_and_nothing_else",
      "command_line.in_a_slot_preloads_nothing",
      "command_line.nested_adds_nothing_twice",
      "command_line.preloads_the_stub_in_front_of_what_was_there",
      "command_line.works_through_a_symbolic_link_and_from_another_folder",
      "nothing_moves.without_a_copy_routine_every_test_of_data_fails",
      "*/mpi_traffic.host_programs_do_as_they_do_without_the_module/*"}},
    {"SCAL submits no jobs, and an engine of it that fails resets the card",
     {"counts.leave_out_what_fails", "*/fault_matrix.*/aborted_job_under_*",
      "ipc_own_messages.are_not_sent_without_bytes_that_cannot_be_fetched",
      "ipc_own_messages.do_not_follow_a_failed_put_behind_a_fence",
      "ipc_own_messages.put_nothing_that_cannot_be_fetched",
      "*/fault_matrix.*/submission_under_*"}},
    {"ports do not reach host memory, which SynapseAI has mapped",
     {"ports_way.maps_neighbours_in_a_buffer_once",
      "ports_way.moves_host_memory_without_a_copy"}},
    {"the framework keeps its descriptors",
     {"forking.the_child_lets_go_of_the_cards"}},
    {"the driver is not slept in: SynapseAI must not be waited in",
     {"wakeup.a_stall_costs_no_cpu_and_no_timer"}},
    {"SynapseAI ends the process when the driver does not map or unmap host "
     "memory",
     {"*/fault_matrix.*/mapping_under_from_other_card",
      "*/fault_matrix.*/mapping_under_ipc_*_device",
      "*/fault_matrix.*/unmapping_under_*"}},
};

const limit limits_of_gaudi3[] = {
    {"SynapseAI has one device per process, and Gaudi3 takes no work but by it",
     {"copy_service.writes_memory_of_a_card_over_its_own_ports_alone",
      "*/fault_matrix.*_to_other_card", "*/fault_matrix.*_from_other_card",
      "*/fault_matrix.*/removal_under_reopen", "example_dmabuf.*",
      "over/example_ipc_matrix.*",
      "cards.an_operation_goes_to_the_card_that_owns_the_address",
      "cards.keep_their_addresses_apart_however_much_is_allocated",
      "dmabuf_settings.imports_of_several_cards_do_not_meet",
      "*/two_cards.get_bytes_unchanged_from_each_other/*",
      "slot.lists_the_cards_and_the_rest_as_before", "slot.uses_every_variable",
      "slot.works_at_a_path_with_spaces",
      "ucx_info.lists_as_many_cards_as_the_box_has",
      "ucx_info.lists_every_card_when_all_are_wanted",
      "ucx_info.takes_values_from_the_environment"}},
    {"a forked child has what its parent's SynapseAI had, and can acquire none",
     {"adoption.a_forked_child_leaves_the_programs_descriptors_alone"}},
    {"it looks at command submissions, or makes them",
     {"application_memory.a_card_closed_behind_our_back_is_noticed",
      "application_memory.a_reopened_card_is_found_again",
      "application_memory.mapped_after_the_open_is_copied",
      "bad_input.the_application_opens_cards_while_a_reset_is_waited_for",
      "within_a_card.a_copy_takes_an_engine_that_is_there"}},
    {"the program has a second card, and submits jobs",
     {"*/slot_own_card.arrives_unchanged/*"}},
    {"it looks at cards that no framework has, which Gaudi3 does not work with",
     {"*/mpi_library.the_example_runs_in_every_way_that_it_is_started/*",
      "info.calls_cards_as_the_transports_do",
      "info.fails_when_every_card_is_taken",
      "info.finds_protocols_that_cannot_be_used",
      "info.lists_the_cards_of_the_software_box",
      "info.names_every_part_that_is_missing",
      "info.names_the_module_that_fits_among_several",
      "info.notices_a_module_that_cannot_be_used",
      "info.notices_a_place_from_which_nothing_can_be_loaded",
      "info.notices_a_slot_whose_ucx_is_gone",
      "info.shows_how_much_memory_there_is",
      "info.shows_who_has_a_card",
      "info.takes_no_card",
      "info.tells_which_way_of_loading_is_active",
      "info.writes_the_same_facts_as_json",
      "preload.leaves_the_transport_list_of_programs_without_ucx_alone",
      "preload.serves_the_transport_list_of_a_component",
      "preload.serves_the_transport_list_of_a_program_that_uses_dlsym",
      "slot.reaches_programs_that_load_ucx_later",
      "undisturbed.a_child_of_a_ucx_program_goes_its_own_way"}},
    {"Gaudi3 has no pages of 48 MB",
     {"example_ucp_host_to_device.says_when_the_card_has_too_little_memory",
      "with/ipc_survival_of_buffers.gives_most_of_a_card_again/*"}},
};

constexpr char host_map[] = "UCX_GAUDI_SYNAPSE_HOST_MAP";

/* Which need it in their own process, where they set it if they run alone. */
const std::vector<const char *> with_mapped_memory = {
    "fence.operations_behind_it_are_not_submitted_before_it_is_reached",
    "memory_domain.the_first_use_maps_and_the_cache_keeps_it",
    "memory_pairs.a_registration_is_found_by_pointer_at_any_offset",
    "registration_cache.a_hit_makes_no_driver_call",
    "registration_cache.a_transfer_keeps_its_mapping_to_the_end",
    "registration_cache.is_one_for_all_domains",
    "registration_cache.it_can_be_left_out",
    "registration_cache.memory_mapped_anew_is_never_served_from_the_old",
    "registration_cache.overlapping_registrations_become_one",
    "registration_cache.what_cannot_be_mapped_spoils_no_neighbour",
    "registration_cache.what_could_not_be_mapped_is_tried_again",
    "registration_cache.without_memory_events_there_is_none",
    "registration_fork.nor_does_memory_that_was_unmapped",
    "registration_fork.nothing_stays_pinned_until_the_next_registration",
    "registration_fork.the_cache_can_be_kept",
    "registration_fork.the_cache_is_emptied",
    "registration_fork.the_child_leaves_what_the_parent_has",
    "registration_fork.what_is_in_use_stays_registered",
    "registrations.advice_maps_host_memory_before_it_is_used",
};

const limit limits_without_import[] = {
    {"the driver does not import",
     {"dmabuf.a_card_has_to_be_open",
      "dmabuf.a_killed_exporter_does_not_hurt_the_importer",
      "dmabuf.a_range_of_another_process_is_read_and_written",
      "dmabuf.an_import_is_*",
      "dmabuf.any_range_of_an_allocation_comes_out_at_the_importer",
      "dmabuf.every_operation_takes_an_import",
      "dmabuf.memory_may_be_freed_before_its_dmabuf",
      "dmabuf.only_imports_are_released",
      "dmabuf.only_ranges_of_dmabufs_are_imported",
      "dmabuf.threads_export_and_import_at_a_time",
      "dmabuf.ucx_is_given_any_range_of_an_allocation",
      "dmabuf.ucx_is_told_that_an_import_has_none",
      "dmabuf_settings.imports_of_several_cards_do_not_meet",
      "program_cards.that_are_removed_leave_no_descriptor",
      "program_imports.hold_off_other_threads_that_close_the_cards",
      "program_imports.keep_the_cards_open_that_ucx_has_closed"}},
};

bool is_set(const char *variable, const char *value)
{
    const char *text = std::getenv(variable);
    return (text != nullptr) && (std::strcmp(text, value) == 0);
}

bool is_among(const std::vector<const char *> &patterns,
              const std::string &name)
{
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const char *pattern) {
                           return fnmatch(pattern, name.c_str(), 0) == 0;
                       });
}

const char *find_among(std::span<const limit> all, const std::string &name)
{
    const auto found = std::ranges::find_if(
        all, [&](const limit &each) { return is_among(each.tests, name); });
    return (found == all.end()) ? nullptr : found->why;
}

/* Why a test does not hold; nullptr when it does. */
const char *why_not_beside_framework(const std::string &name)
{
    const char *why = find_among(limits, name);
    if ((why == nullptr) && has_one_card()) {
        why = find_among(limits_of_gaudi3, name);
    }
    if ((why == nullptr) && !is_set(host_map, "y") &&
        is_among(with_mapped_memory, name)) {
        why = not_mapped;
    }
    return why;
}

void skip_if(const char *where, const char *why)
{
    if (why != nullptr) {
        GTEST_SKIP() << where << why << " (" << program_invocation_short_name
                     << ")";
    }
}

/* Before the test of a process that runs one, as CTest's do: variables are read
 * once. */
class skipping : public ::testing::EmptyTestEventListener {
    void OnTestStart(const ::testing::TestInfo &test) override
    {
        const std::string name =
            std::string(test.test_suite_name()) + "." + test.name();
        if (is_among(with_mapped_memory, name) &&
            (::testing::UnitTest::GetInstance()->test_to_run_count() == 1)) {
            setenv(host_map, "y", 1);
        }
        skip_if(beside_framework, why_not_beside_framework(name));
    }
};

class skipping_imports : public ::testing::EmptyTestEventListener {
    void OnTestStart(const ::testing::TestInfo &test) override
    {
        const std::string name =
            std::string(test.test_suite_name()) + "." + test.name();
        skip_if(without_imports, find_among(limits_without_import, name));
    }
};

} // namespace

void skip_what_does_not_hold()
{
    auto &listeners = ::testing::UnitTest::GetInstance()->listeners();
    if (runs_beside_framework()) {
        listeners.Append(new skipping);
    }
    if (is_set("HLTHUNK_EMU_IMPORT", "n")) {
        listeners.Append(new skipping_imports);
    }
}

} // namespace gaudi::test

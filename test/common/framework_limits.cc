#include "common/framework_limits.h"

#include "common/framework.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include <fnmatch.h>
#include <gtest/gtest.h>

namespace gaudi::test {

namespace {

struct limit {
    const char *tests;
    const char *why;
};

constexpr char one_block[] =
    "the framework has all of the memory as one block, all of which is device "
    "memory, and gives it out again as it likes";
constexpr char its_card[] =
    "the test opens the card itself, which the framework has";
constexpr char one_card[] =
    "the process has the framework's card, and needs no other";
constexpr char one_device[] =
    "SynapseAI has one device per process, and drives all there";
constexpr char not_submitted[] =
    "it looks at command submissions, or makes them";
constexpr char not_of_scal[] =
    "SCAL submits no jobs, and an engine of it that fails resets the card";
constexpr char kills[] =
    "SynapseAI ends the process when the driver does not unmap host memory";
constexpr char its_files[] = "the framework keeps its descriptors";
constexpr char is_preloaded[] =
    "the framework is preloaded, and has the driver's library loaded";
constexpr char no_sleep[] =
    "the driver is not slept in: SynapseAI must not be waited in";
constexpr char own_dmabufs[] =
    "each allocation is one of SynapseAI's, with a dma-buf of its own";
constexpr char one_gaudi3[] =
    "SynapseAI has one device per process, and Gaudi3 takes no work but by it";
constexpr char not_forked[] =
    "a forked child has what its parent's SynapseAI had, and can acquire none";
constexpr char needs_synapse[] =
    "it looks at cards that no framework has, which Gaudi3 does not work with";
constexpr char own_jobs[]   = "the program has a second card, and submits jobs";
constexpr char page_of_48[] = "Gaudi3 has no pages of 48 MB";
constexpr char not_mapped[] =
    "host memory of the application is staged, unless "
    "UCX_GAUDI_SYNAPSE_HOST_MAP=y";

constexpr limit limits[] = {
    {"of_own_cards/contents.*", its_card},
    {"no_card.*", one_card},
    {"program_cards.in_reset_hold_up_nobody_who_asks_what_memory_is",
     one_device},
    {"program_cards.serve_while_another_one_is_waited_for_that_is_in_reset",
     one_device},
    {"program_cards.that_are_removed_leave_no_descriptor", one_device},
    {"example_uct_host_to_device.ends_with_an_error_when_every_card_is_taken",
     one_card},
    {"example_ucp_host_to_device.says_what_can_be_missing_without_a_card",
     one_card},
    {"keys.of_freed_memory_that_is_in_use_keep_its_addresses", own_dmabufs},
    {"keys.of_neighbours_at_reused_addresses_show_the_new_bytes", own_dmabufs},
    {"remote_buffers.opens_a_buffer_once_however_many_keys_point_into_it",
     own_dmabufs},
    {"allocation.a_page_goes_back_when_its_last_part_goes", one_block},
    {"allocation.a_small_one_takes_the_rest_of_a_large_ones_pages", one_block},
    {"allocation.a_thousand_small_ones_share_a_page", one_block},
    {"allocation.exhaustion_by_small_ones_is_no_memory_and_loses_nothing",
     one_block},
    {"allocation.that_touches_another_is_known_from_its_first_byte", one_block},
    {"adoption.what_is_gone_is_announced_when_no_card_can_be_opened", its_card},
    {"application_memory.a_card_of_ours_is_not_lent_to_ucx", its_card},
    {"application_memory.a_card_of_the_program_is_used_and_stays_open",
     its_card},
    {"application_memory.a_card_that_ucx_opens_is_left_to_it", its_card},
    {"application_memory.a_card_that_we_opened_first_is_shared", its_card},
    {"application_memory.a_range_across_two_allocations_is_refused", its_card},
    {"application_memory.a_refused_unmap_announces_it_again", its_card},
    {"application_memory.a_shared_card_that_is_closed_holds_up_nobody",
     its_card},
    {"application_memory.after_hlthunk_close_copies_end_with_an_error",
     its_card},
    {"application_memory.events_tell_address_and_size_around_the_driver_calls",
     its_card},
    {"application_memory.hundred_thousand_mappings_are_told_apart", its_card},
    {"application_memory.mapped_before_the_open_is_copied_and_told_exactly",
     is_preloaded},
    {"application_memory.mapped_while_the_cards_close_is_of_no_card_until_then",
     its_card},
    {"application_memory.memory_of_ours_on_a_lost_card_is_refused_and_freed",
     its_card},
    {"application_memory.memory_that_goes_while_registered_is_harmless",
     its_card},
    {"application_memory.the_same_address_on_two_cards_goes_to_neither",
     its_card},
    {"application_memory.two_memory_domains_share_an_adopted_card", its_card},
    {"application_memory.what_the_driver_does_not_free_stays_known", its_card},
    {"bad_address.a_failed_copy_completes_once_with_an_error", one_block},
    {"bad_address.every_operation_refuses_what_no_allocation_covers",
     one_block},
    {"counts.have_the_pieces_of_a_long_copy", not_mapped},
    {"counts.leave_out_what_fails", not_of_scal},
    {"detection.the_cache_learns_of_allocations_and_forgets_freed_ones",
     one_block},
    {"dmabuf.memory_may_be_freed_before_its_dmabuf", one_block},
    {"dmabuf.of_parts_does_not_use_up_their_block", one_block},
    {"dmabuf.what_is_no_device_memory_is_not_exported", one_block},
    {"forking.the_child_lets_go_of_the_cards", its_files},
    {"freed_handle.that_another_thread_gets_at_once_stays_known", its_card},
    {"memory_domain.a_freed_address_does_not_come_back_at_once", one_block},
    {"memory_domain.device_memory_outside_allocations_cannot_be_registered",
     one_block},
    {"memory_domain.exhaustion_is_no_memory_and_loses_nothing", one_block},
    {"memory_domain.freed_memory_goes_with_its_last_registration", one_block},
    {"program_cards.are_not_a_forked_childs_which_can_have_its_own",
     not_forked},
    {"program_memory.is_none_when_it_is_freed", one_block},
    {"program_memory.is_not_touched_behind_its_end", one_block},
    {"registrations.an_idle_one_does_not_keep_memory_from_being_freed",
     one_block},
    {"registrations.ranges_out_of_this_world_are_refused", one_block},
    {"registrations.reach_over_the_end_as_far_as_ucp_rounds_up", one_block},
    {"that_are/linked_libraries.map_memory_that_is_known_exactly/"
     "bound_already",
     its_card},
    {"that_are/linked_libraries.map_memory_that_is_known_exactly/"
     "bound_at_its_call",
     its_card},
    {"that_are/linked_libraries.map_memory_that_is_known_exactly/loaded_late",
     its_card},
    {"unseen_memory.is_any_address_of_its_card_behind_all_that_is_known",
     its_card},
    {"unseen_memory.is_replaced_by_what_is_mapped_there_next", its_card},
    {"unseen_memory.is_what_the_program_maps_by_pointers_from_before",
     its_card},
    {"wakeup.a_stall_costs_no_cpu_and_no_timer", no_sleep},
    {"command_line.env_prints_exports_and_nothing_else", is_preloaded},
    {"command_line.in_a_slot_preloads_nothing", is_preloaded},
    {"command_line.nested_adds_nothing_twice", is_preloaded},
    {"command_line.preloads_the_stub_in_front_of_what_was_there", is_preloaded},
    {"command_line.works_through_a_symbolic_link_and_from_another_folder",
     is_preloaded},
    {"nothing_moves.without_a_copy_routine_every_test_of_data_fails",
     is_preloaded},
    {"*/mpi_traffic.host_programs_do_as_they_do_without_the_module/*",
     is_preloaded},
    {"ucx_info.lists_the_cards_that_variables_make_visible", its_card},
    {"ucx_info.lists_the_named_cards_only", its_card},
    {"*/fault_matrix.*/aborted_job_under_*", not_of_scal},
    {"*/fault_matrix.*/submission_under_*", not_of_scal},
    {"*/fault_matrix.*/unmapping_under_*", kills},
};

constexpr limit limits_of_gaudi3[] = {
    {"counted_transfers.show_a_card_once_it_is_used", one_gaudi3},
    {"counted_transfers.are_the_writing_cards", one_gaudi3},
    {"*/fault_matrix.*_to_other_card", one_gaudi3},
    {"*/fault_matrix.*_from_other_card", one_gaudi3},
    {"*/fault_matrix.*/removal_under_reopen", one_gaudi3},
    {"transfers.go_through_the_engines_card_where_peer_to_peer_is_missing",
     one_gaudi3},
    {"example_dmabuf.*", one_gaudi3},
    {"adoption.a_forked_child_leaves_the_programs_descriptors_alone",
     not_forked},
    {"application_memory.a_card_closed_behind_our_back_is_noticed",
     not_submitted},
    {"application_memory.a_reopened_card_is_found_again", not_submitted},
    {"application_memory.mapped_after_the_open_is_copied", not_submitted},
    {"bad_input.the_application_opens_cards_while_a_reset_is_waited_for",
     not_submitted},
    {"cards.an_operation_goes_to_the_card_that_owns_the_address", one_gaudi3},
    {"cards.keep_their_addresses_apart_however_much_is_allocated", one_gaudi3},
    {"dmabuf_settings.imports_of_several_cards_do_not_meet", one_gaudi3},
    {"forking.the_child_can_open_a_card_of_its_own", not_forked},
    {"registration_fork.the_child_has_a_cache_of_its_own", not_forked},
    {"within_a_card.a_copy_takes_an_engine_that_is_there", not_submitted},
    {"*/two_cards.get_bytes_unchanged_from_each_other/*", one_gaudi3},
    {"*/slot_own_card.arrives_unchanged/*", own_jobs},
    {"*/mpi_library.the_example_runs_in_every_way_that_it_is_started/*",
     needs_synapse},
    {"example_ucp_host_to_device.says_when_the_card_has_too_little_memory",
     page_of_48},
    {"with/ipc_survival_of_buffers.gives_most_of_a_card_again/*", page_of_48},
    {"info.calls_cards_as_the_transports_do", needs_synapse},
    {"info.fails_when_every_card_is_taken", needs_synapse},
    {"info.finds_protocols_that_cannot_be_used", needs_synapse},
    {"info.lists_the_cards_of_the_software_box", needs_synapse},
    {"info.names_every_part_that_is_missing", needs_synapse},
    {"info.names_the_module_that_fits_among_several", needs_synapse},
    {"info.notices_a_module_that_cannot_be_used", needs_synapse},
    {"info.notices_a_place_from_which_nothing_can_be_loaded", needs_synapse},
    {"info.notices_a_slot_whose_ucx_is_gone", needs_synapse},
    {"info.shows_how_much_memory_there_is", needs_synapse},
    {"info.shows_who_has_a_card", needs_synapse},
    {"info.takes_no_card", needs_synapse},
    {"info.tells_which_way_of_loading_is_active", needs_synapse},
    {"info.writes_the_same_facts_as_json", needs_synapse},
    {"preload.leaves_the_transport_list_of_programs_without_ucx_alone",
     needs_synapse},
    {"preload.serves_the_transport_list_of_a_component", needs_synapse},
    {"preload.serves_the_transport_list_of_a_program_that_uses_dlsym",
     needs_synapse},
    {"slot.lists_the_cards_and_the_rest_as_before", one_gaudi3},
    {"slot.reaches_programs_that_load_ucx_later", needs_synapse},
    {"slot.uses_every_variable", one_gaudi3},
    {"slot.works_at_a_path_with_spaces", one_gaudi3},
    {"ucx_info.lists_as_many_cards_as_the_box_has", one_gaudi3},
    {"ucx_info.lists_every_card_when_all_are_wanted", one_gaudi3},
    {"ucx_info.takes_values_from_the_environment", one_gaudi3},
    {"undisturbed.a_child_of_a_ucx_program_goes_its_own_way", needs_synapse},
};

constexpr char host_map[] = "UCX_GAUDI_SYNAPSE_HOST_MAP";

/* Which need it, in programs of their own. */
constexpr const char *programs_with_mapped_memory[] = {
    "*/ipc_message_bytes.of_large_messages_*",
    "*/ipc_rma_bytes.move_once/*",
};

/* The same in their own process, where they set it if they run alone. */
constexpr const char *with_mapped_memory[] = {
    "fence.operations_behind_it_are_not_submitted_before_it_is_reached",
    "ipc.host_memory_is_not_staged",
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

bool is_match(const char *pattern, const std::string &name)
{
    return fnmatch(pattern, name.c_str(), 0) == 0;
}

bool is_set(const char *variable, const char *value)
{
    const char *text = std::getenv(variable);
    return (text != nullptr) && (std::strcmp(text, value) == 0);
}

template <size_t count>
bool is_among(const char *const (&patterns)[count], const std::string &name)
{
    return std::any_of(
        std::begin(patterns), std::end(patterns),
        [&](const char *pattern) { return is_match(pattern, name); });
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
        const std::string why = why_not_beside_framework(name);
        if (!why.empty()) {
            GTEST_SKIP() << beside_framework << why << " ("
                         << program_invocation_short_name << ")";
        }
    }
};

} // namespace

std::string why_not_beside_framework(const std::string &name)
{
    for (const limit &each : limits) {
        if (is_match(each.tests, name)) {
            return each.why;
        }
    }
    for (const limit &each : limits_of_gaudi3) {
        if (has_one_card() && is_match(each.tests, name)) {
            return each.why;
        }
    }
    if (!is_set(host_map, "y") &&
        (is_among(with_mapped_memory, name) ||
         is_among(programs_with_mapped_memory, name))) {
        return not_mapped;
    }
    return {};
}

void skip_what_no_framework_allows()
{
    if (runs_beside_framework()) {
        ::testing::UnitTest::GetInstance()->listeners().Append(new skipping);
    }
}

} // namespace gaudi::test

# SPDX-License-Identifier: BSD-3-Clause
# Tests that do not run under a sanitizer. The one place for that: CTest does not
# know them in such a build.
#
# gaudi_exclude(SANITIZER PROGRAM PATTERN REASON), the pattern as in
# --gtest_filter. Each has to name a test, or the test excluded.PROGRAM fails.
function(gaudi_exclude sanitizer program pattern reason)
  string(REPLACE "," ";" in_use "${GAUDI_SANITIZE}")
  if(sanitizer IN_LIST in_use)
    set_property(GLOBAL APPEND PROPERTY GAUDI_EXCLUDED_${program} "${pattern}")
  endif()
endfunction()

gaudi_exclude(address gaudi_gtest_uct "ports_way.posts_without_a_system_call"
  "a thread cannot end without those of the runtime")
gaudi_exclude(address gaudi_gtest_uct
  "of/host_memory_of_a_peer.may_be_unmapped_meanwhile/another_pod"
  "LeakSanitizer does not stop threads of another PID namespace")
gaudi_exclude(address gaudi_gtest_uct
  "forking.the_threads_of_the_parent_are_not_missed"
  "a thread of the parent can hold the sanitizer's allocator while it forks")
gaudi_exclude(address gaudi_gtest_tools
  "with/forks.are_not_held_up_where_another_thread_opens_the_first_card/*"
  "a thread of the parent can hold the sanitizer's allocator while it forks")
gaudi_exclude(address gaudi_gtest_tools
  "check.goes_well_above_the_double_of_the_kernel"
  "the double comes before the runtime")
foreach(sanitizer address thread)
  gaudi_exclude(${sanitizer} gaudi_gtest_uct "dmabuf.exports_leave_nothing"
    "counts mappings; the sanitizer's runtime maps memory as it goes")
  gaudi_exclude(${sanitizer} gaudi_gtest_emu
    "emu_memory_limits.take_address_space_for_what_is_allocated_alone"
    "limits addresses, of which the runtime needs many")
endforeach()
foreach(pattern "registration_cache.*" "registration_fork.the_cache_*"
    "registration_fork.memory_that_was_unmapped_*"
    "registration_fork.much_memory_*" "registration_fork.what_is_in_use_*"
    "registrations.whole_allocations_can_be_*"
    "registrations.an_idle_one_does_not_keep_memory_from_being_freed"
    "registrations.undoing_one_twice_is_refused")
  gaudi_exclude(thread gaudi_gtest_uct "${pattern}"
    "UCX's memory events crash under the runtime; without them is no cache")
endforeach()
gaudi_exclude(thread gaudi_gtest_uct
  "bad_input.the_application_opens_cards_while_a_reset_is_waited_for"
  "what one thread reads of the log comes after what the other one has patched,
  which the runtime does not see")
gaudi_exclude(thread gaudi_gtest_uct "forking_of_others.*"
  "in the child the runtime waits for the dynamic linker's lock itself")
gaudi_exclude(thread gaudi_gtest_uct "forking.pinned_memory_is_not_shared"
  "in the child the runtime maps memory of its own at the free addresses")
gaudi_exclude(thread gaudi_gtest_uct "all/faults_of_a_card.*"
  "takes long; it is one thread that meets the faults")
foreach(pattern "over/serving.*/any_*" "over/serving.*/gaudi_copy_tcp_*")
  gaudi_exclude(address gaudi_gtest_tools "${pattern}"
    "takes long; each of the transports has its own tests here")
endforeach()
gaudi_exclude(address gaudi_gtest_tools "undisturbed.*"
  "counts what programs notice of the preload; the sanitizer's runtime is more")
gaudi_exclude(address gaudi_gtest_tools "command_line.*"
  "compares LD_PRELOAD, where the sanitizer's runtime is, too")
foreach(pattern "*_opened_with_deepbind" "*frees_nothing_that_libc_has_allocated"
    "wheel.gets_them_by_a_link_where_all_others_see_another_ucx")
  gaudi_exclude(address gaudi_gtest_tools "${pattern}"
    "the runtime refuses RTLD_DEEPBIND")
endforeach()
gaudi_exclude(address gaudi_gtest_tools
  "preload.reaches_a_ucx_beside_another_allocator"
  "the runtime has an allocator of its own")
foreach(pattern "info.*" "each/info_of_problems.*" "made_up_machine.*" "slot.*"
    "lone_slot.*")
  gaudi_exclude(address gaudi_gtest_tools "${pattern}"
    "starts from made-up installations and libraries without the runtime")
endforeach()
foreach(pattern "*mpi_*.*" "*perftest*.*" "a_process/contents_within.*"
    "slot_contents.*" "of_settings/contents.*" "by/example_*"
    "over/example_*" "over/faults_by_way.killed_*"
    "faults.killed_peers_in_pods_*")
  gaudi_exclude(address gaudi_gtest_tools "${pattern}"
    "takes long; of_ways/contents sends the same kinds of traffic")
endforeach()
gaudi_exclude(address gaudi_gtest_tools
  "preload.of_two_installations_registers_one"
  "what Open MPI knows its components by is there twice, as it has to be")
foreach(pattern "library/check_of_faults.are_named/wide"
    "library/check_of_faults.are_named/crash"
    "library/check_of_faults.are_named/fatal"
    "check.goes_on_behind_a_step_that_dies_or_hangs")
  gaudi_exclude(address gaudi_gtest_tools "${pattern}"
    "the runtime itself ends a step that crashes")
endforeach()
foreach(test "gaudi_gtest_emu emu_port_processes.*"
    "gaudi_gtest_emu emu_port_data.a_gaudi3_writes_host_memory"
    "gaudi_gtest_shim *port_connections*.*" "gaudi_gtest_uct ports_way.*"
    "gaudi_gtest_uct *conformance*/ipc_ports*"
    "gaudi_gtest_uct over/interruptions.*/ports_*"
    "gaudi_gtest_uct over/killed_peers.*/ports" "gaudi_gtest_uct port_faults.*"
    "gaudi_gtest_uct ended_peers.are_not_waited_for"
    "gaudi_gtest_uct ended_peers.that_were_killed_*"
    "gaudi_gtest_uct over/program_ipc_between.*/ports")
  separate_arguments(words UNIX_COMMAND "${test}")
  list(GET words 0 program)
  list(GET words 1 pattern)
  gaudi_exclude(thread ${program} "${pattern}"
    "a doorbell orders what a port reads, in a page that is mapped twice")
endforeach()

# SPDX-License-Identifier: BSD-3-Clause
# Puts Gaudi's transports and memory in the place of AMD's in a copy of UCX's
# tests. TYPE is the memory type that stands for Gaudi memory in that UCX.
s/rocm_copy/gaudi_cpy/g
s/rocm_cpy/gaudi_copy/g
s/rocm_ipc/gaudi_ipc/g
s/\<UCS_MEMORY_TYPE_ROCM\>/UCS_MEMORY_TYPE_@TYPE@/g
# Without what is for InfiniBand alone, in libraries that may not be there.
s/^#\( *\)if HAVE_IB$/#\1if 0/
# Nor what is for Intel GPUs alone.
s/^#\( *\)if HAVE_ZE$/#\1if 0/
# A domain that allocates nothing is no reason to leave a test out.
s/^\( *\)max_length = ucs_min(max_length, sender().md_attr().\(cap\.\)*max_alloc \/ 2.5);/\
\1if (sender().md_attr().\2max_alloc != 0)\n&/
# A software card has the CPU copy.
s/(4\.1 \* (double)UCS_GBYTE)/(64 * UCS_MBYTE)/
s/has_mm() || has_transport("self")) {/has_mm() || has_transport("self") || has_transport("gaudi_cpy")) {/
# The CPU cannot send from device memory.
s/\<if (mem_type == UCS_MEMORY_TYPE_CUDA) {/if (mem_type == UCS_MEMORY_TYPE_@TYPE@) {/
# Nor set it.
s/\<if (length <= 8) {/if (length == 0) {/
# gaudi_ipc has messages, too. It takes the place of a transport of Cray: since
# 1.22 the list is as long as UCS_PP_FOREACH allows.
s/^    ugni_udt, /    gaudi_ipc,/
# A function that no header declares, so that the library that programs for
# another release are linked to does not have it (cmake/UcxTarget.cmake).
s/^ucs_status_t ucp_am_long_first_handler(/__attribute__((weak)) &/
# A test fails when a second one of its process leaves files open. Cards, and the
# memory and events of gaudi_ipc, are opened by the first test that uses each.
s/\(FD_INCREASE_THRESHOLD = \)2;/\16;/
# Sets of transports of UCP's tests: each begins with "gaudi".
/^ *UCP_INSTANTIATE_TEST_CASE_TLS(_test_case, self, /i\
    UCP_INSTANTIATE_TEST_CASE_TLS(_test_case, gaudi, "gaudi_cpy,gaudi_ipc") \\\
    UCP_INSTANTIATE_TEST_CASE_TLS(_test_case, gaudi_tcp, \\\
                                  "gaudi_cpy,gaudi_ipc,tcp") \\
/^ *UCP_INSTANTIATE_TEST_CASE_TLS_GPU_AWARE(_test_case, shm_ib_ipc, /i\
    UCP_INSTANTIATE_TEST_CASE_TLS_GPU_AWARE(_test_case, gaudi, "gaudi_ipc") \\\
    UCP_INSTANTIATE_TEST_CASE_TLS_GPU_AWARE(_test_case, gaudi_shm, \\\
                                            "gaudi_ipc,shm") \\\
    UCP_INSTANTIATE_TEST_CASE_TLS_GPU_AWARE(_test_case, gaudi_tcp, \\\
                                            "gaudi_ipc,tcp") \\\
    UCP_INSTANTIATE_TEST_CASE_TLS_GPU_AWARE(_test_case, gaudi_copy_shm, \\\
                                            "shm") \\\
    UCP_INSTANTIATE_TEST_CASE_TLS_GPU_AWARE(_test_case, gaudi_copy_tcp, \\\
                                            "tcp") \\\
    UCP_INSTANTIATE_TEST_CASE_TLS_GPU_AWARE(_test_case, gaudi_self, "self") \\

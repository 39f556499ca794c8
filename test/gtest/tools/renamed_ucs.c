/* SPDX-License-Identifier: BSD-3-Clause */
/* As much of a libucs of another name as calls what the loader wraps. */
void ucm_set_global_opts(const void *options);

__attribute__((constructor)) static void set_options(void)
{
    static const int options = 42;

    ucm_set_global_opts(&options);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What a libuct with other tables has beside its own: functions of slots of
 * which no release has all. */
#define FUNCTION(_name)                                                        \
    __attribute__((visibility("default"))) signed char _name(void);            \
    signed char _name(void)                                                    \
    {                                                                          \
        return 0;                                                              \
    }

FUNCTION(uct_iface_mem_element_pack)
FUNCTION(uct_md_mem_elem_pack)

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libhbl.so of which nothing can be called. Its plain verbs may have another
 * name, by definitions of the build.
 */
#define VISIBLE __attribute__((visibility("default")))

#ifdef STUB_WITHOUT_FUNCTIONS
#define hbldv_create_usr_fifo stub_hides_create_usr_fifo
#define ibv_destroy_qp stub_hides_destroy_qp
#endif

#define PORT_SYMBOL(_name)                                                     \
    VISIBLE int _name(void);                                                   \
    int _name(void)                                                            \
    {                                                                          \
        return 0;                                                              \
    }
#include "hlthunk_shim/ports/symbols.def"

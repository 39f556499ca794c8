/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libhbl.so of which nothing can be called but hbldv_query_device. Its plain
 * verbs may have another name, by definitions of the build.
 */
#include <stdint.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

#ifdef STUB_WITHOUT_FUNCTIONS
#define hbldv_create_usr_fifo stub_hides_create_usr_fifo
#define ibv_destroy_qp stub_hides_destroy_qp
#endif

#define hbldv_query_device stub_hides_query_device
#define PORT_SYMBOL(_name)                                                     \
    VISIBLE int _name(void);                                                   \
    int _name(void)                                                            \
    {                                                                          \
        return 0;                                                              \
    }
#include "hlthunk_shim/ports/symbols.def"
#undef hbldv_query_device

VISIBLE int hbldv_query_device(const void *context, void *attributes);
int hbldv_query_device(const void *context, void *attributes)
{
    uint64_t words[6] = {1};
    size_t count;

    (void)context;
#if defined(STUB_AS_HCL)
    words[1] = 3;      /* ports */
    words[3] = 0x1101; /* by the card's numbers */
    count    = 4;
#elif defined(STUB_AS_NOBODY)
    words[5] = 1;
    count    = 6;
#else
    words[1] = 0xa; /* by verbs' numbers: 1 and 3 */
    count    = 2;
#endif
    memcpy(attributes, words, count * sizeof(words[0]));
    return 0;
}

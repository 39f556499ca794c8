/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ucx-gaudi offers to programs beside UCX's own interface. C and C++.
 *
 * Nobody needs it to send Gaudi memory: UCX does that with nothing but
 * pointers. It is for what UCX has no function for in all of its releases:
 * device memory without a UCP context (allocate, free, copy, fill, query),
 * streams of copies, memory of other processes, the cards, the number of the
 * memory type, and dma-bufs of device memory (from 1.14 on UCX exports them by
 * uct_md_mem_query, too).
 *
 * Cards are open while the program has UCX open (ucp_init, or a memory domain
 * of component gaudi_copy), and from the first allocation, fill or copy here,
 * or ucx_gaudi_open, until ucx_gaudi_close. Which ones, UCX_GAUDI_DEVICES says;
 * where it leaves a choice, as its default does, the caller has it. What is not
 * closed ends with the process. A child that is forked meanwhile may exec or
 * exit: all other calls answer UCS_ERR_UNSUPPORTED there, and do nothing.
 *
 * Memory that is allocated here is known to UCX like any other device memory,
 * whether UCX is opened before or later. UCX has to have the module by then: a
 * program that opens UCX first is linked with this library, or preloads it.
 *
 * All functions may be called by any thread at any time. They answer with UCX's
 * status; UCX's log (UCX_LOG_LEVEL) tells what was wrong. Outputs are filled on
 * UCS_OK only. But for streams they return when what they do is done. They wait
 * for nothing that UCX has under way: complete, or flush, operations on memory
 * before it is copied, filled or freed.
 *
 * A card is named by its name ("gaudi1"), its index ("1") or its bus id
 * ("0000:b3:00.0").
 *
 * A dma-buf is a file descriptor that stands for device memory. It can be given
 * to another process (SCM_RIGHTS, pidfd_getfd), to an RDMA driver, or to
 * another card, which then reaches the memory itself, over PCIe.
 *
 * Link with what `pkg-config --libs ucx-gaudi-transports` says, and with `ucx`
 * behind it if the program calls UCP or UCT, too. A program that is linked so
 * has the module for the UCX that it runs with; preloading and slots do it no
 * harm. Where no module fits, one line on stderr says so, no memory is a
 * card's, and there is no card.
 */
#ifndef UCX_GAUDI_H
#define UCX_GAUDI_H

#include <stddef.h>
#include <stdint.h>

#include <ucs/memory/memory_type.h>
#include <ucs/type/status.h>

/** Version of this header. */
#define UCX_GAUDI_VERSION_MAJOR 0
#define UCX_GAUDI_VERSION_MINOR 3
#define UCX_GAUDI_VERSION_PATCH 0

#define UCX_GAUDI_MAKE_VERSION(_major, _minor, _patch)                         \
    (((_major) << 24) | ((_minor) << 16) | (_patch))

#define UCX_GAUDI_VERSION                                                      \
    UCX_GAUDI_MAKE_VERSION(UCX_GAUDI_VERSION_MAJOR, UCX_GAUDI_VERSION_MINOR,   \
                           UCX_GAUDI_VERSION_PATCH)

#define UCX_GAUDI_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the library that is loaded, as UCX_GAUDI_MAKE_VERSION has it. */
UCX_GAUDI_API unsigned ucx_gaudi_version(void);

/**
 * UCX's memory type that stands for Gaudi memory in this process: for
 * ucp_mem_map_params_t, ucp_request_param_t and uct_mem_alloc_params_t.
 *
 * @return UCS_MEMORY_TYPE_UNKNOWN when ucx-gaudi is not active: it has no
 *         module for the running UCX, or there is no type left for it.
 */
UCX_GAUDI_API ucs_memory_type_t ucx_gaudi_memory_type(void);

/* --- cards -----------------------------------------------------------------*/

/** Whether a card can be had. */
typedef enum ucx_gaudi_card_state {
    UCX_GAUDI_CARD_UNKNOWN, /**< the driver does not tell */
    UCX_GAUDI_CARD_FREE,    /**< nobody has it */
    UCX_GAUDI_CARD_OPEN,    /**< this process has it */
    UCX_GAUDI_CARD_TAKEN,   /**< another process has it */
    UCX_GAUDI_CARD_UNUSABLE /**< in reset, broken, or of no supported kind */
} ucx_gaudi_card_state_t;

/** Which fields of ucx_gaudi_card_attr_t are wanted. Bits that the library
 *  does not know are ignored. */
enum ucx_gaudi_card_attr_field {
    UCX_GAUDI_CARD_ATTR_FIELD_NAME         = 1 << 0,
    UCX_GAUDI_CARD_ATTR_FIELD_BUS_ID       = 1 << 1,
    UCX_GAUDI_CARD_ATTR_FIELD_STATE        = 1 << 2,
    UCX_GAUDI_CARD_ATTR_FIELD_NUMA_NODE    = 1 << 3,
    UCX_GAUDI_CARD_ATTR_FIELD_TOTAL_MEMORY = 1 << 4,
    UCX_GAUDI_CARD_ATTR_FIELD_FREE_MEMORY  = 1 << 5
};

/** What a card is. */
typedef struct ucx_gaudi_card_attr {
    uint64_t
        field_mask;  /**< enum ucx_gaudi_card_attr_field, set by the caller */
    char name[16];   /**< "gaudi0" */
    char bus_id[16]; /**< "0000:b3:00.0" */
    ucx_gaudi_card_state_t state; /**< now */
    int numa_node;                /**< -1: not known */
    uint64_t total_memory;        /**< bytes; 0: not known */
    uint64_t free_memory; /**< bytes that nobody has got from the driver, which
                               gives out pages of tens of megabytes or more;
                               0: none, or not known */
} ucx_gaudi_card_attr_t;

/**
 * Look at a card that this process may open, or has open: what
 * UCX_GAUDI_DEVICES and the vendor's variables (HABANA_VISIBLE_DEVICES and
 * others) leave, whether it is free or not. Opens none.
 *
 * @param number  0 for the first one, and so on.
 * @return UCS_OK
 *         UCS_ERR_NO_ELEM        there are no more; with number 0, no card or
 *                                no driver
 *         UCS_ERR_INVALID_PARAM  without attr; one of the variables cannot be
 *                                read
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_card_query(unsigned number,
                                                ucx_gaudi_card_attr_t *attr);

/**
 * Open cards now, not at the first allocation, and keep them open until
 * ucx_gaudi_close. Opened already, they are kept open.
 *
 * @param card  One that has to be open then; NULL for whatever
 *              UCX_GAUDI_DEVICES says. With its default, which is any one free
 *              card, it is this one, in addition to those that are open. Cards
 *              that it excludes are not opened.
 * @return UCS_OK
 *         UCS_ERR_NO_DEVICE      there is no such card, or none that this
 *                                process may open, or no driver
 *         UCS_ERR_BUSY           it is taken by another process, or all are
 *         UCS_ERR_INVALID_PARAM  UCX_GAUDI_DEVICES or another variable cannot
 *                                be read
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_open(const char *card);

/**
 * Let go of the cards that functions of this header keep open. They are closed
 * if UCX is not open either, and then free for other processes, some seconds
 * later: the driver resets a card that is closed. The next allocation opens
 * cards again.
 *
 * @return UCS_OK
 *         UCS_ERR_BUSY  memory is allocated, registered, exported, opened or
 *                       imported by this header, there is a stream, or another
 *                       thread is in a call; nothing was closed
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_close(void);

/* --- memory ----------------------------------------------------------------*/

/**
 * Allocate device memory. Opens cards as ucx_gaudi_open does. If it fails,
 * what it has opened is closed.
 *
 * @param length     Bytes, not 0.
 * @param card       Where; NULL for the first card that is open.
 * @param address_p  Device address of the first byte, at the start of a page of
 *                   the host. The CPU cannot touch it. What the memory contains
 *                   is not defined.
 * @return UCS_OK
 *         UCS_ERR_INVALID_PARAM  no output, or no bytes
 *         UCS_ERR_NO_MEMORY      the card has not that much left
 *         UCS_ERR_NO_DEVICE      also: the card was reset or removed
 *         others                 as ucx_gaudi_open
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_mem_alloc(size_t length, const char *card,
                                               void **address_p);

/**
 * Free device memory. Nothing may be under way that uses it. Registrations that
 * UCX still has of it keep it from being given out again until they end.
 *
 * @param address  As ucx_gaudi_mem_alloc gave it; NULL does nothing.
 * @return UCS_OK
 *         UCS_ERR_INVALID_ADDR  it gave no such address in this process, or
 *                               that is freed already
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_mem_free(void *address);

/**
 * Copy bytes: from host to device memory, back, within a card, from card to
 * card, or between host memory. Device memory may be of any kind that UCX knows
 * here: allocated by this header or by UCX, imported, or of the program's own
 * framework. A card's engines move all bytes of it, host memory that UCX has
 * registered directly, other host memory through staging memory. Several
 * threads copy at a time; up to eight, the others wait for them.
 *
 * @param dst     Host or device address.
 * @param src     The same. The ranges must not overlap, unless they are one.
 * @param length  Bytes; 0 does nothing.
 * @return UCS_OK                 when the bytes are there
 *         UCS_ERR_INVALID_PARAM  the ranges overlap, or one is at NULL
 *         UCS_ERR_INVALID_ADDR   a range of device addresses is not as a whole
 *                                in one allocation or import, or wraps around
 *         UCS_ERR_NO_DEVICE      no card is open, nor can be; a card was reset
 *                                or removed
 *         UCS_ERR_IO_ERROR, UCS_ERR_TIMED_OUT, UCS_ERR_NO_MEMORY  as the driver
 *                                says. After an error on the way part of the
 *                                bytes may be there
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_mem_copy(void *dst, const void *src,
                                              size_t length);

/**
 * Fill memory with a pattern. Up to 64 KiB of it are copied from the host; the
 * card doubles what it has until all is filled.
 *
 * @param address         Device address, of any alignment; or host memory.
 * @param length          Bytes, a multiple of pattern_length; 0 does nothing.
 * @param pattern         Host memory.
 * @param pattern_length  1, 2, 4, 8 or 16 bytes.
 * @return As ucx_gaudi_mem_copy; UCS_ERR_INVALID_PARAM for another pattern, one
 *         in device memory, or a length that is no multiple.
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_mem_fill(void *address, size_t length,
                                              const void *pattern,
                                              size_t pattern_length);

/**
 * Register host memory: cards then reach it directly, as memory that UCX has
 * registered, and copies of it pass no staging memory. A card maps it when it
 * is used for the first time; what a card cannot map, such as memory that is
 * read-only, is staged as before.
 *
 * @param length  Bytes, not 0. Unregister it before it is unmapped.
 * @return UCS_OK
 *         UCS_ERR_INVALID_PARAM   the address is NULL
 *         UCS_ERR_INVALID_ADDR    it is no range of host memory
 *         UCS_ERR_ALREADY_EXISTS  this address was registered before
 *         UCS_ERR_NO_MEMORY
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_host_register(void *address,
                                                   size_t length);

/**
 * Undo that. Nothing may be under way that uses it.
 *
 * @param address  As it was registered; NULL does nothing.
 * @return UCS_OK
 *         UCS_ERR_INVALID_ADDR  none was registered at this address
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_host_unregister(void *address);

/** Which fields of ucx_gaudi_mem_attr_t are wanted. Bits that the library does
 *  not know are ignored. */
enum ucx_gaudi_mem_attr_field {
    UCX_GAUDI_MEM_ATTR_FIELD_BASE     = 1 << 0,
    UCX_GAUDI_MEM_ATTR_FIELD_LENGTH   = 1 << 1,
    UCX_GAUDI_MEM_ATTR_FIELD_CARD     = 1 << 2,
    UCX_GAUDI_MEM_ATTR_FIELD_IMPORTED = 1 << 3
};

/** What device memory is. */
typedef struct ucx_gaudi_mem_attr {
    uint64_t
        field_mask; /**< enum ucx_gaudi_mem_attr_field, set by the caller */
    void *base;     /**< first byte of the allocation or import */
    size_t length;  /**< its bytes */
    char card[16];  /**< "gaudi0"; of an import, the card that reaches it; of
                         an IPC handle, "" */
    int imported;   /**< 1: by ucx_gaudi_dmabuf_import or ucx_gaudi_ipc_open,
                         else 0 */
} ucx_gaudi_mem_attr_t;

/**
 * Look up device memory.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM without attr; UCS_ERR_INVALID_ADDR
 *         (not logged) when the range is not as a whole in one allocation of
 *         device memory or in one import.
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_mem_query(const void *address,
                                               size_t length,
                                               ucx_gaudi_mem_attr_t *attr);

/* --- streams and events ----------------------------------------------------*/

/**
 * A stream makes the copies that it is given in their order, while the program
 * does something else. It has no thread: a card copies by itself what it
 * reaches, device memory and registered host memory, and takes up to 64 copies
 * at a time; copies that do not touch the same bytes may overtake each other.
 * More of them, copies that need the bytes of others, and what waits for an
 * event begin when somebody gives the stream something, asks it, or waits for
 * it, or for one of its events, or for a stream that waits for it. Streams do
 * not wait for each other, but by events. Each keeps a MiB of pinned host
 * memory per card that it has used, until it is destroyed.
 *
 * Some copies need the CPU all the way: those between two cards, those to or
 * from memory of another process, and those of registered host memory that the
 * card cannot map. They get on only when somebody asks or waits, as above.
 *
 * A copy that fails has its stream leave out all that follows and has not
 * begun, and fail the events that are recorded behind it. The next
 * ucx_gaudi_stream_synchronize returns that error, once; from then on the
 * stream copies again.
 *
 * Any thread may use a stream or an event at any time, but not while another
 * one destroys it.
 *
 * All that has a stream or an event as a parameter answers
 * UCS_ERR_INVALID_PARAM where it is NULL, and UCS_ERR_NO_MEMORY where the
 * process has no memory left.
 */
typedef struct ucx_gaudi_stream *ucx_gaudi_stream_h;

/** A place in a stream: whether what was before it is done. Owned by the
 *  caller. */
typedef struct ucx_gaudi_event *ucx_gaudi_event_h;

/**
 * Make a stream. Cards are opened by its first copy that needs one.
 *
 * @param stream_p  Owned by the caller; see ucx_gaudi_stream_destroy.
 * @return UCS_OK
 */
UCX_GAUDI_API ucs_status_t
ucx_gaudi_stream_create(ucx_gaudi_stream_h *stream_p);

/**
 * Wait for what is under way, as ucx_gaudi_stream_synchronize does, and end the
 * stream, whatever that returns. Events that were recorded in it stay.
 *
 * @param stream  NULL does nothing.
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_stream_destroy(ucx_gaudi_stream_h stream);

/**
 * Wait until all is done that the stream was given before.
 *
 * @return UCS_OK  all bytes are there
 *         or the error of the first copy that failed since the last call, as
 *         ucx_gaudi_mem_copy has it
 */
UCX_GAUDI_API ucs_status_t
ucx_gaudi_stream_synchronize(ucx_gaudi_stream_h stream);

/**
 * Look whether that is so, without waiting.
 *
 * @return UCS_INPROGRESS, or what ucx_gaudi_stream_synchronize would return,
 *         which it still does.
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_stream_query(ucx_gaudi_stream_h stream);

/**
 * Have a stream wait: what it is given from now on comes after the last place
 * where the event was recorded so far. Where that fails, this stream does, too.
 * Without a recording it does not wait.
 */
UCX_GAUDI_API ucs_status_t
ucx_gaudi_stream_wait_event(ucx_gaudi_stream_h stream, ucx_gaudi_event_h event);

/**
 * Give a stream a copy to be made, of the kinds that ucx_gaudi_mem_copy makes.
 * Both ranges stay what they are until it is done, and the source is not
 * written. With a host side that is not registered (ucx_gaudi_host_register, or
 * UCX), and between host memory, this returns when the copy is made, and all
 * that was before it in the stream.
 *
 * @return UCS_OK                 it will be made, or is, or there is nothing to
 *                                do; a failure on the way is told by the stream
 *         UCS_ERR_INVALID_PARAM, UCS_ERR_INVALID_ADDR  as ucx_gaudi_mem_copy,
 *                                where that can be seen at once; the stream is
 *                                as it was
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_mem_copy_async(void *dst, const void *src,
                                                    size_t length,
                                                    ucx_gaudi_stream_h stream);

/** Make an event, which was never recorded. @param event_p  Owned by the
 *  caller. */
UCX_GAUDI_API ucs_status_t ucx_gaudi_event_create(ucx_gaudi_event_h *event_p);

/** End it, at once; streams that were told to wait for it still do. @param
 *  event  NULL does nothing. */
UCX_GAUDI_API ucs_status_t ucx_gaudi_event_destroy(ucx_gaudi_event_h event);

/** Have the event stand for this place in a stream, and no more for the place
 *  where it was recorded before. */
UCX_GAUDI_API ucs_status_t ucx_gaudi_event_record(ucx_gaudi_event_h event,
                                                  ucx_gaudi_stream_h stream);

/**
 * Look whether all is done that was before the event in its stream.
 *
 * @return UCS_INPROGRESS
 *         UCS_OK  it is, or the event was never recorded
 *         or the error of the copy that failed before it
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_event_query(ucx_gaudi_event_h event);

/** The same, and wait for it. */
UCX_GAUDI_API ucs_status_t ucx_gaudi_event_synchronize(ucx_gaudi_event_h event);

/* --- memory of other processes ---------------------------------------------*/

/** Stands for memory in other processes of the node: opaque bytes, to be sent
 *  to them in any way. */
typedef struct ucx_gaudi_ipc_handle {
    unsigned char bytes[64];
} ucx_gaudi_ipc_handle_t;

/**
 * Let other processes use a range of memory of this one, device or host memory.
 *
 * Only processes of the same node, user and namespaces can, which gaudi_ipc
 * reaches. What they copy needs nothing of this program meanwhile. Device
 * memory is exported until it is freed or withdrawn, host memory until it is
 * withdrawn, and both until the process ends. The same range gives the same
 * handle again.
 *
 * @param address   First byte.
 * @param length    Bytes, not 0; of device memory, in one allocation.
 * @param handle_p  Filled on success.
 * @return UCS_OK
 *         UCS_ERR_INVALID_PARAM  a pointer is NULL, or the length 0
 *         UCS_ERR_INVALID_ADDR   the range is not as a whole in one allocation
 *                                of device memory, or no range of host memory
 *         UCS_ERR_NO_RESOURCE    no file descriptors, or too many exports
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_ipc_export(
    void *address, size_t length, ucx_gaudi_ipc_handle_t *handle_p);

/**
 * Undo an export; where the range was exported several times, the last one. The
 * handle is good for nothing then, and who has it open cannot copy any more.
 *
 * @return UCS_OK                nobody uses the memory any more
 *         UCS_ERR_INVALID_ADDR  this range is not exported, or was freed
 *         UCS_ERR_TIMED_OUT     it is withdrawn, but somebody's copy does not
 *                               come to an end
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_ipc_withdraw(void *address, size_t length);

/**
 * Open memory of another process.
 *
 * Its address is for ucx_gaudi_mem_copy, ucx_gaudi_mem_copy_async and
 * ucx_gaudi_mem_query alone, as one side of a copy of which the other one is
 * memory of this process; neither the CPU nor UCX reach anything there. Each
 * copy takes the way that gaudi_ipc takes: over the cards' ports where they are
 * connected, else through host memory that both processes have; between host
 * memory the kernel copies. Host memory of this process that
 * is registered (ucx_gaudi_host_register) is reached by its card. A card is
 * opened where one can be had; it works without, too.
 *
 * @param handle     Of a process that lives.
 * @param address_p  Of the first byte that was exported. Each call gives
 *                   another one.
 * @param length_p   The bytes that were; may be NULL.
 * @return UCS_OK
 *         UCS_ERR_INVALID_PARAM     it is no handle, it was changed on its way,
 *                                   or it is of this process
 *         UCS_ERR_UNREACHABLE       it is of another machine, boot, user or
 *                                   namespace
 *         UCS_ERR_ENDPOINT_TIMEOUT  its process has ended
 *         UCS_ERR_CONNECTION_RESET  the memory was freed or withdrawn
 *         UCS_ERR_UNSUPPORTED       no card of this process reaches it
 *         UCS_ERR_TIMED_OUT         its process does not answer
 *         UCS_ERR_NO_RESOURCE       no file descriptors
 *
 * A copy answers the last five of these, too, where that has come to pass
 * since; the end of a process is seen some milliseconds later.
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_ipc_open(
    const ucx_gaudi_ipc_handle_t *handle, void **address_p, size_t *length_p);

/**
 * Close it. No copy of it may be under way.
 *
 * @param address  As ucx_gaudi_ipc_open gave it; NULL does nothing.
 * @return UCS_OK
 *         UCS_ERR_INVALID_ADDR  it gave no such address, or that is closed
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_ipc_close(void *address);

/* --- dma-bufs --------------------------------------------------------------*/

/**
 * Export a range of device memory.
 *
 * A dma-buf is made of whole pages of the host. The range may start and end
 * anywhere in an allocation: the pages around it are exported, and offset_p
 * tells where in the dma-buf it starts. No other allocation is in these pages,
 * but the rest of the same one can be.
 *
 * Nothing is kept for an export: close the descriptor when it is no longer
 * needed. The memory may be freed before. It stays what it is for those who
 * hold the dma-buf, and the card gets it back when all of them are gone. A card
 * stays taken as long as any process holds a dma-buf of it.
 *
 * @param address   Of device memory, allocated by UCX or by this header.
 * @param length    Bytes, not 0.
 * @param fd_p      A new file descriptor, close-on-exec, owned by the caller.
 * @param offset_p  Of the first byte in the dma-buf: less than a page, but on
 *                  Linux before 6.7, where that is of the whole block.
 * @return UCS_OK
 *         UCS_ERR_INVALID_PARAM  an output is NULL
 *         UCS_ERR_INVALID_ADDR   the range is not as a whole in one allocation
 *                                of device memory: host memory, freed memory,
 *                                nothing
 *         UCS_ERR_NO_DEVICE      its card was reset or removed
 *         UCS_ERR_UNSUPPORTED    the driver has no such call, or the memory is
 *                                imported: the exporter's dma-buf is the one to
 *                                pass on
 *         UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR  as the driver says, also without
 *                                room for one more file descriptor
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_dmabuf_export(const void *address,
                                                   size_t length, int *fd_p,
                                                   size_t *offset_p);

/**
 * Import part of a dma-buf of device memory, exported by another card or
 * process, or by the same.
 *
 * The address that it gives is device memory of the importing card for UCX:
 * detected as such, taken by puts, gets and messages, and by mem_reg. Copies
 * between it and the card's own memory go directly from card to card. Writes
 * there are posted: a copy may complete before the other card has the bytes.
 * Between cards that do not reach each other over PCIe an import succeeds, and
 * the first copy resets a card. The CPU cannot touch it.
 *
 * The memory stays valid until ucx_gaudi_dmabuf_release, whatever becomes of
 * the exporter, its allocation and the descriptor.
 *
 * A dma-buf does not tell which card it is of, and no driver tells whether two
 * cards reach each other: the program has to know.
 *
 * @param fd         The dma-buf; stays the caller's, and may be closed
 *                   afterwards.
 * @param offset     Of the first wanted byte in it, any.
 * @param length     Bytes, not 0, any number up to the end of the dma-buf.
 * @param card       Which open card reaches it; NULL for any.
 * @param address_p  Device address of the first byte.
 * @return UCS_OK
 *         UCS_ERR_INVALID_PARAM  an output is NULL, fd is no dma-buf of device
 *                                memory, or the range is not in it
 *         UCS_ERR_NO_DEVICE      this process has not that card open, or none;
 *                                ucx_gaudi_open opens it
 *         UCS_ERR_UNSUPPORTED    the driver cannot import: the one in the Linux
 *                                kernel cannot, the vendor's own one can
 *         UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR  as the driver says
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_dmabuf_import(int fd, size_t offset,
                                                   size_t length,
                                                   const char *card,
                                                   void **address_p);

/**
 * Undo an import. Nothing may be under way that uses it. It is unmapped when
 * the last registration of it has ended.
 *
 * @param address  As ucx_gaudi_dmabuf_import gave it; NULL does nothing.
 * @return UCS_OK
 *         UCS_ERR_INVALID_ADDR  no import gave this address
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_dmabuf_release(void *address);

#ifdef __cplusplus
}
#endif

#endif

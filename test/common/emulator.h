/**
 * The software Gaudi as a test process loads it: the shim's table, the hooks,
 * and the driver functions that the shim has no use for.
 *
 * GAUDI_TEST_HLTHUNK names another library than the one of this build.
 */
#pragma once

#include "hlthunk_shim/driver.h"
#include "hlthunk_shim/emu/hlthunk_emu.h"
#include "hlthunk_shim/hlthunk/library.h"

#include <string>

namespace gaudi::test {

/** The file that tests load. */
std::string emulator_path();

class emulator {
public:
    /** The one of this process; aborts when it cannot be loaded. */
    static const emulator &instance();

    shim::driver driver;

#define GAUDI_EMULATOR_FUNCTIONS(_row)                                         \
    _row(int, hlthunk_open_by_module_id, (uint32_t module_id)) _row(           \
        int, hlthunk_open_control_by_bus_id,                                   \
        (const char *bus_id)) _row(int, hlthunk_open_control_by_module_id,     \
                                   (uint32_t module_id))                       \
        _row(int, hlthunk_open_control_by_name,                                \
             (hlthunk_device_name name,                                        \
              const char *                                                     \
                  bus_id)) _row(int, hlthunk_get_device_index_from_pci_bus_id, \
                                (const char *bus_id))                          \
            _row(uint32_t, hlthunk_get_device_id_from_fd, (int fd)) _row(      \
                int, hlthunk_device_memory_export_dmabuf_fd,                   \
                (int fd, uint64_t address, uint64_t size,                      \
                 uint32_t flags)) _row(int, hlthunk_request_command_buffer,    \
                                       (int fd, uint32_t size,                 \
                                        uint64_t *handle))                     \
                _row(int, hlthunk_request_mapped_command_buffer,               \
                     (int fd, uint32_t size, uint64_t *handle))                \
                    _row(int, hlthunk_get_mapped_cb_device_va_by_handle,       \
                         (int fd, uint64_t handle, uint64_t *va))              \
                        _row(int, hlthunk_destroy_command_buffer,              \
                             (int fd, uint64_t handle))                        \
                            _row(int, hlthunk_wait_for_multi_cs,               \
                                 (int fd, hlthunk_wait_multi_cs_in *in,        \
                                  hlthunk_wait_multi_cs_out *out))             \
                                _row(int, hlthunk_emu_get_counters,            \
                                     (int fd, hlthunk_emu_counters *counters)) \
                                    _row(int, hlthunk_emu_pause,               \
                                         (int fd, bool paused))                \
                                        _row(int, hlthunk_emu_copy,            \
                                             (int fd, uint64_t dst,            \
                                              uint64_t src, uint64_t size,     \
                                              unsigned engine, uint64_t *seq)) \
                                            _row(                              \
                                                uint64_t,                      \
                                                hlthunk_host_memory_map_flags, \
                                                (int fd, void *host,           \
                                                 uint64_t hint, uint64_t size, \
                                                 uint32_t flags))

#define GAUDI_EMULATOR_ROW(_result, _name, _parameters)                        \
    _result(*_name) _parameters = nullptr;
    GAUDI_EMULATOR_FUNCTIONS(GAUDI_EMULATOR_ROW)
#undef GAUDI_EMULATOR_ROW

private:
    emulator();
};

/** Shorthand: the driver functions of the shim's table. */
const shim::library &hl();

/** What the cards of the box allocate their memory in, bytes. */
uint64_t device_page();

/** What programs can have of a card of the box, bytes. */
uint64_t device_bytes();

/** Bus id of a card of the box. */
std::string bus_id(unsigned index);

} // namespace gaudi::test

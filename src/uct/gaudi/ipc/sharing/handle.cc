/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/sharing/handle.h"

#include "uct/gaudi/ipc/process/file_service.h"
#include "uct/gaudi/ipc/process/reachability.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "util/unique_fd.h"

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

constexpr unsigned start_bits = 40;
constexpr uint64_t start_mask = (uint64_t{1} << start_bits) - 1;
constexpr size_t sum_at       = offsetof(wire_handle, start_and_sum);

/* The checksum of a handle, in its place. */
uint64_t sum_of(handle_image image)
{
    constexpr uint64_t odd = 0x9e3779b97f4a7c15;
    uint64_t words[handle_bytes / sizeof(uint64_t)];
    std::memcpy(words, image.data(), sizeof(words));
    words[sum_at / sizeof(uint64_t)] &= start_mask;
    uint64_t sum = handle_bytes;
    for (const uint64_t each : words) {
        sum = std::rotl((sum ^ each) * odd, 29);
    }
    /* What is kept is to depend on all of it. */
    sum = (sum ^ (sum >> 32)) * odd;
    sum = (sum ^ (sum >> 32)) * odd;
    return sum & ~start_mask;
}

handle_image make_handle(const wire_key &key, const file_ref &file)
{
    wire_handle handle;
    handle.nonce         = key.process.nonce;
    handle.start_and_sum = key.process.start_time & start_mask;
    handle.file          = file;
    handle.machine       = key.machine;
    handle.pid           = key.process.pid;
    return seal_handle(handle);
}

/* Under the lock of the file service. */
ucs_status_t write_key(const wire_key &key, util::unique_fd &fd_p)
{
    util::unique_fd fd(memfd_create("ucx-gaudi-key", MFD_CLOEXEC));
    if (!fd || (pwrite(fd.get(), &key, sizeof(key), 0) != sizeof(key))) {
        return UCS_ERR_NO_RESOURCE;
    }
    fd_p = std::move(fd);
    return UCS_OK;
}

ucs_status_t refuse(ucs_status_t status, const std::string &why)
{
    ucs_error("gaudi: an IPC handle cannot be opened: %s", why.c_str());
    return status;
}

/* The process of a handle gave no file. */
ucs_status_t explain(ucs_status_t status, const remote_process &process)
{
    const std::string name = "process " + std::to_string(process.id().pid);
    if (!process.is_alive()) {
        return refuse(UCS_ERR_ENDPOINT_TIMEOUT, name + " has ended");
    }
    switch (status) {
    case UCS_ERR_NO_ELEM:
        return refuse(UCS_ERR_CONNECTION_RESET,
                      name + " does not share the memory any more");
    case UCS_ERR_TIMED_OUT:
        return refuse(status, name + " does not answer");
    case UCS_ERR_NO_RESOURCE:
        return refuse(status, "there are no file descriptors for it");
    default:
        return refuse(UCS_ERR_UNREACHABLE,
                      name + " gives this process nothing");
    }
}

} // namespace

handle_image seal_handle(const wire_handle &handle)
{
    handle_image image{};
    /* Not what is between its members. */
    const auto set = [&](size_t at, const auto &member) {
        std::memcpy(image.data() + at, &member, sizeof(member));
    };
    set(offsetof(wire_handle, nonce), handle.nonce);
    set(offsetof(wire_handle, file), handle.file);
    set(offsetof(wire_handle, machine), handle.machine);
    set(offsetof(wire_handle, pid), handle.pid);
    set(sum_at, handle.start_and_sum & start_mask);
    set(sum_at, (handle.start_and_sum & start_mask) | sum_of(image));
    return image;
}

void offered_key::withdraw()
{
    if (key_.stamp != 0) {
        file_service::remove(file_);
    }
}

ucs_status_t offered_key::offer(const wire_key &key)
{
    file_ref file;
    file_offer made;
    made.open = [key](util::unique_fd &fd_p) { return write_key(key, fd_p); };
    const ucs_status_t status = file_service::add(std::move(made), file);
    if (status == UCS_OK) {
        withdraw();
        key_    = key;
        file_   = file;
        handle_ = make_handle(key, file);
    }
    return status;
}

ucs_status_t fetch_key(const handle_image &image, wire_key &key_p)
{
    wire_handle handle;
    std::memcpy(&handle, image.data(), sizeof(handle));
    if ((handle.start_and_sum & ~start_mask) != sum_of(image)) {
        return refuse(UCS_ERR_INVALID_PARAM,
                      "it is none, or was changed on its way");
    }
    const std::string unreachable = why_unreachable(handle.machine);
    if (!unreachable.empty()) {
        return refuse(UCS_ERR_UNREACHABLE, "process " +
                                               std::to_string(handle.pid) +
                                               ": " + unreachable);
    }
    const process_id id{handle.nonce, handle.start_and_sum & start_mask,
                        handle.pid, handle.machine.pid_namespace};
    if (id == own_process()) {
        return refuse(UCS_ERR_INVALID_PARAM,
                      "it is of this process, which has the memory");
    }
    std::shared_ptr<remote_process> process;
    ucs_status_t status = remote_process::open(id, process);
    if (status != UCS_OK) {
        return (status == UCS_ERR_NO_RESOURCE)
                   ? refuse(status, "there are no file descriptors for it")
                   : refuse(UCS_ERR_ENDPOINT_TIMEOUT,
                            "process " + std::to_string(id.pid) + " has ended");
    }
    file_pair files;
    status = process->get_files(handle.file, files);
    if (status != UCS_OK) {
        return explain(status, *process);
    }
    wire_key key;
    if (pread(files[0].get(), &key, sizeof(key), 0) != sizeof(key)) {
        return refuse(UCS_ERR_INVALID_PARAM,
                      "process " + std::to_string(id.pid) + " sent no key");
    }
    if ((read_key(&key, key_p) != UCS_OK) || (key_p.process != id)) {
        return refuse(UCS_ERR_INVALID_PARAM,
                      "process " + std::to_string(id.pid) + " sent no key");
    }
    return UCS_OK;
}

} // namespace gaudi::ipc

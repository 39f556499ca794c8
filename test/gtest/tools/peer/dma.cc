#include "gtest/tools/peer/dma.h"

#include "hlthunk_emulator/hlthunk_emu.h"

#include <sys/stat.h>
#include <unistd.h>

namespace peer {

namespace {

constexpr int max_fds = 1024;

} // namespace

dma_count count_dma()
{
    dma_count sum;
    for (int fd = 0; fd < max_fds; ++fd) {
        hlthunk_emu_counters counters;
        if (hlthunk_emu_get_counters(fd, &counters) == 0) {
            sum.host_to_device += counters.host_to_device_bytes;
            sum.device_to_host += counters.device_to_host_bytes;
            sum.device_to_device += counters.device_to_device_bytes;
            sum.host_to_host += counters.host_to_host_bytes;
            sum.jobs += counters.jobs;
        }
    }
    return sum;
}

dma_count operator-(const dma_count &after, const dma_count &before)
{
    return {after.host_to_device - before.host_to_device,
            after.device_to_host - before.device_to_host,
            after.device_to_device - before.device_to_device,
            after.host_to_host - before.host_to_host, after.jobs - before.jobs};
}

unsigned close_dmabufs()
{
    unsigned closed = 0;
    for (int fd = 0; fd < max_fds; ++fd) {
        /* The emulator's are sockets, and no other socket has a size. */
        struct stat what;
        if ((fstat(fd, &what) == 0) && S_ISSOCK(what.st_mode) &&
            (hlthunk_sys_lseek(fd, 0, SEEK_END) > 0) && (close(fd) == 0)) {
            ++closed;
        }
    }
    return closed;
}

} // namespace peer

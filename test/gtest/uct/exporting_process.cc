#include "gtest/uct/exporting_process.h"

#include "gtest/uct/fixture.h"
#include "gtest/uct/public_functions.h"

#include "common/descriptor.h"

#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::test {

exporting_process::exporting_process(child_options options)
{
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    options.inherited_fd = ends[1];
    process = std::make_unique<child_process>("exports_to_others", options);
    close(ends[1]);
    EXPECT_EQ("sent", process->read_line());
    fd = receive_descriptor(ends[0]);
    EXPECT_GE(fd, 0);
    close(ends[0]);
}

exporting_process::~exporting_process()
{
    close(fd);
}

GAUDI_CHILD(exports_to_others)
{
    constexpr size_t size = exporting_process::size;
    const opened_domain md;
    transport tl(md);
    device_buffer device(md, exporting_process::offset + size);
    std::vector<char> text(size);
    fill_pattern(text.data(), size, 9);
    tl.put(text.data(), size, device.remote(exporting_process::offset));
    int fd        = -1;
    size_t offset = 0;
    GAUDI_CHILD_REQUIRE(GAUDI_CALL(ucx_gaudi_dmabuf_export)(
                            device.data() + exporting_process::offset, size,
                            &fd, &offset) == UCS_OK);
    GAUDI_CHILD_REQUIRE(offset == exporting_process::offset);
    GAUDI_CHILD_REQUIRE(send_descriptor(child_fd, fd));
    close(fd);
    tell_parent("sent");
    wait_for_parent();
    return 0;
}

} // namespace gaudi::test

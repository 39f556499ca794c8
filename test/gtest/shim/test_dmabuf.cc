/* SPDX-License-Identifier: BSD-3-Clause */
/* Exporting device memory, and importing it on another card. */
#include "gtest/shim/fixture.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace gaudi::test;
using gaudi::shim::registration;
namespace shim = gaudi::shim;

namespace {

class shim_dmabuf : public shim_test {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(shim_test::SetUp());
        importer = open_card(hl(), 1);
        memory   = std::make_unique<device_memory>(*dev, size);
    }
    void TearDown() override
    {
        memory.reset();
        importer.reset();
        shim_test::TearDown();
    }

    int export_all() const
    {
        int fd = -1;
        EXPECT_EQ(dev->export_dmabuf(memory->va(), 0, size, fd), 0);
        return fd;
    }

    const uint64_t size = 2 * device_page();
    std::unique_ptr<shim::card> importer;
    std::unique_ptr<device_memory> memory;
};

TEST_F(shim_dmabuf, only_pages_are_exported)
{
    int fd = -1;
    for (auto [offset, length] : {std::pair<uint64_t, uint64_t>{0, 0},
                                  {0, 1},
                                  {1, 4096},
                                  {0, 4097},
                                  {size, 4096},
                                  {4096, size},
                                  {UINT64_MAX - 4095, 4096}}) {
        const bool is_part = (offset != 0) && (offset % 4096 == 0);
        EXPECT_EQ(dev->export_dmabuf(memory->va(), offset, length, fd),
                  (is_part && !dev->capabilities().exports_parts) ? -EOPNOTSUPP
                                                                  : -EINVAL)
            << offset << " " << length;
    }
    EXPECT_EQ(dev->export_dmabuf(memory->va() + 4096, 0, 4096, fd), -EINVAL)
        << "not the address of a mapping";
    EXPECT_EQ(fd, -1);
}

TEST_F(shim_dmabuf, an_import_is_the_memory_of_the_other_card)
{
    const bool parts      = dev->capabilities().exports_parts;
    const uint64_t offset = parts ? device_page() - 4096 : 0;
    const uint64_t length = parts ? 8192 : size;
    int fd                = -1;
    if (!parts) {
        EXPECT_EQ(dev->export_dmabuf(memory->va(), 4096, 8192, fd),
                  -EOPNOTSUPP);
    }
    ASSERT_EQ(dev->export_dmabuf(memory->va(), offset, length, fd), 0);
    EXPECT_EQ(importer->dmabuf_size(fd), static_cast<int64_t>(length));
    registration import;
    ASSERT_EQ(importer->import_dmabuf(fd, length, import), 0);
    close(fd);

    host_memory here(*dev, length);
    host_memory there(*importer, length);
    fill_pattern(here.data(), length, 1);
    auto down = make_queue(shim::dma_direction::host_to_device);
    ASSERT_EQ(copy(*down, memory->va() + offset, here.va(), length), 0);
    std::unique_ptr<shim::dma_queue> up;
    ASSERT_EQ(importer->make_queue(shim::dma_direction::device_to_host, {}, up),
              0);
    ASSERT_EQ(copy(*up, there.va(), import.address(), length), 0);
    EXPECT_TRUE(has_pattern(there.data(), length, 1));

    EXPECT_EQ(memory->memory.close(), -EINVAL) << "imported";
    EXPECT_EQ(import.close(), 0);
    EXPECT_EQ(import.address(), 0u);
    EXPECT_EQ(memory->memory.close(), 0);
}

TEST_F(shim_dmabuf, what_cannot_be_imported_is_told_apart)
{
    const int fd = export_all();
    registration import;
    EXPECT_EQ(importer->import_dmabuf(fd, size + 4096, import), -EINVAL)
        << "more than there is";
    const int file = memfd_create("file", MFD_CLOEXEC);
    EXPECT_EQ(importer->import_dmabuf(file, 4096, import), -EINVAL)
        << "no dma-buf";
    EXPECT_EQ(importer->dmabuf_size(file), 0);
    close(file);
    close(fd);
    EXPECT_EQ(importer->import_dmabuf(fd, size, import), -EBADF);
    EXPECT_EQ(importer->import_dmabuf(-1, size, import), -EBADF);
    EXPECT_EQ(importer->dmabuf_size(fd), -EBADF);
    EXPECT_EQ(import.address(), 0u);
}

/* Of the two descriptors it is the card's that is not open any more. */
TEST_F(shim_dmabuf, a_closed_card_is_lost_and_a_closed_dma_buf_is_not)
{
    const int fd = export_all();
    registration import;
    EXPECT_EQ(importer->import_dmabuf(-1, size, import), -EBADF);
    EXPECT_FALSE(importer->is_lost());
    hl().hlthunk_close(importer->fd());
    EXPECT_EQ(importer->import_dmabuf(fd, size, import), -ENODEV);
    EXPECT_TRUE(importer->is_lost());
    importer.reset();
    EXPECT_EQ(warnings.take().size(), 1u) << "it was closed already";
    close(fd);
}

/* A driver without peer-to-peer has EPERM for every import. */
TEST_F(shim_dmabuf, a_driver_without_peer_to_peer_is_no_refusal_of_a_pair)
{
    const int fd = export_all();
    registration import;
    {
        const wished_faults all("import=EPERM");
        EXPECT_EQ(importer->import_dmabuf(fd, size, import), -EOPNOTSUPP);
    }
    {
        const wished_faults one("import#1=EPERM");
        EXPECT_EQ(importer->import_dmabuf(fd, size, import), -EPERM);
    }
    EXPECT_EQ(importer->import_dmabuf(fd, size, import), 0);
    close(fd);
}

/* --- what other drivers are asked ----------------------------------------- */

/* What a kernel says to the import of a dma-buf. */
enum class import_by { new_number, old_number, none, unknown };

uint32_t device_id;
import_by imports;
std::string calls_made;

void note(const char *format, auto... values)
{
    char text[128];
    std::snprintf(text, sizeof(text), format, values...);
    calls_made += text;
}

const char *show(uint32_t flags)
{
    return (flags == (O_RDWR | O_CLOEXEC)) ? "rw,cloexec" : "other flags";
}

int answer_ioctl(int, unsigned long request, void *argument)
{
    const bool is_old = (request == shim::memory_ioctl_old);
    auto *arguments   = static_cast<hl_mem_args *>(argument);
    note("%s op %u fd %u length %lu\n", is_old ? "old" : "new",
         arguments->in.op, static_cast<unsigned>(arguments->in.fd),
         arguments->in.length);
    if (is_old != (imports == import_by::old_number)) {
        /* A driver may leave anything there. */
        std::memset(argument, 0xff, sizeof(*arguments));
        errno = ENOTTY;
        return -1;
    }
    if (imports == import_by::none) {
        errno = EINVAL; /* as the mainline driver */
        return -1;
    }
    *arguments                      = {};
    arguments->out.device_virt_addr = 0xfff0000000001000;
    return 0;
}

/* A card of a generation, whose driver imports or does not. */
class other_driver {
public:
    explicit other_driver(uint32_t id, import_by by, bool exports = true)
    {
        EXPECT_TRUE(lib_.usable()) << lib_.reason();
        device_id         = id;
        imports           = by;
        lib_.hlthunk_open = [](hlthunk_device_name, const char *) {
            return open("/dev/null", O_RDWR | O_CLOEXEC);
        };
        lib_.hlthunk_close          = close;
        lib_.hlthunk_get_hw_ip_info = [](int, hlthunk_hw_ip_info *info) {
            *info           = {};
            info->device_id = device_id;
            return 0;
        };
        if (exports) {
            lib_.hlthunk_device_mapped_memory_export_dmabuf_fd =
                [](int, uint64_t address, uint64_t bytes, uint64_t offset,
                   uint32_t flags) {
                    note("mapped %#lx %lu at %lu %s\n", address, bytes, offset,
                         show(flags));
                    return 78;
                };
        }
        lib_.hlthunk_sys_lseek = nullptr;
        lib_.hlthunk_sys_ioctl =
            (by == import_by::unknown) ? nullptr : answer_ioctl;
        device_ = open_card(lib_);
        (void)calls(); /* which numbers the kernel has */
    }

    static std::string calls() { return std::exchange(calls_made, ""); }

    /* What comes of 8192 bytes of a mapping, and of an import of that many. */
    int export_from(uint64_t address, uint64_t offset)
    {
        int fd        = -1;
        const int ret = device_->export_dmabuf(address, offset, 8192, fd);
        EXPECT_EQ(fd >= 0, ret == 0);
        return (ret == 0) ? fd : ret;
    }
    int import(uint64_t expected)
    {
        registration made;
        const int ret = device_->import_dmabuf(5, 8192, made);
        EXPECT_EQ(made.address(), expected);
        return ret;
    }

private:
    shim::library lib_{GAUDI_BUILD_DIR
                       "/lib/stubs/libhlthunk_stub_no_optional.so"};
    std::unique_ptr<shim::card> device_;
};

TEST(shim_dmabuf_calls, are_those_of_the_card_and_the_kernel)
{
    constexpr uint64_t mapped   = 0x1001000000000000;
    constexpr char asked_new[]  = "new op 99 fd 5 length 8192\n";
    constexpr char asked_both[] = "new op 99 fd 5 length 8192\n"
                                  "old op 99 fd 5 length 8192\n";
    const struct {
        uint32_t card;
        import_by by;
        bool has_export;
        uint64_t address;
        uint64_t offset;
        int exported;
        const char *for_export;
        int imported;
        const char *for_import;
    } rows[] = {
        /* A driver without import is recognized by what it says to a
         * descriptor of nothing. */
        {0x1020, import_by::none, true, mapped, 0, 78,
         "mapped 0x1001000000000000 8192 at 0 rw,cloexec\n", -EOPNOTSUPP,
         "new op 99 fd 5 length 8192\n"
         "new op 99 fd 4294967295 length 8192\n"},
        {0x1020, import_by::new_number, true, mapped, 4096, 78,
         "mapped 0x1001000000000000 8192 at 4096 rw,cloexec\n", 0, asked_new},
        /* Old kernels take no notice of the offset. */
        {0x1060, import_by::old_number, true, mapped, 4096, -EOPNOTSUPP, "", 0,
         asked_both},
        {0x1060, import_by::old_number, true, mapped, 0, 78,
         "mapped 0x1001000000000000 8192 at 0 rw,cloexec\n", 0, asked_both},
        /* A library can have neither. */
        {0x1020, import_by::unknown, false, mapped, 0, -EOPNOTSUPP, "",
         -EOPNOTSUPP, ""},
    };
    for (const auto &row : rows) {
        other_driver driver(row.card, row.by, row.has_export);
        EXPECT_EQ(driver.export_from(row.address, row.offset), row.exported);
        EXPECT_EQ(driver.calls(), row.for_export);
        EXPECT_EQ(driver.import((row.imported == 0) ? 0xfff0000000001000 : 0),
                  row.imported);
        EXPECT_EQ(driver.calls(), row.for_import);
    }
}

} // namespace

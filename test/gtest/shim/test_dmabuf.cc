/* Exporting device memory, and importing it on another card. */
#include "gtest/shim/fixture.h"

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
    std::unique_ptr<shim::device> importer;
    std::unique_ptr<device_memory> memory;
};

TEST_F(shim_dmabuf, every_export_is_a_new_descriptor_that_exec_closes)
{
    const int first  = export_all();
    const int second = export_all();
    EXPECT_NE(first, second);
    EXPECT_EQ(fcntl(first, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(memory->memory.close(), -EINVAL) << "alive";
    close(first);
    EXPECT_EQ(memory->memory.close(), -EINVAL) << "alive";
    close(second);
    EXPECT_EQ(memory->memory.close(), 0);
}

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

TEST_F(shim_dmabuf, an_import_ends_with_its_owner)
{
    const int fd = export_all();
    {
        registration import;
        ASSERT_EQ(importer->import_dmabuf(fd, size, import), 0);
        close(fd);
        EXPECT_EQ(memory->memory.close(), -EINVAL);
    }
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

/* --- what other drivers are asked ----------------------------------------- */

class stub_driver {
public:
    explicit stub_driver(const char *name)
        : lib_(std::string(GAUDI_BUILD_DIR "/lib/stubs/lib") + name + ".so")
    {
        EXPECT_TRUE(lib_.usable()) << lib_.reason();
        device_ = open_card(lib_);
        if (lib_.find("stub_calls") != nullptr) {
            (void)calls(); /* which numbers the kernel has */
        }
    }

    std::string calls()
    {
        return reinterpret_cast<const char *(*)()>(lib_.find("stub_calls"))();
    }

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

    [[nodiscard]] shim::device &card() const { return *device_; }

private:
    shim::library lib_;
    std::unique_ptr<shim::device> device_;
};

constexpr uint64_t mapped   = 0x1001000000000000;
constexpr uint64_t imported = 0xfff0000000001000;

TEST(shim_dmabuf_calls, gaudi_exports_physical_addresses)
{
    for (const char *name :
         {"hlthunk_stub_gaudi", "hlthunk_stub_gaudi_secure"}) {
        stub_driver driver(name);
        EXPECT_EQ(driver.export_from(0x20000000, 4096), 77);
        EXPECT_EQ(driver.calls(), "physical 0x20001000 8192 rw,cloexec\n");
    }
}

TEST(shim_dmabuf_calls, later_cards_export_mappings)
{
    stub_driver driver("hlthunk_stub_gaudi2");
    EXPECT_EQ(driver.export_from(mapped, 4096), 78);
    EXPECT_EQ(driver.calls(),
              "mapped 0x1001000000000000 8192 at 4096 rw,cloexec\n");
}

/* They take no notice of the offset. */
TEST(shim_dmabuf_calls, old_kernels_export_from_the_start_of_a_mapping)
{
    stub_driver driver("hlthunk_stub_gaudi3");
    EXPECT_EQ(driver.export_from(mapped, 4096), -EOPNOTSUPP);
    EXPECT_EQ(driver.calls(), "");
    EXPECT_EQ(driver.export_from(mapped, 0), 78);
    EXPECT_EQ(driver.calls(),
              "mapped 0x1001000000000000 8192 at 0 rw,cloexec\n");
}

TEST(shim_dmabuf_calls, a_library_can_have_no_export)
{
    for (const char *name :
         {"hlthunk_stub_no_export", "hlthunk_stub_gaudi_no_export"}) {
        EXPECT_EQ(stub_driver(name).export_from(0x20000000, 0), -EOPNOTSUPP);
    }
}

TEST(shim_dmabuf_calls, the_number_of_new_kernels_is_tried_first)
{
    stub_driver driver("hlthunk_stub_gaudi2");
    EXPECT_EQ(driver.import(imported), 0);
    EXPECT_EQ(driver.calls(), "new op 99 fd 5 length 8192\n");
}

TEST(shim_dmabuf_calls, the_number_of_old_kernels_is_tried_next)
{
    stub_driver driver("hlthunk_stub_gaudi3");
    EXPECT_EQ(driver.import(imported), 0);
    EXPECT_EQ(driver.calls(), "new op 99 fd 5 length 8192\n"
                              "old op 99 fd 5 length 8192\n");
}

TEST(shim_dmabuf_calls, a_driver_without_import_is_recognized)
{
    stub_driver driver("hlthunk_stub_gaudi");
    EXPECT_EQ(driver.import(0), -EOPNOTSUPP);
    EXPECT_EQ(driver.calls(), "new op 99 fd 5 length 8192\n"
                              "new op 99 fd 4294967295 length 8192\n");
}

/* Without the hook the kernel is asked. */
TEST(shim_dmabuf_calls, a_file_that_is_no_device_cannot_import)
{
    stub_driver driver("hlthunk_stub_no_export");
    EXPECT_EQ(driver.import(0), -EOPNOTSUPP);
    const int file = memfd_create("file", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, 12288), 0);
    EXPECT_EQ(driver.card().dmabuf_size(file), 12288);
    close(file);
    EXPECT_EQ(driver.card().dmabuf_size(file), -EBADF);
}

} // namespace

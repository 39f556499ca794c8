/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of others that a program imports, while cards are opened and closed:
 * all in children, which have opened none yet. */
#include "gtest/uct/peers.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t size   = exporting_process::size;
constexpr size_t offset = exporting_process::offset;

ucs_status_t import(void *&address)
{
    return GAUDI_CALL(ucx_gaudi_dmabuf_import)(child_fd, offset, size, nullptr,
                                               &address);
}

ucs_status_t release(void *address)
{
    return GAUDI_CALL(ucx_gaudi_dmabuf_release)(address);
}

ucs_status_t close_cards()
{
    return GAUDI_CALL(ucx_gaudi_close)();
}

bool is_open(unsigned number)
{
    ucx_gaudi_card_attr_t attr{};
    attr.field_mask = UCX_GAUDI_CARD_ATTR_FIELD_STATE;
    return (GAUDI_CALL(ucx_gaudi_card_query)(number, &attr) == UCS_OK) &&
           (attr.state == UCX_GAUDI_CARD_OPEN);
}

/* Run a child that has such a dma-buf as child_fd. */
child_result run_importer(const char *name, const char *log_level)
{
    exporting_process exporter({with_cards_of_ucx({}), -1});
    const child_result result =
        run_child(name, {logging({{"UCX_LOG_LEVEL", log_level}}).environment,
                         exporter.fd});
    exporter.process->write_line("exit");
    const child_result of_exporter = exporter.process->wait();
    EXPECT_EQ(0, of_exporter.exit_code) << of_exporter.error;
    return result;
}

} // namespace

GAUDI_CHILD(imports_and_ends_ucx)
{
    load_module();
    void *address;
    {
        const opened_domain md;
        EXPECT_EQ(UCS_OK, import(address));
    }
    GAUDI_CHILD_REQUIRE(is_open(1)); /* the exporter has the other one */
    EXPECT_EQ(UCS_ERR_BUSY, close_cards());
    std::vector<char> seen(size);
    EXPECT_EQ(UCS_OK,
              GAUDI_CALL(ucx_gaudi_mem_copy)(seen.data(), address, size));
    GAUDI_CHILD_REQUIRE(has_pattern(seen.data(), size, 9));
    EXPECT_EQ(UCS_OK, release(address));
    EXPECT_EQ(UCS_OK, close_cards());
    GAUDI_CHILD_REQUIRE(!is_open(1));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, release(address));
    EXPECT_EQ(UCS_ERR_NO_DEVICE, import(address));
    return 0;
}

TEST(program_imports, keep_the_cards_open_that_ucx_has_closed)
{
    GAUDI_NEEDS(imports);
    EXPECT_THAT(run_importer("imports_and_ends_ucx", "warn"),
                ended(0, ::testing::AllOf(
                             HasSubstr("0 allocations, 1 imports, 0 calls"),
                             ::testing::Not(HasSubstr("WARN")))));
}

GAUDI_CHILD(imports_while_cards_come_and_go)
{
    load_module();
    std::atomic<bool> done{false};
    std::atomic<unsigned> imports{0};
    std::atomic<unsigned> wrong{0};
    std::atomic<unsigned> tries{0}; /* to close the cards */
    const auto work = [&] {
        while (!done) {
            const unsigned seen       = tries;
            void *address             = nullptr;
            const ucs_status_t status = import(address);
            if (status == UCS_OK) {
                ++imports;
                ucx_gaudi_mem_attr_t attr{};
                attr.field_mask = UCX_GAUDI_MEM_ATTR_FIELD_CARD;
                wrong += (GAUDI_CALL(ucx_gaudi_mem_query)(address, size,
                                                          &attr) != UCS_OK);
                wrong += (release(address) != UCS_OK);
            } else {
                wrong += (status != UCS_ERR_NO_DEVICE);
            }
            /* Now and then nobody has an import. */
            while ((tries == seen) && !done) {
                std::this_thread::yield();
            }
        }
    };
    std::thread threads[] = {std::thread(work), std::thread(work)};
    unsigned closed       = 0;
    for (unsigned i = 0; (i < 30) || (closed < 3) || (imports < 3); ++i) {
        wrong += (GAUDI_CALL(ucx_gaudi_open)(nullptr) != UCS_OK);
        std::this_thread::yield();
        const ucs_status_t status = close_cards();
        closed += (status == UCS_OK);
        wrong += (status != UCS_OK) && (status != UCS_ERR_BUSY);
        ++tries;
    }
    done = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    GAUDI_CHILD_REQUIRE(wrong == 0);
    EXPECT_EQ(UCS_OK, close_cards());
    GAUDI_CHILD_REQUIRE(!is_open(1));
    return 0;
}

TEST(program_imports, hold_off_other_threads_that_close_the_cards)
{
    GAUDI_NEEDS(imports);
    EXPECT_THAT(run_importer("imports_while_cards_come_and_go", "fatal"),
                ended(0, IsEmpty()));
}

} // namespace gaudi::test

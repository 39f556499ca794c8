/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys that nobody should believe. They are IPC handles, too. */
#include "common/ucx_logs.h"
#include "util/process.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/fixture.h"

#include <functional>

namespace gaudi::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/* Of a process that does not exist: nobody is asked. */
class key_format : public keys_test {
protected:
    void SetUp() override
    {
        keys_test::SetUp();
        good.version = ipc::wire_version;
        good.kind    = ipc::key_kind::host;
        good.module  = ipc::no_module;
        good.place   = ipc::hashes_of(ipc::own_machine());
        good.process = util::process_identity() ^ 2;
        good.word    = 5;
        good.address = 4096;
        good.length  = 77;
        ipc::seal_key(good);
        ASSERT_EQ(unpacked(good).status, UCS_OK);
    }

    /* What becomes of a key with something changed. */
    [[nodiscard]] ucs_status_t
    with(const std::function<void(ipc::wire_key &)> &change) const
    {
        ipc::wire_key key = good;
        change(key);
        return unpacked(key).status;
    }

    void expect_refusal(const std::string &why,
                        const std::function<void(ipc::wire_key &)> &change)
    {
        EXPECT_EQ(with(change), UCS_ERR_INVALID_PARAM);
        EXPECT_THAT(take_logs(), ElementsAre(HasSubstr(why)));
    }

    ipc::wire_key good{};
};

TEST_F(key_format, keys_of_other_places_and_versions_are_unreachable)
{
    EXPECT_EQ(with([](auto &key) { key.place.machine ^= 1; }),
              UCS_ERR_UNREACHABLE);
    EXPECT_EQ(with([](auto &key) { key.version += 1; }), UCS_ERR_UNREACHABLE);

    using edit = void (*)(ipc::machine_address &);
    for (const edit change :
         {+[](ipc::machine_address &of) { of.system ^= 1; },
          +[](ipc::machine_address &of) { of.box ^= 1; },
          +[](ipc::machine_address &of) { of.net_namespace ^= 1; },
          +[](ipc::machine_address &of) { of.user_namespace ^= 1; },
          +[](ipc::machine_address &of) { of.uid ^= 1; },
          +[](ipc::machine_address &of) { of.version += 1; }}) {
        ipc::machine_address elsewhere = ipc::own_machine();
        elsewhere.folder               = 0;
        change(elsewhere);
        EXPECT_EQ(
            with([&](auto &key) { key.place = ipc::hashes_of(elsewhere); }),
            UCS_ERR_UNREACHABLE);
    }
}

/* As long as it is of the same box and version. */
TEST_F(key_format, keys_of_the_same_folder_are_reached)
{
    ipc::machine_address pod = ipc::own_machine();
    pod.folder               = 77;
    const auto own           = ipc::hashes_of(pod);
    pod.net_namespace ^= 1;
    pod.uid += 1;
    EXPECT_TRUE(own.reaches(ipc::hashes_of(pod)));
    pod.box ^= 1;
    EXPECT_FALSE(own.reaches(ipc::hashes_of(pod)));
    pod.box ^= 1;
    pod.folder = 0;
    EXPECT_FALSE(own.reaches(ipc::hashes_of(pod)));
    EXPECT_FALSE(ipc::hashes_of(pod).reaches(own));
}

TEST_F(key_format, keys_that_make_no_sense_are_none)
{
    expect_refusal("names no owner", [](auto &key) { key.process = 0; });
    expect_refusal("names no owner", [](auto &key) { key.word = 0; });
    expect_refusal("wraps around", [](auto &key) { key.length = UINT64_MAX; });
    expect_refusal("out of range", [](auto &key) { key.of_message = 2; });
    expect_refusal("out of range", [](auto &key) { key.reserved = 1; });
    expect_refusal("no kind of memory",
                   [](auto &key) { key.kind = ipc::key_kind{0}; });
    expect_refusal("no kind of memory",
                   [](auto &key) { key.kind = ipc::key_kind{3}; });
    expect_refusal("no kind of memory",
                   [](auto &key) { key.kind = ipc::key_kind{255}; });
}

/* UCP 1.13 releases what it finds there. */
TEST_F(key_format, what_is_refused_leaves_no_key)
{
    for (const ucs_status_t expected :
         {UCS_ERR_UNREACHABLE, UCS_ERR_INVALID_PARAM}) {
        const bool elsewhere = (expected == UCS_ERR_UNREACHABLE);
        ipc::wire_key key    = good;
        key.place.machine ^= elsewhere ? 1 : 0;
        key.word = elsewhere ? 1 : 0;
        ipc::seal_key(key);
        uct_rkey_bundle_t unpacked{0x5a5a5a58, &key, nullptr};
        EXPECT_EQ(uct_rkey_unpack(&ipc::component(), &key, &unpacked),
                  expected);
        EXPECT_EQ(unpacked.rkey, 0u);
        EXPECT_EQ(unpacked.handle, nullptr);
        EXPECT_EQ(uct_rkey_release(&ipc::component(), &unpacked), UCS_OK);
    }
    EXPECT_THAT(take_logs(), ElementsAre(HasSubstr("names no owner")));
}

/* But for the version, which says whether there is a checksum. */
TEST_F(key_format, every_single_bit_flip_is_noticed)
{
    for (size_t bit = 0; bit < sizeof(good) * 8; ++bit) {
        ipc::wire_key key = good;
        reinterpret_cast<unsigned char *>(&key)[bit / 8] ^=
            static_cast<unsigned char>(1u << (bit % 8));
        const bool of_version = (key.version != good.version);
        const unpacked remote(static_cast<const void *>(&key));
        EXPECT_EQ(remote.status,
                  of_version ? UCS_ERR_UNREACHABLE : UCS_ERR_INVALID_PARAM)
            << bit;
        EXPECT_EQ(take_logs().size(), of_version ? 0u : 1u);
    }
}

} // namespace

} // namespace gaudi::test

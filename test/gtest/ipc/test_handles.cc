/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles that nobody should believe, and those of processes that have gone. */
#include "gtest/ipc/fixture.h"

#include "common/ability.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "uct/gaudi/ipc/sharing/handle.h"

#include <cstring>
#include <functional>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

/* A key as read_key takes it; nobody uses it. */
ipc::wire_key make_key()
{
    ipc::wire_key key{};
    key.machine = ipc::own_machine();
    key.process = ipc::own_process();
    key.length  = 77;
    key.stamp   = 5;
    key.kind    = ipc::key_kind::host;
    ipc::seal_key(key);
    return key;
}

ipc::wire_handle parts_of(const ipc::handle_image &image)
{
    ipc::wire_handle handle;
    std::memcpy(&handle, image.data(), sizeof(handle));
    return handle;
}

} // namespace

/* Hands out a key, an empty file, and a key of another process; and none any
 * more when it is told so. */
GAUDI_CHILD(hands_out_keys)
{
    ipc::offered_key key;
    GAUDI_CHILD_REQUIRE(key.offer(make_key()) == UCS_OK);
    tell_parent(to_line(key.handle()));

    ipc::file_offer empty;
    const util::unique_fd file(memfd_create("empty", MFD_CLOEXEC));
    empty.fds[0] = file.get();
    ipc::file_ref name;
    GAUDI_CHILD_REQUIRE(ipc::file_service::add(empty, name) == UCS_OK);
    ipc::wire_handle handle = parts_of(key.handle());
    handle.file             = name;
    tell_parent(to_line(ipc::seal_handle(handle)));

    ipc::wire_key foreign = make_key();
    foreign.process.nonce ^= 2;
    ipc::seal_key(foreign);
    ipc::offered_key wrong;
    GAUDI_CHILD_REQUIRE(wrong.offer(foreign) == UCS_OK);
    handle.file = parts_of(wrong.handle()).file;
    tell_parent(to_line(ipc::seal_handle(handle)));

    (void)line_of_parent();
    GAUDI_CHILD_REQUIRE(key.offer(make_key()) == UCS_OK); /* another name */
    tell_parent("withdrawn");
    (void)line_of_parent();
    return 0;
}

/* As one who forges the handle to be of his own, too. */
GAUDI_CHILD(fetches_a_key_as_another_user)
{
    GAUDI_CHILD_REQUIRE(become_another_user());
    const auto good = from_parent<ipc::handle_image>();
    ipc::remote_process::set_timeout(0.1);
    collect_logs();
    ipc::wire_key key;
    GAUDI_CHILD_REQUIRE(ipc::fetch_key(good, key) == UCS_ERR_UNREACHABLE);
    ipc::wire_handle forged = parts_of(good);
    forged.machine          = ipc::own_machine();
    GAUDI_CHILD_REQUIRE(ipc::fetch_key(ipc::seal_handle(forged), key) !=
                        UCS_OK);
    tell_parent("refused");
    return 0;
}

namespace {

class handles : public ipc_test {
protected:
    handles() : other("hands_out_keys")
    {
        for (ipc::handle_image *each : {&good, &empty, &foreign}) {
            EXPECT_TRUE(from_line(other.read_line(), *each));
        }
    }
    ~handles() override { ipc::remote_process::set_timeout(1); }

    /* A handle with something changed. */
    [[nodiscard]] ipc::handle_image
    with(const std::function<void(ipc::wire_handle &)> &change) const
    {
        ipc::wire_handle handle = parts_of(good);
        change(handle);
        return ipc::seal_handle(handle);
    }

    /* It is refused, and one line says why. */
    static void expect(ucs_status_t status, const std::string &why,
                       const ipc::handle_image &of, int line = __builtin_LINE())
    {
        SCOPED_TRACE("line " + std::to_string(line));
        ipc::wire_key key;
        EXPECT_EQ(status, ipc::fetch_key(of, key));
        EXPECT_THAT(take_logs(), ::testing::ElementsAre(HasSubstr(why)));
    }

    void expect_good() const
    {
        ipc::wire_key key;
        ASSERT_EQ(UCS_OK, ipc::fetch_key(good, key));
        EXPECT_EQ(77u, key.length);
    }

    child_process other;
    ipc::handle_image good{};
    ipc::handle_image empty{};
    ipc::handle_image foreign{};
};

} // namespace

TEST_F(handles, that_were_changed_are_none)
{
    for (size_t at = 0; at < good.size(); ++at) {
        ipc::handle_image bad = good;
        bad[at] ^= 1;
        expect(UCS_ERR_INVALID_PARAM, "it is none, or was changed on its way",
               bad);
    }
    expect(UCS_ERR_INVALID_PARAM, "it is none", {});
    expect_good();
}

TEST_F(handles, of_other_places_are_unreachable)
{
    constexpr auto no = UCS_ERR_UNREACHABLE;
    expect(no, "on another machine",
           with([](auto &of) { of.machine.system ^= 1; }));
    expect(no, "another box", with([](auto &of) { of.machine.box ^= 1; }));
    expect(no, "another PID namespace",
           with([](auto &of) { of.machine.pid_namespace ^= 1; }));
    expect(no, "it belongs to user",
           with([](auto &of) { of.machine.uid ^= 1; }));
    expect(no, "speaks version",
           with([](auto &of) { of.machine.version += 1; }));
    expect_good();
}

TEST_F(handles, of_no_process_or_no_file_are_refused)
{
    constexpr auto ended = UCS_ERR_ENDPOINT_TIMEOUT;
    expect(ended, "has ended", with([](auto &of) { of.pid = 1; }));
    expect(ended, "has ended", with([](auto &of) { of.pid = 0x7fffffff; }));
    expect(ended, "has ended", with([](auto &of) { of.start_and_sum += 1; }));
    expect(UCS_ERR_UNREACHABLE, "gives this process nothing",
           with([](auto &of) { of.nonce ^= 2; }));
    expect(UCS_ERR_CONNECTION_RESET, "does not share the memory any more",
           with([](auto &of) { of.file.name ^= 1; }));
    expect(UCS_ERR_CONNECTION_RESET, "does not share the memory any more",
           with([](auto &of) { of.file.secret ^= 1; }));
    expect(UCS_ERR_INVALID_PARAM, "sent no key", empty);
    expect(UCS_ERR_INVALID_PARAM, "sent no key", foreign);
    expect_good();
}

TEST_F(handles, are_not_for_other_users)
{
    GAUDI_SKIP_IF(why_no_other_user());
    told_child forger("fetches_a_key_as_another_user", good, "refused");
    expect_end(forger);
}

TEST_F(handles, of_this_process_are_refused)
{
    ipc::offered_key own;
    ASSERT_EQ(UCS_OK, own.offer(make_key()));
    expect(UCS_ERR_INVALID_PARAM, "it is of this process", own.handle());
}

TEST_F(handles, end_with_what_they_are_for)
{
    expect_good();
    other.write_line("withdraw");
    ASSERT_EQ("withdrawn", other.read_line());
    expect(UCS_ERR_CONNECTION_RESET, "does not share the memory any more",
           good);
    other.kill(SIGKILL);
    (void)other.wait();
    expect(UCS_ERR_ENDPOINT_TIMEOUT, "has ended", good);
}

} // namespace gaudi::test

/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/ability.h"

#include "common/child.h"

#include <gmock/gmock.h>

#include <linux/capability.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

bool give_up_all_rights()
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    return syscall(SYS_capset, &header, none) == 0;
}

} // namespace

TEST(ability, is_denied_by_the_system_alone)
{
    EXPECT_EQ("", why_no_namespaces(0));

    forked_process without_rights([] {
        if (!give_up_all_rights()) {
            return 2;
        }
        const std::string refused = ": Operation not permitted";
        return ((why_no_namespaces(0).empty()) &&
                (why_no_namespaces(CLONE_NEWNET) == "unshare" + refused) &&
                (why_no_fewer_rights() == "PR_CAPBSET_DROP" + refused) &&
                (why_no_other_user() == "setresgid" + refused))
                   ? 0
                   : 1;
    });
    EXPECT_EQ(0, without_rights.wait().exit_code);
}

} // namespace gaudi::test

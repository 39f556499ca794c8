/**
 * The abstract name of a socket that is bound while somebody has a thing of the
 * box, and who has bound it. Any user of the network namespace can.
 */
#pragma once

#include <optional>
#include <string>

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

namespace gaudi::emu {

class abstract_name {
public:
    /** @param what  Of the box of this user that the settings name. */
    explicit abstract_name(const std::string &what);

    [[nodiscard]] const sockaddr *address() const
    {
        return reinterpret_cast<const sockaddr *>(&address_);
    }
    [[nodiscard]] socklen_t length() const { return length_; }

    /** Without the zero byte before it. */
    [[nodiscard]] const char *text() const { return address_.sun_path + 1; }

private:
    sockaddr_un address_{};
    socklen_t length_ = 0;
};

/** Ask the kernel (sock_diag(7)). @return none: nobody, or it does not say. */
std::optional<uid_t> find_binder(const abstract_name &name);

} // namespace gaudi::emu

#include "gtest/uct/fault_rules.h"

#include <sstream>
#include <string_view>

namespace gaudi::test {

namespace {

/* All that a lost card is needed for. Host memory can still be registered and
 * keys unpacked, messages go on, and freeing and closing have nothing to wait
 * for. */
constexpr unsigned any_use = allocates | copies | accesses;

const fault all_faults[] = {
    {"reset", "now=reset@0", any_use, UCS_ERR_NO_DEVICE, after::comes_back},
    {"removal", "now=remove@0", any_use, UCS_ERR_NO_DEVICE, after::is_gone},

    {"job_reset", "job=reset@0", copies, UCS_ERR_NO_DEVICE, after::comes_back},
    {"job_removal", "job=remove@0", copies, UCS_ERR_NO_DEVICE, after::is_gone},
    {"lost_job", "job=lose:50ms@0", copies, UCS_ERR_TIMED_OUT,
     after::comes_back},
    {"aborted_job", "job=abort@0", copies, UCS_ERR_IO_ERROR, after::works},
    {"late_job", "job=delay:20ms@0", copies, UCS_OK, after::works},
    {"submission", "submit=ENOMEM@0", copies, UCS_ERR_NO_MEMORY, after::works},

    {"allocation", "alloc=ENOMEM@0", allocates, UCS_ERR_NO_MEMORY,
     after::works},
    {"mapping", "map=ENOMEM@0", maps, UCS_ERR_NO_MEMORY, after::works},
    {"export", "export=EMFILE@0", exports, UCS_OK, after::works},
    {"import", "import=EPERM@0", imports, UCS_ERR_UNREACHABLE, after::works},
    /* The job goes on, and the driver is asked again. */
    {"wait", "wait#1=EFAULT@0", copies, UCS_OK, after::works},
    /* There is nothing a caller could do about these. */
    {"free", "free=EBUSY@0", frees, UCS_OK, after::works},
    {"unmapping", "unmap#1=EINVAL@0", unmaps, UCS_OK, after::works},
    {"open", "open=EIO@0", opens, UCS_OK, after::works},
    {"close", "close=reset@0", closes, UCS_OK, after::works},
};

/* Copies with engines of the card. Host memory that is not mapped goes through
 * buffers that are; both stay mapped for the next operation. */
constexpr unsigned copying         = copies | accesses;
constexpr unsigned mapping_of_host = maps | unmaps;

/* The key comes first, for which memory of the peer is imported. */
constexpr unsigned copying_to_peer = copying | imports;

constexpr told call       = told::by_call;
constexpr told completion = told::by_completion;
constexpr told endpoint   = told::by_endpoint;

const operation_rules all_rules[] = {
    /* Memory is of no use unless it is mapped. The test frees it. */
    {"alloc", allocates | maps, frees | unmaps},
    {"free", no_step, frees | unmaps},
    {"mem_reg", no_step, no_step, call, mapping_of_host},

    {"put_short", copying, no_step, call, mapping_of_host},
    {"get_short", copying, no_step, call, mapping_of_host},
    {"put_bcopy", copying, no_step, endpoint, mapping_of_host},
    {"get_bcopy", copying, no_step, completion, mapping_of_host},
    {"put_zcopy", copying, no_step, completion, mapping_of_host},
    {"put_zcopy_registered", copying, maps, completion, unmaps},
    {"get_zcopy", copying, no_step, completion, mapping_of_host},
    {"on_card", copying, no_step, completion},
    /* Cards that cannot share memory copy through the host's. */
    {"to_other_card", copying, imports, completion, mapping_of_host},
    {"from_other_card", accesses, exports, completion, mapping_of_host},
    {"flush", copying, no_step, endpoint, mapping_of_host},

    /* Operations under way may fail, but closing does not. */
    {"ep_close", no_step, copies, call, mapping_of_host},
    {"iface_close", no_step, copies | unmaps, call, maps},
    {"reopen", no_step, opens | closes | frees | unmaps},

    /* Without an export there is a key that no other process can use. */
    {"mkey_pack", no_step, exports},
    {"rkey_unpack", imports, no_step},
    {"ipc_put_host", copying_to_peer, maps, completion, unmaps},
    {"ipc_get_host", copying_to_peer, maps, completion, unmaps},
    {"ipc_put_device", copying_to_peer, no_step, completion, mapping_of_host},
    {"ipc_get_device", copying_to_peer, no_step, completion, mapping_of_host},
    {"ipc_put_short", copying_to_peer, no_step, call, mapping_of_host},
    {"ipc_put_bcopy", copying_to_peer, no_step, endpoint, mapping_of_host},
    /* The card has no part in messages. */
    {"ipc_am", no_step, no_step},
};

/* The framework allocates, maps and opens, so the transports do not. */
unsigned made_by_transports(bool beside_framework)
{
    return beside_framework ? (exports | imports | copies | accesses) : ~0u;
}

ucs_status_t error_of(const fault &what, bool beside_framework)
{
    /* It does not tell why its card has gone. */
    return (beside_framework && (what.status == UCS_ERR_TIMED_OUT))
               ? UCS_ERR_NO_DEVICE
               : what.status;
}

meeting meeting_of(const fault &what, const operation_rules &of, unsigned made)
{
    if (what.is_at_once() || (what.hits & made & (of.needs | of.can_miss))) {
        return meeting::must;
    }
    return (what.hits & made & of.sometimes) ? meeting::may : meeting::must_not;
}

} // namespace

bool fault::is_at_once() const
{
    return std::string_view(wish).starts_with("now=");
}

bool observation::is_good() const
{
    return (call == UCS_OK) && (completion == UCS_OK) && (endpoint == UCS_OK) &&
           !hangs && !is_told_twice && !is_wrong;
}

std::string to_line(const observation &seen)
{
    std::ostringstream line;
    line << int{seen.call} << " " << int{seen.completion} << " "
         << int{seen.endpoint} << " " << seen.has_met << " " << seen.hangs
         << " " << seen.is_told_twice << " " << seen.is_wrong;
    return line.str();
}

bool from_line(const std::string &line, observation &seen)
{
    std::istringstream words(line);
    int call       = 0;
    int completion = 0;
    int endpoint   = 0;
    words >> call >> completion >> endpoint >> seen.has_met >> seen.hangs >>
        seen.is_told_twice >> seen.is_wrong;
    seen.call       = static_cast<ucs_status_t>(call);
    seen.completion = static_cast<ucs_status_t>(completion);
    seen.endpoint   = static_cast<ucs_status_t>(endpoint);
    return !words.fail();
}

std::span<const fault> faults()
{
    return all_faults;
}

std::span<const operation_rules> all_operation_rules()
{
    return all_rules;
}

expectation expected(const fault &what, const operation_rules &of,
                     bool beside_framework)
{
    const unsigned made = made_by_transports(beside_framework);
    expectation wanted;
    wanted.with_fault = meeting_of(what, of, made);
    if ((what.hits & made & of.needs) == no_step) {
        return wanted;
    }
    const ucs_status_t error = error_of(what, beside_framework);
    /* Without a key nothing is begun. */
    const told by = (what.hits == imports) ? told::by_call : of.errors;
    switch (by) {
    case told::by_call:
        wanted.call = error;
        break;
    case told::by_completion:
        wanted.completion = error;
        break;
    case told::by_endpoint:
        wanted.endpoint = error;
        break;
    }
    return wanted;
}

} // namespace gaudi::test

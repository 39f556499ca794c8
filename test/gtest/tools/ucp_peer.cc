/*
 * One side of a transfer over the installed UCP; its other side is a second
 * process. Public UCP headers only.
 *
 * usage: ucp_peer sender|receiver SEND_MEMORY RECEIVE_MEMORY
 *
 * File descriptor 3 is a socket to the other side. Memory is "host" or "gaudi".
 * The receiver looks at every byte, and at those around the message; it reaches
 * device memory by messages to itself.
 */
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <ucs/memory/memory_type.h>
#include <unistd.h>

namespace {

constexpr int peer_fd      = 3;
constexpr unsigned life_s  = 60;
constexpr size_t margin    = 63; /* so that messages start at odd addresses */
constexpr ucp_tag_t tag    = 17;
constexpr ucp_tag_t to_me  = 18;
constexpr ucp_tag_t exact  = ~ucp_tag_t{0};
constexpr unsigned seed_in = 3; /* of receive buffers before the message */

constexpr size_t sizes[] = {0,     1,     7,         4097,      65535,
                            65536, 65537, 1ul << 20, 16ul << 20};

[[noreturn]] void die(const char *what, const char *why)
{
    std::fprintf(stderr, "ucp_peer: %s: %s\n", what, why);
    std::exit(1);
}

void require(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        die(what, ucs_status_string(status));
    }
}

char pattern(size_t position, unsigned seed)
{
    return static_cast<char>(((position * 2654435761u) >> 11) + seed * 101);
}

void fill(char *data, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; ++i) {
        data[i] = pattern(i, seed);
    }
}

void expect(const char *data, size_t first, size_t end, unsigned seed,
            size_t message)
{
    for (size_t i = first; i < end; ++i) {
        if (data[i] != pattern(i, seed)) {
            std::fprintf(stderr, "message of %zu: byte %zd is %d, not %d\n",
                         message, static_cast<ssize_t>(i - margin), data[i],
                         pattern(i, seed));
            std::exit(1);
        }
    }
}

/* --- the socket ------------------------------------------------------------*/

void send_bytes(const void *data, size_t size)
{
    if (write(peer_fd, data, size) != static_cast<ssize_t>(size)) {
        die("socket", "the other side is gone");
    }
}

void receive_bytes(void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t count =
            read(peer_fd, static_cast<char *>(data) + done, size - done);
        if (count <= 0) {
            die("socket", "the other side is gone");
        }
        done += static_cast<size_t>(count);
    }
}

/* --- UCP -------------------------------------------------------------------*/

ucp_context_h context;
ucp_worker_h worker;
ucp_ep_h peer;
ucp_ep_h self;

/* Both sides are here. The worker makes progress meanwhile: a message that is
 * complete on this side may still be on its way to the other. */
void barrier()
{
    char letter = '.';
    ssize_t count;
    send_bytes(&letter, 1);
    while ((count = recv(peer_fd, &letter, 1, MSG_DONTWAIT)) != 1) {
        if ((count == 0) || (errno != EAGAIN)) {
            die("socket", "the other side is gone");
        }
        ucp_worker_progress(worker);
    }
}

void finish(ucs_status_ptr_t request, const char *what)
{
    if (UCS_PTR_IS_ERR(request)) {
        require(UCS_PTR_STATUS(request), what);
    }
    if (request == nullptr) {
        return;
    }
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
    }
    ucp_request_free(request);
    require(status, what);
}

ucp_ep_h connect_to(const ucp_address_t *address)
{
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address    = address;
    ucp_ep_h ep;
    require(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
    return ep;
}

void open_ucp()
{
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG;
    ucp_config_t *config;
    require(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    require(ucp_init(&params, config, &context), "ucp_init");
    ucp_config_release(config);

    ucp_worker_params_t worker_params{};
    require(ucp_worker_create(context, &worker_params, &worker), "worker");

    ucp_address_t *mine;
    size_t length;
    require(ucp_worker_get_address(worker, &mine, &length), "address");
    send_bytes(&length, sizeof(length));
    send_bytes(mine, length);
    self = connect_to(mine);
    ucp_worker_release_address(worker, mine);

    receive_bytes(&length, sizeof(length));
    std::vector<char> other(length);
    receive_bytes(other.data(), length);
    peer = connect_to(reinterpret_cast<ucp_address_t *>(other.data()));
}

void close_ucp()
{
    const ucp_request_param_t defaults{};
    for (ucp_ep_h ep : {peer, self}) {
        finish(ucp_ep_close_nbx(ep, &defaults), "close");
    }
    barrier();
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

ucs_status_ptr_t send_to(ucp_ep_h ep, const void *data, size_t size,
                         ucp_tag_t to)
{
    const ucp_request_param_t defaults{};
    return ucp_tag_send_nbx(ep, data, size, to, &defaults);
}

ucs_status_ptr_t receive(void *data, size_t size, ucp_tag_t from)
{
    const ucp_request_param_t defaults{};
    return ucp_tag_recv_nbx(worker, data, size, from, exact, &defaults);
}

/* --- memory ----------------------------------------------------------------*/

ucs_memory_type_t memory_type(const std::string &name)
{
    for (int type = 0; type < UCS_MEMORY_TYPE_LAST; ++type) {
        if (name == ucs_memory_type_names[type]) {
            return static_cast<ucs_memory_type_t>(type);
        }
    }
    die(name.c_str(), "no such memory type");
}

class buffer {
public:
    buffer(const std::string &memory, size_t size) : size_(size)
    {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                            UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        params.length      = size;
        params.flags       = UCP_MEM_MAP_ALLOCATE;
        params.memory_type = memory_type(memory);
        require(ucp_mem_map(context, &params, &memh_), "ucp_mem_map");

        ucp_mem_attr_t attr{};
        attr.field_mask =
            UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_MEM_TYPE;
        require(ucp_mem_query(memh_, &attr), "ucp_mem_query");
        data_    = static_cast<char *>(attr.address);
        is_host_ = (attr.mem_type == UCS_MEMORY_TYPE_HOST);
        if (attr.mem_type != params.memory_type) {
            die(memory.c_str(), "is of another memory type");
        }
    }
    ~buffer() { require(ucp_mem_unmap(context, memh_), "ucp_mem_unmap"); }
    buffer(const buffer &)            = delete;
    buffer &operator=(const buffer &) = delete;

    [[nodiscard]] char *message() const { return data_ + margin; }

    void store(const char *from) { copy(data_, from); }
    void load(char *to) const { copy(to, data_); }

private:
    void copy(void *to, const void *from) const
    {
        if (is_host_) {
            std::memcpy(to, from, size_);
            return;
        }
        ucs_status_ptr_t coming = receive(to, size_, to_me);
        ucs_status_ptr_t going  = send_to(self, from, size_, to_me);
        finish(going, "message to itself");
        finish(coming, "message from itself");
    }

    size_t size_;
    ucp_mem_h memh_;
    char *data_;
    bool is_host_;
};

/* --- the transfer ----------------------------------------------------------*/

void send_message(const std::string &memory, size_t size, unsigned seed)
{
    std::vector<char> host(size + 2 * margin);
    buffer from(memory, host.size());
    fill(host.data(), host.size(), seed);
    from.store(host.data());
    barrier();
    finish(send_to(peer, from.message(), size, tag), "send");
    barrier();
    from.load(host.data());
    expect(host.data(), 0, host.size(), seed, size);
}

/* Whether the message is there before anybody wants it. */
void receive_message(const std::string &memory, size_t size, unsigned seed,
                     bool unexpected)
{
    std::vector<char> host(size + 2 * margin);
    buffer to(memory, host.size());
    fill(host.data(), host.size(), seed_in);
    to.store(host.data());

    ucs_status_ptr_t request = nullptr;
    if (unexpected) {
        const ucp_request_param_t defaults{};
        ucp_tag_recv_info_t info{};
        ucp_tag_message_h message;
        barrier();
        while ((message = ucp_tag_probe_nb(worker, tag, exact, 1, &info)) ==
               nullptr) {
            ucp_worker_progress(worker);
        }
        if (info.length != size) {
            die("probe", "the length is wrong");
        }
        request = ucp_tag_msg_recv_nbx(worker, to.message(), size, message,
                                       &defaults);
    } else {
        request = receive(to.message(), size, tag);
        barrier();
    }
    finish(request, "receive");
    barrier();

    to.load(host.data());
    expect(host.data(), 0, margin, seed_in, size);
    expect(host.data(), margin, margin + size, seed, size);
    expect(host.data(), margin + size, host.size(), seed_in, size);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 4) {
        die("usage", "ucp_peer sender|receiver SEND_MEMORY RECEIVE_MEMORY");
    }
    alarm(life_s);
    const bool sends = (std::strcmp(argv[1], "sender") == 0);
    open_ucp();

    unsigned seed = 10;
    for (const bool unexpected : {false, true}) {
        for (const size_t size : sizes) {
            ++seed;
            if (sends) {
                send_message(argv[2], size, seed);
            } else {
                receive_message(argv[3], size, seed, unexpected);
            }
        }
    }
    close_ucp();
    std::puts(sends ? "all sent" : "all received");
    return 0;
}

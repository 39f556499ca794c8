/*
 * A program that chooses its transports by itself, and sends to itself.
 *
 * usage: ucp_own_endpoint LIST [PREFIX]
 *
 * LIST, unless it is empty, is set by ucp_config_modify; PREFIX is the one of
 * its variables. Messages of host memory, as short and as long as UCP treats
 * otherwise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

static void require(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        printf("%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static void finish(ucp_worker_h worker, ucs_status_ptr_t request,
                   const char *what)
{
    if (UCS_PTR_IS_PTR(request)) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(worker);
        }
        require(ucp_request_check_status(request), what);
        ucp_request_free(request);
    } else {
        require(UCS_PTR_STATUS(request), what);
    }
}

static void exchange(ucp_worker_h worker, ucp_ep_h ep, size_t length)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    char *sent                      = malloc(length);
    char *received                  = calloc(length, 1);
    ucs_status_ptr_t receive, send;

    memset(sent, 0x5a, length);
    receive = ucp_tag_recv_nbx(worker, received, length, 1, ~0ul, &param);
    send    = ucp_tag_send_nbx(ep, sent, length, 1, &param);
    finish(worker, send, "send");
    finish(worker, receive, "receive");
    printf("%zu bytes: %s\n", length,
           memcmp(sent, received, length) ? "others" : "the same");
    free(sent);
    free(received);
}

int main(int argc, char **argv)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    const ucp_worker_params_t defaults = {.field_mask = 0};
    const ucp_request_param_t param    = {.op_attr_mask = 0};
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    ucp_config_t *config;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    size_t length;

    require(ucp_config_read((argc > 2) ? argv[2] : NULL, NULL, &config),
            "config");
    if ((argc > 1) && (argv[1][0] != '\0')) {
        require(ucp_config_modify(config, "TLS", argv[1]), "modify");
    }
    require(ucp_init(&params, config, &context), "context");
    ucp_config_release(config);
    ucp_context_print_info(context, stdout);
    require(ucp_worker_create(context, &defaults, &worker), "worker");
    require(ucp_worker_get_address(worker, &address, &length), "address");
    to.address = address;
    require(ucp_ep_create(worker, &to, &ep), "endpoint");
    exchange(worker, ep, 8);
    exchange(worker, ep, 1 << 20);
    finish(worker, ucp_ep_close_nbx(ep, &param), "close");
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}

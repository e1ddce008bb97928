/* Opens a device, makes two connected queue pairs, sends four messages in one list, and prints every call
 * that fails, every completion of the sender, what the receiver's queue ended with, the events that came,
 * and the state of both queue pairs. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 4, RECEIVES = 6 };

static char memory[4096];

/* Prints the failure of a call, and ends without what it should have made. */
static void *need(void *made, const char *call) {
    if (!made) {
        printf("%s: %s\n", call, strerrorname_np(errno));
        exit(3);
    }
    return made;
}

static int failed(int result, const char *call) {
    if (result) printf("%s: %s\n", call, strerrorname_np(result));
    return result;
}

static void connect_qp(struct ibv_qp *qp, union ibv_gid gid, uint32_t to) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    if (failed(ibv_modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
               "modify_qp"))
        exit(3);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = to,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 1}},
    };
    failed(ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
           "modify_qp");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    failed(ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
           "modify_qp");
}

static enum ibv_qp_state state_of(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) ? IBV_QPS_UNKNOWN : attr.qp_state;
}

/* Takes completions until there were so many, and prints them, or those that have failed. */
static void take(struct ibv_cq *cq, int count, const char *what, int all) {
    struct ibv_wc wc;
    while (count > 0) {
        if (ibv_poll_cq(cq, 1, &wc) != 1) continue;
        count--;
        if (all || wc.status != IBV_WC_SUCCESS)
            printf("%s %d: %s\n", what, (int)wc.wr_id, ibv_wc_status_str(wc.status));
    }
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int count;
    struct ibv_device **list = need(ibv_get_device_list(&count), "get_device_list");
    struct ibv_context *context = need(count ? ibv_open_device(list[0]) : NULL, "open_device");
    struct ibv_pd *pd = need(ibv_alloc_pd(context), "alloc_pd");
    struct ibv_comp_channel *channel = need(ibv_create_comp_channel(context), "create_comp_channel");
    struct ibv_cq *cqs[2];
    struct ibv_qp *qps[2];
    struct ibv_mr *mr = NULL;
    for (int i = 0; i < 3; i++)
        mr = need(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE), "reg_mr");
    for (int i = 0; i < 2; i++) {
        cqs[i] = need(ibv_create_cq(context, 64, NULL, channel, 0), "create_cq");
        struct ibv_qp_init_attr init = {
            .send_cq = cqs[i],
            .recv_cq = cqs[i],
            .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
            .qp_type = IBV_QPT_RC,
            .sq_sig_all = 1,
        };
        qps[i] = need(ibv_create_qp(pd, &init), "create_qp");
    }
    union ibv_gid gid;
    failed(ibv_query_gid(context, 1, 1, &gid), "query_gid");
    for (int i = 0; i < 2; i++) connect_qp(qps[i], gid, qps[1 - i]->qp_num);

    struct ibv_sge piece = {(uintptr_t)memory, 64, mr->lkey};
    int receives = 0;
    for (int i = 1; i <= RECEIVES; i++) {
        struct ibv_recv_wr work = {.wr_id = i, .sg_list = &piece, .num_sge = 1}, *bad;
        receives += !failed(ibv_post_recv(qps[1], &work, &bad), "post_recv");
    }
    struct ibv_send_wr work[MESSAGES], *bad = NULL;
    for (int i = 0; i < MESSAGES; i++)
        work[i] = (struct ibv_send_wr){.wr_id = i + 1,
                                       .next = i + 1 < MESSAGES ? &work[i + 1] : NULL,
                                       .sg_list = &piece,
                                       .num_sge = 1,
                                       .opcode = IBV_WR_SEND};
    int posted = MESSAGES;
    if (failed(ibv_post_send(qps[0], work, &bad), "post_send")) {
        posted = bad - work;
        printf("the bad one is number %d\n", posted + 1);
    }
    take(cqs[0], posted, "send", 1);
    /* A queue pair in error has flushed all of its receives. */
    if (state_of(qps[1]) == IBV_QPS_ERR) take(cqs[1], receives, "receive", 0);
    fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
    struct ibv_async_event event;
    while (!ibv_get_async_event(context, &event)) {
        if (event.event_type != IBV_EVENT_GID_CHANGE)
            printf("event: %s\n", ibv_event_type_str(event.event_type));
        ibv_ack_async_event(&event);
    }
    printf("states %d %d\n", state_of(qps[0]), state_of(qps[1]));
    return 0;
}

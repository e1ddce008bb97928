/* Traffic between queue pairs of one process, or of two of one host, and a choice of ends.
 *
 *   traffic MESSAGES END [OPENS]          two queue pairs of this process, OPENS times
 *   traffic-pair MESSAGES END             a child process sends to this one
 *   traffic-fork MESSAGES END             a child does the same as its parent, at once
 *   traffic-cleared MESSAGES END [OPENS]  as the first, without an environment
 *
 * END is return, leak (return with the device open), exit (_exit), kill (SIGKILL) or exec (this program
 * again, with END return). */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    union ibv_gid gid;
    char memory[4096];
};

struct address {
    union ibv_gid gid;
    uint32_t qpn;
};

static void need(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(3);
    }
}

static void open_end(struct end *end) {
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    need(list && count, "a device");
    end->context = ibv_open_device(list[0]);
    need(end->context != NULL, "ibv_open_device");
    ibv_free_device_list(list);
    need(!ibv_query_gid(end->context, 1, 1, &end->gid), "ibv_query_gid");
    end->pd = ibv_alloc_pd(end->context);
    end->cq = ibv_create_cq(end->context, 64, NULL, NULL, 0);
    end->mr = ibv_reg_mr(end->pd, end->memory, sizeof end->memory, IBV_ACCESS_LOCAL_WRITE);
    need(end->pd && end->cq && end->mr, "objects");
}

static void close_end(struct end *end) {
    need(!ibv_dereg_mr(end->mr) && !ibv_destroy_cq(end->cq) && !ibv_dealloc_pd(end->pd) &&
             !ibv_close_device(end->context),
         "closing");
}

static struct ibv_qp *make_qp(struct end *end) {
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    struct ibv_qp *qp = ibv_create_qp(end->pd, &init);
    need(qp != NULL, "ibv_create_qp");
    return qp;
}

static void connect_qp(struct ibv_qp *qp, struct address to) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    need(!ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
         "INIT");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = to.qpn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = to.gid, .sgid_index = 1, .hop_limit = 1}},
    };
    need(!ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    need(!ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
}

static void post_recv(struct end *end, struct ibv_qp *qp) {
    struct ibv_sge piece = {(uintptr_t)end->memory, 64, end->mr->lkey};
    struct ibv_recv_wr work = {.sg_list = &piece, .num_sge = 1}, *bad;
    need(!ibv_post_recv(qp, &work, &bad), "ibv_post_recv");
}

/* Waits for so many completions of requests of this kind. Returns 0 once one has failed. */
static int wait_for(struct end *end, int count, int is_recv) {
    struct ibv_wc wc;
    while (count > 0) {
        int polled = ibv_poll_cq(end->cq, 1, &wc);
        need(polled >= 0, "ibv_poll_cq");
        if (!polled) continue;
        if (wc.status != IBV_WC_SUCCESS) return 0;
        count -= !!(wc.opcode & IBV_WC_RECV) == is_recv;
    }
    return 1;
}

static int send_one(struct end *end, struct ibv_qp *qp) {
    struct ibv_sge piece = {(uintptr_t)end->memory + 2048, 64, end->mr->lkey};
    struct ibv_send_wr work = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    need(!ibv_post_send(qp, &work, &bad), "ibv_post_send");
    return wait_for(end, 1, 0);
}

static struct address address_of(struct end *end, struct ibv_qp *qp) {
    return (struct address){end->gid, qp->qp_num};
}

/* Sends from one queue pair of this process to another. */
static void talk(struct end *end, int messages) {
    struct ibv_qp *from = make_qp(end), *to = make_qp(end);
    connect_qp(from, address_of(end, to));
    connect_qp(to, address_of(end, from));
    for (int i = 0; i < messages; i++) post_recv(end, to);
    /* A request that fails ends it: with many losses that may happen. */
    for (int i = 0; i < messages && send_one(end, from); i++) {
    }
    need(!ibv_destroy_qp(from) && !ibv_destroy_qp(to), "ibv_destroy_qp");
}

static void finish(char **argv) {
    if (!strcmp(argv[2], "exit")) _exit(0);
    if (!strcmp(argv[2], "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(argv[2], "exec")) execl("/proc/self/exe", argv[0], argv[1], "return", NULL);
    if (strcmp(argv[2], "return") && strcmp(argv[2], "leak")) exit(4);
}

/* Receives what a child sends. */
static void pair(char **argv) {
    int messages = atoi(argv[1]), down[2], up[2];
    struct end end;
    struct address peer;
    need(!pipe(down) && !pipe(up), "pipe");
    pid_t child = fork();
    int in = child ? up[0] : down[0], out = child ? down[1] : up[1];
    open_end(&end);
    struct ibv_qp *qp = make_qp(&end);
    struct address own = address_of(&end, qp);
    need(write(out, &own, sizeof own) == sizeof own, "write");
    need(read(in, &peer, sizeof peer) == sizeof peer, "read");
    connect_qp(qp, peer);
    if (child)
        for (int i = 0; i < messages; i++) post_recv(&end, qp);
    char ready = 0;
    need(write(out, &ready, 1) == 1 && read(in, &ready, 1) == 1, "ready");
    if (!child) {
        for (int i = 0; i < messages && send_one(&end, qp); i++) {
        }
        need(write(out, &ready, 1) == 1, "done");
        need(read(in, &ready, 1) == 1, "stop");
        finish(argv);
        exit(0);
    }
    /* The child tells when it is done: with losses not all may arrive. */
    need(read(in, &ready, 1) == 1, "done");
    need(write(out, &ready, 1) == 1, "stop");
    waitpid(child, NULL, 0);
    finish(argv);
}

int main(int argc, char **argv) {
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    struct end end;
    if (argc < 3) return 2;
    if (!strcmp(name, "traffic-cleared")) need(!clearenv(), "clearenv");
    if (!strcmp(name, "traffic-pair")) {
        pair(argv);
        return 0;
    }
    pid_t child = !strcmp(name, "traffic-fork") ? fork() : -1;
    for (int opens = argc > 3 ? atoi(argv[3]) : 1; opens > 0; opens--) {
        open_end(&end);
        talk(&end, atoi(argv[1]));
        if (opens > 1 || !strcmp(argv[2], "return")) close_end(&end);
    }
    if (child > 0) waitpid(child, NULL, 0);
    finish(argv);
    return 0;
}

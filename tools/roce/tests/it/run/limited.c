/* Asks a device for what it has, tries what it may lack, and prints what each call said. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static char memory[4096];

static void say(const char *call, int failed) {
    printf("%s: %s\n", call, failed ? strerrorname_np(failed) : "ok");
}

/* errno after a call that returns a pointer. */
static int made(const void *object) {
    return object ? 0 : errno;
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t pieces, uint32_t inlined) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = pieces, .max_recv_sge = 1,
                .max_inline_data = inlined},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (qp && inlined == 0 && pieces == 1) printf("inline %s\n", init.cap.max_inline_data ? "some" : "none");
    return qp;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_device_attr device;
    int failed = ibv_query_device(context, &device);
    say("query_device", failed);
    if (!failed)
        printf("srq %s, atomics %s, sge %d, rd_atom %d %d\n", device.max_srq ? "yes" : "no",
               device.atomic_cap == IBV_ATOMIC_NONE ? "no" : "yes", device.max_sge,
               device.max_qp_rd_atom, device.max_qp_init_rd_atom);
    struct ibv_port_attr port;
    failed = ibv_query_port(context, 1, &port);
    say("query_port", failed);
    if (!failed) printf("width %d, speed %d\n", port.active_width, port.active_speed);
    union ibv_gid gid;
    say("query_gid", ibv_query_gid(context, 1, 1, &gid) ? errno : 0);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    say("resize_cq", ibv_resize_cq(cq, 32));
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    say("create_srq", made(srq));
    struct ibv_qp *four = make_qp(pd, cq, 4, 0);
    say("four pieces", made(four));
    struct ibv_qp *inlined = make_qp(pd, cq, 1, 64);
    say("64 bytes inline", made(inlined));
    struct ibv_qp *qp = make_qp(pd, cq, 1, 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 4,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}},
    };
    ibv_query_gid(context, 1, 1, &attr.ah_attr.grh.dgid);
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    failed = ibv_modify_qp(qp, &attr, mask);
    say("four READs", failed);
    attr.max_dest_rd_atomic = 1;
    if (failed) ibv_modify_qp(qp, &attr, mask);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 8, .max_rd_atomic = 1};
    ibv_modify_qp(qp, &attr,
                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                      IBV_QP_MAX_QP_RD_ATOMIC);
    struct ibv_sge word = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr add = {.sg_list = &word, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD}, *bad;
    add.wr.atomic.remote_addr = (uintptr_t)memory;
    add.wr.atomic.rkey = mr->rkey;
    say("atomic", ibv_post_send(qp, &add, &bad));
    struct ibv_qp *all[] = {four, inlined, qp};
    for (int i = 0; i < 3; i++)
        if (all[i]) ibv_destroy_qp(all[i]);
    if (srq) ibv_destroy_srq(srq);
    failed = ibv_dereg_mr(mr);
    say("dereg_mr", failed);
    if (failed) ibv_dereg_mr(mr);
    failed = ibv_dealloc_pd(pd);
    say("dealloc_pd", failed);
    return 0;
}

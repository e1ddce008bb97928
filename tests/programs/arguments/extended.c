/* The extended interface: polls by a call for each part, thread domains and parent domains. */
#include "arguments.h"
#include "check.h"
#include "endpoint.h"

void extended_polls(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 16);
	struct ibv_cq_init_attr_ex attributes = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *extended = ibv_create_cq_ex(endpoint.context, &attributes);
	CHECK(extended);
	struct ibv_poll_cq_attr poll = {.comp_mask = 0}, unknown = {.comp_mask = 1};
	CHECK_EQ(ibv_start_poll(extended, &poll), ENOENT);
	CHECK_CODE(ibv_start_poll(extended, &unknown), EINVAL);

	/* After what was refused, the queue works by either interface. */
	struct ibv_cq *plain = endpoint.cq;
	endpoint.cq = ibv_cq_ex_to_cq(extended);
	struct connection connection = connect_to_self(&endpoint, 4);
	transfer(&endpoint, &connection, 4096, 1);
	CHECK_EQ(post_recv(connection.right, &endpoint, 4096, 4096, 6), 0);
	CHECK_EQ(post_send(connection.left, &endpoint, 0, 4096, 7), 0);
	unsigned long long seen = 0;
	for (int taken = 0; taken < 2;) {
		int result = ibv_start_poll(extended, &poll);
		if (result == ENOENT)
			continue;
		CHECK_EQ(result, 0);
		do {
			CHECK_EQ(extended->status, IBV_WC_SUCCESS);
			seen += extended->wr_id;
			if (ibv_wc_read_opcode(extended) == IBV_WC_RECV)
				CHECK_EQ(ibv_wc_read_byte_len(extended), 4096);
			taken++;
		} while ((result = ibv_next_poll(extended)) == 0);
		CHECK_EQ(result, ENOENT);
		ibv_end_poll(extended);
	}
	CHECK_EQ(seen, 6 + 7);
	disconnect(&connection);
	CHECK_EQ(ibv_destroy_cq(endpoint.cq), 0);
	endpoint.cq = plain;
	close_endpoint(&endpoint);
}

void domains(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 16);
	struct ibv_td_init_attr unknown = {.comp_mask = 1}, attributes = {.comp_mask = 0};
	CHECK_NULL(ibv_alloc_td(endpoint.context, &unknown), EINVAL);
	struct ibv_td *td = ibv_alloc_td(endpoint.context, &attributes);
	CHECK(td);
	struct ibv_parent_domain_init_attr wrong = {.td = td};
	CHECK_NULL(ibv_alloc_parent_domain(endpoint.context, &wrong), EINVAL);
	wrong = (struct ibv_parent_domain_init_attr){.pd = endpoint.pd, .comp_mask = 1u << 31};
	CHECK_NULL(ibv_alloc_parent_domain(endpoint.context, &wrong), EINVAL);
	struct ibv_parent_domain_init_attr right = {.pd = endpoint.pd, .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(endpoint.context, &right);
	CHECK(parent && parent != endpoint.pd);

	/* The domains inside are in use as long as the parent domain. */
	CHECK_CODE(ibv_dealloc_td(td), EBUSY);
	CHECK_CODE(ibv_dealloc_pd(endpoint.pd), EBUSY);
	struct ibv_pd *pd = endpoint.pd;
	endpoint.pd = parent;
	struct connection connection = connect_to_self(&endpoint, 4);
	CHECK_CODE(ibv_dealloc_pd(parent), EBUSY);
	transfer(&endpoint, &connection, 4096, 2);
	disconnect(&connection);
	CHECK_EQ(ibv_dealloc_pd(parent), 0);
	endpoint.pd = pd;
	CHECK_EQ(ibv_dealloc_td(td), 0);
	close_endpoint(&endpoint);
}

#include "striped.h"

#include <unistd.h>

#include "check.h"

int open_rails(struct rail rails[MAX_RAILS])
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list);
	CHECK(count > 0 && count <= MAX_RAILS);
	for (int i = 0; i < count; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);
		CHECK(context);
		rails[i].number = i;
		open_endpoint_of(&rails[i].end, context, (size_t)RECEIVES * MESSAGE, 2 * RECEIVES);
	}
	ibv_free_device_list(list);
	return count;
}

void renew(struct rail *rail)
{
	struct ibv_wc wc[16];
	if (rail->qp)
		CHECK_EQ(ibv_destroy_qp(rail->qp), 0);
	/* Completions of the one before. */
	while (ibv_poll_cq(rail->end.cq, 16, wc) > 0) {
	}
	rail->qp = make_qp(&rail->end, RECEIVES);
	CHECK_EQ(to_init(rail->qp), 0);
}

static struct ibv_port_attr port_of(const struct rail *rail)
{
	struct ibv_port_attr port;
	CHECK_EQ(ibv_query_port(rail->end.context, 1, &port), 0);
	return port;
}

void join(struct rail *rail, const struct word *other)
{
	enum ibv_mtu mtu = port_of(rail).active_mtu;
	/* The link may be down: then there is no way yet, and the rail is tried again. */
	if (to_rtr_with(rail->qp, &rail->end, &other->gid, other->qpn, mtu) != 0) {
		CHECK_EQ(ibv_destroy_qp(rail->qp), 0);
		rail->qp = NULL;
		return;
	}
	CHECK_EQ(to_rts(rail->qp, TIMEOUT, RETRIES), 0);
}

struct word word_of(const struct rail *rail)
{
	return (struct word){
		.kind = CONNECT,
		.rail = rail->number,
		.qpn = rail->qp ? rail->qp->qp_num : 0,
		.gid = rail->end.gid,
	};
}

bool is_active(const struct rail *rail)
{
	return port_of(rail).state == IBV_PORT_ACTIVE;
}

void tell(int socket, const struct word *word)
{
	CHECK_EQ(write(socket, word, sizeof *word), sizeof *word);
}

struct word hear(int socket)
{
	struct word word;
	size_t got = 0;
	while (got < sizeof word) {
		ssize_t more = read(socket, (char *)&word + got, sizeof word - got);
		CHECK(more > 0);
		got += (size_t)more;
	}
	return word;
}

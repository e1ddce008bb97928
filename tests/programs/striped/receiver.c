#include "striped.h"

#include <poll.h>
#include <stdio.h>

#include "check.h"

struct receiver {
	/* A bit for each message that has come. */
	unsigned char *seen;
	size_t size;
	uint64_t distinct, twice;
};

static void post(struct rail *rail, int slot)
{
	CHECK_EQ(post_recv(rail->qp, &rail->end, slot * MESSAGE, MESSAGE, slot), 0);
}

static void note(struct receiver *receiver, uint64_t number)
{
	size_t byte = number / 8, bit = 1u << number % 8;
	if (byte >= receiver->size) {
		size_t size = 2 * byte + 4096;
		CHECK(receiver->seen = realloc(receiver->seen, size));
		memset(receiver->seen + receiver->size, 0, size - receiver->size);
		receiver->size = size;
	}
	if (receiver->seen[byte] & bit)
		receiver->twice++;
	else
		receiver->distinct++;
	receiver->seen[byte] |= bit;
}

static void poll_rail(struct receiver *receiver, struct rail *rail)
{
	struct ibv_wc wc[RECEIVES];
	int count = ibv_poll_cq(rail->end.cq, RECEIVES, wc);
	CHECK(count >= 0);
	for (int i = 0; i < count; i++) {
		/* The sender renews the queue pair. */
		if (wc[i].status != IBV_WC_SUCCESS)
			continue;
		CHECK_EQ(wc[i].byte_len, MESSAGE);
		const unsigned char *message = rail->end.buffer + wc[i].wr_id * MESSAGE;
		uint64_t number;
		memcpy(&number, message, sizeof number);
		CHECK(is_filled(message + sizeof number, MESSAGE - sizeof number, (unsigned)number));
		note(receiver, number);
		post(rail, (int)wc[i].wr_id);
	}
}

void receive_all(int socket, struct rail *rails, int count)
{
	struct receiver receiver = {0};
	for (;;) {
		for (int i = 0; i < count; i++) {
			if (rails[i].qp)
				poll_rail(&receiver, &rails[i]);
		}
		struct pollfd fd = {.fd = socket, .events = POLLIN};
		CHECK(poll(&fd, 1, 0) >= 0);
		if (!fd.revents)
			continue;
		struct word word = hear(socket);
		if (word.kind == DONE) {
			/* What came since the last look. */
			for (int i = 0; i < count; i++) {
				if (rails[i].qp)
					poll_rail(&receiver, &rails[i]);
			}
			printf("received %llu messages, %llu of them twice\n",
			       (unsigned long long)receiver.distinct, (unsigned long long)receiver.twice);
			CHECK_EQ(receiver.distinct, word.total);
			return;
		}
		CHECK(word.rail >= 0 && word.rail < count);
		struct rail *rail = &rails[word.rail];
		if (rail->qp)
			poll_rail(&receiver, rail);
		renew(rail);
		for (int slot = 0; slot < RECEIVES; slot++)
			post(rail, slot);
		join(rail, &word);
		struct word answer = word_of(rail);
		answer.rail = word.rail;
		tell(socket, &answer);
	}
}

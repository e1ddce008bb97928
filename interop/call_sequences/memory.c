/* Calls on protection domains, memory regions, memory windows and address handles. */
#define _GNU_SOURCE
#include "sequences.h"

#include <string.h>

static void alloc_pd(void)
{
	int place = free_pd();
	call("ibv_alloc_pd");
	arg("place=%s", index_name('d', place));
	if (place < 0) {
		result_text("skipped");
	} else {
		t.pds[place] = ibv_alloc_pd(t.context);
		result_pointer(t.pds[place]);
		if (t.pds[place])
			out("context=%d", t.pds[place]->context == t.context);
	}
	end_call();
}

static void dealloc_pd(void)
{
	int pd = some_pd();
	call("ibv_dealloc_pd");
	arg("pd=%s", index_name('d', pd));
	if (pd >= 0) {
		int code = ibv_dealloc_pd(t.pds[pd]);
		result_code(code);
		if (!code)
			t.pds[pd] = NULL;
	}
	end_call();
}

/* Rights: mostly usual ones, else any bits. */
static uint32_t some_access(void)
{
	switch (pick(10)) {
	case 0:
		return 0;
	case 1:
		return IBV_ACCESS_REMOTE_WRITE; /* without the local right */
	case 2:
		return IBV_ACCESS_REMOTE_ATOMIC;
	case 3:
		return IBV_ACCESS_LOCAL_WRITE;
	case 4:
		return IBV_ACCESS_REMOTE_READ;
	case 5:
		return 1u << pick(32);
	case 6:
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
	default:
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	}
}

static void print_region(const struct region *region)
{
	const struct ibv_mr *mr = region->mr;
	out("lkey=%s rkey=%s offset=%ld length=%zu pd=%d", named('K', mr->lkey), named('K', mr->rkey),
	    (long)((uint8_t *)mr->addr - region->memory), mr->length, mr->pd == t.pds[region->pd]);
}

static void reg_mr(void)
{
	int place = free_region(), pd = some_pd();
	uint32_t access = some_access(), form = pick(4);
	size_t length = ONE_OF(BUFFER, BUFFER, BUFFER, 4096, 1, 0, BUFFER - 1);
	size_t offset = length == BUFFER ? 0 : ONE_OF(0, 0, 1, 4095);
	if (length + offset > BUFFER)
		offset = 0;
	call(form == 0 ? "ibv_reg_mr_iova" : "ibv_reg_mr");
	arg("place=%s pd=%s length=%zu offset=%zu access=%#x", index_name('m', place), index_name('d', pd), length,
	    offset, access);
	if (place < 0 || pd < 0) {
		result_text("skipped");
	} else {
		struct region *region = &t.regions[place];
		uint8_t *start = region->memory + offset;
		region->pd = pd;
		region->access = access;
		/* With another address of access the sequence could not name it by the memory's. */
		region->mr = form == 0 ? ibv_reg_mr_iova(t.pds[pd], start, length, (uintptr_t)start, (int)access)
				       : ibv_reg_mr(t.pds[pd], start, length, (int)access);
		result_pointer(region->mr);
		if (region->mr)
			print_region(region);
	}
	end_call();
}

/* Memory that is not there, or that may only be read. */
static void reg_bad_mr(void)
{
	int pd = some_pd();
	uint32_t form = pick(4);
	static const uint8_t constant[4096] = { 1 };
	void *start = form == 0 ? NULL : form == 1 ? (void *)constant : form == 2 ? (void *)(uintptr_t)-4096 : (void *)8;
	size_t length = ONE_OF(1, 4096, 4096, 4096);
	uint32_t access = chance(50) ? 0 : IBV_ACCESS_LOCAL_WRITE;
	call("ibv_reg_mr");
	arg("pd=%s start=%s length=%zu access=%#x", index_name('d', pd),
	    (const char *[]){ "NULL", "read-only", "end", "8" }[form], length, access);
	if (pd >= 0) {
		struct ibv_mr *mr = ibv_reg_mr(t.pds[pd], start, length, (int)access);
		result_pointer(mr);
		if (mr)
			out("dereg=%s", errno_name(ibv_dereg_mr(mr)));
	}
	end_call();
}

static void dereg_mr(void)
{
	int place = some_region();
	call("ibv_dereg_mr");
	arg("mr=%s", index_name('m', place));
	if (place >= 0) {
		int code = ibv_dereg_mr(t.regions[place].mr);
		result_code(code);
		if (!code)
			t.regions[place].mr = NULL;
	}
	end_call();
}

static void rereg_mr(void)
{
	int place = some_region(), pd = some_pd();
	uint32_t flags = ONE_OF(IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION, 0, 7, 8, 1u << 31);
	uint32_t access = some_access();
	call("ibv_rereg_mr");
	arg("mr=%s pd=%s flags=%#x access=%#x", index_name('m', place), index_name('d', pd), flags, access);
	if (place >= 0 && pd >= 0) {
		struct region *region = &t.regions[place];
		int code = ibv_rereg_mr(region->mr, (int)flags, t.pds[pd], region->memory, BUFFER, (int)access);
		if (code < 0)
			result_text((const char *[]){ "input", "do-not-fork", "do-fork", "command", "command-and-fork" }[-1 - code]);
		else
			result_code(code);
		if (!code) {
			if (flags & IBV_REREG_MR_CHANGE_PD)
				region->pd = pd;
			if (flags & IBV_REREG_MR_CHANGE_ACCESS)
				region->access = access;
			print_region(region);
		}
	}
	end_call();
}

static void alloc_mw(void)
{
	int place = free_window(), pd = some_pd();
	uint32_t type = ONE_OF(IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_MW_TYPE_2, 0, 3, 255);
	call("ibv_alloc_mw");
	arg("place=%s pd=%s type=%u", index_name('w', place), index_name('d', pd), type);
	if (place >= 0 && pd >= 0) {
		struct ibv_mw *mw = ibv_alloc_mw(t.pds[pd], (enum ibv_mw_type)type);
		t.windows[place] = mw;
		result_pointer(mw);
		if (mw)
			out("pd=%d type=%u rkey=%s", mw->pd == t.pds[pd], mw->type, named('W', mw->rkey));
	}
	end_call();
}

static void dealloc_mw(void)
{
	int place = some_window();
	call("ibv_dealloc_mw");
	arg("mw=%s", index_name('w', place));
	if (place >= 0) {
		int code = ibv_dealloc_mw(t.windows[place]);
		result_code(code);
		if (!code)
			t.windows[place] = NULL;
	}
	end_call();
}

static void advise_mr(void)
{
	int pd = some_pd(), region = some_region();
	uint32_t advice = ONE_OF(IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, 99);
	call("ibv_advise_mr");
	arg("pd=%s mr=%s advice=%u", index_name('d', pd), index_name('m', region), advice);
	if (pd >= 0 && region >= 0) {
		struct ibv_sge sge = { (uintptr_t)t.regions[region].memory, 1, t.regions[region].mr->lkey };
		result_code(ibv_advise_mr(t.pds[pd], advice, 0, &sge, 1));
	}
	end_call();
}

static void create_ah(void)
{
	int place = free_handle(), pd = some_pd();
	struct ibv_ah_attr attributes;
	uint32_t form = pick(18);
	set_address_handle(&attributes);
	switch (form) {
	case 0: attributes.port_num = 0; break;
	case 1: attributes.port_num = 2; break;
	case 2: attributes.is_global = 0; break;
	case 3: attributes.grh.sgid_index = 200; break;
	case 4: attributes.sl = 8; break;
	case 5: attributes.sl = 255; break;
	case 6: attributes.grh.hop_limit = 0; break;
	case 7: attributes.grh.traffic_class = 255; break;
	case 8: attributes.grh.flow_label = 0xfffffff; break;
	case 9: memset(&attributes.grh.dgid, 0, 16); break;
	case 10: attributes.static_rate = 255; break;
	case 11: attributes.dlid = 77; break;
	case 12: attributes.src_path_bits = 127; break;
	default: form = 99;
	}
	call("ibv_create_ah");
	arg("place=%s pd=%s form=%u", index_name('a', place), index_name('d', pd), form);
	if (place >= 0 && pd >= 0) {
		t.handles[place] = ibv_create_ah(t.pds[pd], &attributes);
		result_pointer(t.handles[place]);
		if (t.handles[place])
			out("pd=%d", t.handles[place]->pd == t.pds[pd]);
	}
	end_call();
}

static void destroy_ah(void)
{
	int place = some_handle();
	call("ibv_destroy_ah");
	arg("ah=%s", index_name('a', place));
	if (place >= 0) {
		int code = ibv_destroy_ah(t.handles[place]);
		result_code(code);
		if (!code)
			t.handles[place] = NULL;
	}
	end_call();
}

const struct step memory_steps[] = {
	{ alloc_pd, 2 },   { dealloc_pd, 2 }, { reg_mr, 8 },    { reg_bad_mr, 2 }, { dereg_mr, 2 },   { rereg_mr, 2 },
	{ alloc_mw, 3 },   { dealloc_mw, 2 }, { advise_mr, 1 }, { create_ah, 3 },  { destroy_ah, 1 }, { 0 },
};

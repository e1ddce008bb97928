/* Loads libibverbs as programs do that are not linked with it: with dlopen and dlvsym, the names and
 * versions that NCCL asks for. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#include "check.h"

struct symbol {
	const char *name, *version;
	/* Null where the loader goes on without it. */
	bool is_optional;
};

static const struct symbol symbols[] = {
	{"ibv_get_device_list", "IBVERBS_1.1", false},
	{"ibv_free_device_list", "IBVERBS_1.1", false},
	{"ibv_get_device_name", "IBVERBS_1.1", false},
	{"ibv_open_device", "IBVERBS_1.1", false},
	{"ibv_close_device", "IBVERBS_1.1", false},
	{"ibv_get_async_event", "IBVERBS_1.1", false},
	{"ibv_ack_async_event", "IBVERBS_1.1", false},
	{"ibv_query_device", "IBVERBS_1.1", false},
	{"ibv_query_port", "IBVERBS_1.1", false},
	{"ibv_query_gid", "IBVERBS_1.1", false},
	{"ibv_query_qp", "IBVERBS_1.1", false},
	{"ibv_alloc_pd", "IBVERBS_1.1", false},
	{"ibv_dealloc_pd", "IBVERBS_1.1", false},
	{"ibv_reg_mr", "IBVERBS_1.1", false},
	{"ibv_dereg_mr", "IBVERBS_1.1", false},
	{"ibv_create_cq", "IBVERBS_1.1", false},
	{"ibv_destroy_cq", "IBVERBS_1.1", false},
	{"ibv_create_qp", "IBVERBS_1.1", false},
	{"ibv_modify_qp", "IBVERBS_1.1", false},
	{"ibv_destroy_qp", "IBVERBS_1.1", false},
	{"ibv_fork_init", "IBVERBS_1.1", false},
	{"ibv_event_type_str", "IBVERBS_1.1", false},
	{"ibv_reg_mr_iova2", "IBVERBS_1.8", true},
	{"ibv_reg_dmabuf_mr", "IBVERBS_1.12", true},
	{"ibv_query_ece", "IBVERBS_1.10", true},
	{"ibv_set_ece", "IBVERBS_1.10", true},
	{"ibv_query_port_speed", "IBVERBS_1.16", true},
};

/* Opens the library by the names that NCCL tries. */
static void *open_library(void)
{
	void *library = dlopen("libibverbs.so", RTLD_NOW);
	if (!library)
		library = dlopen("libibverbs.so.1", RTLD_NOW);
	CHECK(library);
	return library;
}

static void *find(void *library, const char *name, const char *version)
{
	void *found = dlvsym(library, name, version);
	if (!found)
		check_failed(__FILE__, __LINE__, name);
	return found;
}

static void all_symbols(void)
{
	void *library = open_library();
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		/* The optional ones are there, too. */
		find(library, symbols[i].name, symbols[i].version);
		CHECK(!dlvsym(library, symbols[i].name, "IBVERBS_9.9"));
	}
	CHECK(!dlvsym(library, "ibv_no_such_function", "IBVERBS_1.1"));
	CHECK_EQ(dlclose(library), 0);
}

/* What the functions say in the calls that NCCL makes to learn what a device can do. */
static void probes(void)
{
	void *library = open_library();
	struct ibv_device **(*get_list)(int *) = find(library, "ibv_get_device_list", "IBVERBS_1.1");
	void (*free_list)(struct ibv_device **) =
		find(library, "ibv_free_device_list", "IBVERBS_1.1");
	const char *(*name_of)(struct ibv_device *) =
		find(library, "ibv_get_device_name", "IBVERBS_1.1");
	struct ibv_context *(*open)(struct ibv_device *) =
		find(library, "ibv_open_device", "IBVERBS_1.1");
	int (*close)(struct ibv_context *) = find(library, "ibv_close_device", "IBVERBS_1.1");
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *) =
		find(library, "ibv_query_device", "IBVERBS_1.1");
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *) =
		find(library, "ibv_query_port", "IBVERBS_1.1");
	struct ibv_pd *(*alloc_pd)(struct ibv_context *) =
		find(library, "ibv_alloc_pd", "IBVERBS_1.1");
	int (*dealloc_pd)(struct ibv_pd *) = find(library, "ibv_dealloc_pd", "IBVERBS_1.1");
	struct ibv_mr *(*reg_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned) =
		find(library, "ibv_reg_mr_iova2", "IBVERBS_1.8");
	int (*dereg)(struct ibv_mr *) = find(library, "ibv_dereg_mr", "IBVERBS_1.1");
	struct ibv_mr *(*reg_dmabuf)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) =
		find(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
	int (*fork_init)(void) = find(library, "ibv_fork_init", "IBVERBS_1.1");

	CHECK_EQ(fork_init(), 0);
	int count = 0;
	struct ibv_device **list = get_list(&count);
	CHECK(list && count > 0);
	CHECK(strlen(name_of(list[0])) > 0);
	struct ibv_context *context = open(list[0]);
	CHECK(context);
	free_list(list);
	struct ibv_device_attr device;
	CHECK_EQ(query_device(context, &device), 0);
	CHECK_EQ(device.phys_port_cnt, 1);

	/* The exported function writes the older, shorter structure. */
	struct {
		struct ibv_port_attr port;
		unsigned char beyond[16];
	} guarded;
	memset(&guarded, 0xa5, sizeof(guarded));
	CHECK_EQ(query_port(context, 1, &guarded.port), 0);
	CHECK_EQ(guarded.port.link_layer, IBV_LINK_LAYER_ETHERNET);
	size_t written = offsetof(struct ibv_port_attr, port_cap_flags2);
	for (const unsigned char *byte = (unsigned char *)&guarded + written;
	     byte < guarded.beyond + sizeof(guarded.beyond); byte++)
		CHECK_EQ(*byte, 0xa5);

	/* A descriptor of -1: EBADF where the kernel could, EOPNOTSUPP where it cannot. */
	struct ibv_pd *pd = alloc_pd(context);
	CHECK(pd);
	CHECK_NULL(reg_dmabuf(pd, 0, 0, 0, -1, 0), EOPNOTSUPP);
	static char buffer[4096];
	struct ibv_mr *mr = reg_iova2(pd, buffer, sizeof(buffer), (uintptr_t)buffer,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	CHECK_EQ(dereg(mr), 0);
	CHECK_EQ(dealloc_pd(pd), 0);
	CHECK_EQ(close(context), 0);
	CHECK_EQ(dlclose(library), 0);
}

/* Names that bindings look up without a version, private ones too. */
static void without_versions(void)
{
	void *library = open_library();
	struct ibv_device **(*get_list)(int *) = dlsym(library, "ibv_get_device_list");
	void (*free_list)(struct ibv_device **) = dlsym(library, "ibv_free_device_list");
	struct ibv_context *(*open)(struct ibv_device *) = dlsym(library, "ibv_open_device");
	int (*close)(struct ibv_context *) = dlsym(library, "ibv_close_device");
	int (*gid_type)(struct ibv_context *, uint8_t, unsigned, int *) =
		dlsym(library, "ibv_query_gid_type");
	int (*gid_ex)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t,
		      size_t) = dlsym(library, "_ibv_query_gid_ex");
	CHECK(get_list && free_list && open && close && gid_ex);
	CHECK(gid_type);
	CHECK(dlsym(library, "_ibv_query_gid_table"));
	CHECK(dlsym(library, "ibv_cmd_query_device_any"));
	CHECK(dlsym(library, "verbs_allow_disassociate_destroy"));
	struct ibv_device **list = get_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = open(list[0]);
	CHECK(context);
	free_list(list);
	/* As the enumeration of rdma-core's driver.h, and that of verbs.h. */
	enum { ROCE_V1_OF_DRIVER, ROCE_V2_OF_DRIVER };
	int type = -1;
	CHECK_EQ(gid_type(context, 1, 0, &type), 0);
	CHECK_EQ(type, ROCE_V2_OF_DRIVER);
	struct ibv_gid_entry entry;
	CHECK_EQ(gid_ex(context, 1, 0, &entry, 0, sizeof(entry)), 0);
	CHECK_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	CHECK_MINUS_ONE(gid_type(context, 2, 0, &type), EINVAL);
	CHECK_EQ(close(context), 0);
	CHECK_EQ(dlclose(library), 0);
}

static void again_and_again(void)
{
	for (int i = 0; i < 200; i++) {
		void *library = open_library();
		find(library, symbols[i % 22].name, "IBVERBS_1.1");
		CHECK_EQ(dlclose(library), 0);
	}
}

/* A context survives the handle that its functions were found with. */
static void with_an_open_context(void)
{
	for (int i = 0; i < 20; i++) {
		void *library = open_library();
		struct ibv_device **(*get_list)(int *) =
			find(library, "ibv_get_device_list", "IBVERBS_1.1");
		void (*free_list)(struct ibv_device **) =
			find(library, "ibv_free_device_list", "IBVERBS_1.1");
		struct ibv_context *(*open)(struct ibv_device *) =
			find(library, "ibv_open_device", "IBVERBS_1.1");
		int (*close)(struct ibv_context *) =
			find(library, "ibv_close_device", "IBVERBS_1.1");
		int (*query_device)(struct ibv_context *, struct ibv_device_attr *) =
			find(library, "ibv_query_device", "IBVERBS_1.1");
		struct ibv_device **list = get_list(NULL);
		CHECK(list && list[0]);
		struct ibv_context *context = open(list[0]);
		CHECK(context);
		free_list(list);
		CHECK_EQ(dlclose(library), 0);
		struct ibv_device_attr device;
		CHECK_EQ(query_device(context, &device), 0);
		/* Left open at times: the process ends with it. */
		if (i % 4)
			CHECK_EQ(close(context), 0);
	}
}

static const struct scenario scenarios[] = {
	{"all-symbols", all_symbols},
	{"probes", probes},
	{"without-versions", without_versions},
	{"again-and-again", again_and_again},
	{"with-an-open-context", with_an_open_context},
};

int main(int argc, char **argv)
{
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

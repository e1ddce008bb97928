/* Devices, texts, and what is asked about a device. */
#include <arpa/inet.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

/* Exported, but declared in a header for providers alone. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size);
const char *ibv_get_sysfs_path(void);

void devices_and_texts(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	CHECK(strlen(ibv_get_device_name(list[0])) > 0);
	CHECK(ibv_get_device_guid(list[0]) != 0);
	CHECK(ibv_get_device_index(list[0]) >= -1);
	/* A device may be opened without the list that it was in. */
	struct ibv_device *device = list[0];
	struct ibv_context *one = ibv_open_device(device);
	CHECK(one);
	struct ibv_context *two = ibv_open_device(device);
	CHECK(two && two != one);
	ibv_free_device_list(list);
	CHECK_EQ(ibv_close_device(one), 0);
	CHECK_EQ(ibv_close_device(two), 0);

	CHECK_EQ(strcmp(ibv_wc_status_str(9999), "unknown"), 0);
	CHECK_EQ(strcmp(ibv_wc_status_str(-1), "unknown"), 0);
	CHECK_EQ(strcmp(ibv_event_type_str(9999), "unknown"), 0);
	CHECK_EQ(strcmp(ibv_event_type_str(-1), "unknown"), 0);
	CHECK_EQ(strcmp(ibv_node_type_str(9999), "unknown"), 0);
	CHECK(strlen(ibv_port_state_str(9999)) > 0);
	CHECK_EQ(ibv_rate_to_mult(9999), -1);
	CHECK_EQ(ibv_rate_to_mbps(9999), -1);
	CHECK_EQ(mult_to_ibv_rate(7777), IBV_RATE_MAX);
	CHECK_EQ(mbps_to_ibv_rate(7777), IBV_RATE_MAX);
	CHECK_EQ(ibv_fork_init(), 0);
	CHECK(ibv_is_fork_initialized() != IBV_FORK_DISABLED);
}

void queries(void)
{
	struct endpoint endpoint;
	struct ibv_port_attr port;
	struct ibv_device_attr_ex device;
	struct ibv_query_device_ex_input input = {.comp_mask = 1};
	struct ibv_gid_entry entry, entries[256];
	union ibv_gid gid;
	__be16 pkey = 0;
	open_endpoint(&endpoint, 4096, 4);
	struct ibv_context *context = endpoint.context;

	CHECK_CODE(ibv_query_port(context, 0, &port), EINVAL);
	CHECK_CODE(ibv_query_port(context, 2, &port), EINVAL);
	CHECK_CODE(ibv_query_port(context, 255, &port), EINVAL);
	CHECK_EQ(ibv_query_port(context, 1, &port), 0);
	CHECK_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
	CHECK_EQ(ibv_query_device_ex(context, &input, &device), EINVAL);
	CHECK_EQ(ibv_query_device_ex(context, NULL, &device), 0);
	CHECK_EQ(device.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
	/* As mlx5: nothing is asked, all that there is, or more than there is. */
	struct ibv_values_ex values = {.comp_mask = 0, .raw_clock = {.tv_sec = -1}};
	CHECK_EQ(ibv_query_rt_values_ex(context, &values), 0);
	CHECK(values.comp_mask == 0 && values.raw_clock.tv_sec == -1);
	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	CHECK_EQ(ibv_query_rt_values_ex(context, &values), 0);
	CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && values.raw_clock.tv_sec >= 0);
	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | 2;
	CHECK_EQ(ibv_query_rt_values_ex(context, &values), EINVAL);

	CHECK_EQ(ibv_query_gid(context, 2, 0, &gid), -1);
	CHECK_EQ(ibv_query_gid(context, 0, 0, &gid), -1);
	CHECK_EQ(ibv_query_gid(context, 1, -1, &gid), -1);
	CHECK_EQ(ibv_query_gid(context, 1, port.gid_tbl_len, &gid), -1);
	CHECK_EQ(ibv_query_gid(context, 1, 1 << 20, &gid), -1);
	/* An empty row is no error, but is one for the newer function. */
	CHECK_EQ(ibv_query_gid(context, 1, port.gid_tbl_len - 1, &gid), 0);
	CHECK_EQ(gid.global.interface_id, 0);
	CHECK_CODE(ibv_query_gid_ex(context, 1, port.gid_tbl_len - 1, &entry, 0), ENODATA);
	CHECK_CODE(ibv_query_gid_ex(context, 1, port.gid_tbl_len, &entry, 0), EINVAL);
	CHECK_CODE(ibv_query_gid_ex(context, 2, 0, &entry, 0), EINVAL);
	CHECK_CODE(ibv_query_gid_ex(context, 1, endpoint.gid_index, &entry, 1), EINVAL);
	CHECK_EQ(-ibv_query_gid_table(context, entries, 256, 1), EINVAL);
	CHECK(ibv_query_gid_table(context, entries, 0, 0) < 0);
	CHECK(ibv_query_gid_table(context, entries, 256, 0) > 0);

	CHECK_EQ(ibv_query_pkey(context, 1, port.pkey_tbl_len, &pkey), -1);
	CHECK_EQ(errno, ENOENT);
	CHECK_EQ(ibv_query_pkey(context, 1, -1, &pkey), -1);
	CHECK_EQ(ibv_query_pkey(context, 2, 0, &pkey), -1);
	CHECK_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
	CHECK_EQ(ntohs(pkey), 0xffff);
	CHECK_EQ(ibv_get_pkey_index(context, 1, pkey), 0);
	CHECK_EQ(ibv_get_pkey_index(context, 1, htons(0x1234)), -1);
	CHECK_EQ(ibv_get_pkey_index(context, 2, pkey), -1);

	char text[64];
	CHECK_EQ(ibv_read_sysfs_file("/sys/class/infiniband/no_such_device", "fw_ver", text,
				     sizeof(text)),
		 -1);
	CHECK(strlen(ibv_get_sysfs_path()) > 0);
	close_endpoint(&endpoint);
}

void unsupported(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 4);
	struct connection connection = connect_to_self(&endpoint, 4);
	struct ibv_ece ece = {.vendor_id = 1};
	CHECK_CODE(ibv_set_ece(connection.left, &ece), EOPNOTSUPP);
	CHECK_CODE(ibv_query_ece(connection.left, &ece), EOPNOTSUPP);

	struct ibv_xrcd_init_attr xrcd = {.comp_mask = 3, .fd = -1, .oflags = 0100};
	CHECK_NULL(ibv_open_xrcd(endpoint.context, &xrcd), EOPNOTSUPP);
	struct ibv_flow_attr flow = {.num_of_specs = 0, .port = 1, .size = sizeof(flow)};
	CHECK_NULL(ibv_create_flow(connection.left, &flow), EOPNOTSUPP);
	struct ibv_counters_init_attr counters = {.comp_mask = 0};
	CHECK_NULL(ibv_create_counters(endpoint.context, &counters), EOPNOTSUPP);
	struct ibv_wq_init_attr wq = {.wq_type = IBV_WQT_RQ,
				      .max_wr = 4,
				      .max_sge = 1,
				      .pd = endpoint.pd,
				      .cq = endpoint.cq};
	CHECK_NULL(ibv_create_wq(endpoint.context, &wq), EOPNOTSUPP);
	struct ibv_rwq_ind_table_init_attr table = {.log_ind_tbl_size = 0};
	CHECK_NULL(ibv_create_rwq_ind_table(endpoint.context, &table), EOPNOTSUPP);
	struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1000};
	CHECK_EQ(ibv_modify_qp_rate_limit(connection.left, &rate), EOPNOTSUPP);
	CHECK(!ibv_import_device(-1));
	disconnect(&connection);
	close_endpoint(&endpoint);
}

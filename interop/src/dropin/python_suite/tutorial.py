"""What tutorials of pyverbs show: a queue pair, connected to itself and ready to send."""

from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

try:
    import pyverbs.enums as e
except ModuleNotFoundError:
    # Newer releases have the members in their enumerations.
    import pyverbs.libibverbs_enums as enumerations

    class e:
        pass

    for enumeration in vars(enumerations).copy().values():
        for name, member in getattr(enumeration, "__members__", {}).items():
            setattr(e, name, member)

name = get_device_list()[0].name.decode()
with Context(name=name) as context:
    pd = PD(context)
    cq = CQ(context, 16, None, None, 0)
    mr = MR(pd, 8192, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
    cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap)
    attributes = QPAttr(port_num=1)
    attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
    qp = QP(pd, init, attributes)
    attributes.dest_qp_num = qp.qp_num
    attributes.path_mtu = e.IBV_MTU_1024
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
    attributes.min_rnr_timer = 12
    attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
    route = GlobalRoute(dgid=context.query_gid(1, 1), sgid_index=1)
    attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    qp.to_rts(attributes)
    print(f"memory of {mr.length} bytes, key {mr.rkey:#x}")
    print(f"queue pair {qp.qp_num:#x} is in state {qp.query(e.IBV_QP_STATE)[0].qp_state}")

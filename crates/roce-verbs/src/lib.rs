//! The objects people program RDMA with: device, PD, MR, CQ, QP.

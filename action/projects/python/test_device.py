"""A suite as those that use the action have: on pyverbs."""

import pyverbs.device as d
from pyverbs.mr import MR
from pyverbs.pd import PD
import pyverbs.enums as e


def test_the_device_has_an_active_port():
    with d.Context(name=d.get_device_list()[0].name.decode()) as context:
        assert context.query_port(1).state == e.IBV_PORT_ACTIVE


def test_memory_is_registered_and_written():
    with d.Context(name=d.get_device_list()[0].name.decode()) as context:
        with PD(context) as pd, MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE) as mr:
            mr.write("hello", 5)
            assert mr.read(5, 0) == b"hello"

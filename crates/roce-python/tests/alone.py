"""Properties of the module that need no network."""

import contextlib
import io
import os
import signal
import socket
import threading
import time
import unittest

import numpy as np
import roce


class Alone(unittest.TestCase):
    def test_a_group_of_one_computes_on_short_and_long_arrays(self):
        with roce.Group(0, 1) as group:
            for count in (3, 1_000_000):
                mine = np.arange(count, dtype="float64")
                found = np.zeros_like(mine)
                self.assertIs(group.all_reduce(mine, found, op="avg"), found)
                np.testing.assert_array_equal(found, mine)
                found[:] = 0
                np.testing.assert_array_equal(group.all_gather(mine, found), mine)
                np.testing.assert_array_equal(group.all_to_all(mine, np.zeros_like(mine)), mine)
            self.assertEqual(repr(group), "<roce.Group rank 0 of 1 on >")
            group.barrier()
        group.leave()
        with self.assertRaises(roce.GroupEndedError):
            group.barrier()

    def test_errors_say_whose_fault_they_are(self):
        for rank, size, root, kind in (
            (2, 2, "127.0.0.1:0", roce.UsageError),
            (0, None, None, roce.UsageError),
            (0, 2, None, roce.UsageError),
            (0, 1, "192.0.2.1:1", roce.HostError),
        ):
            with self.assertRaises(kind) as raised:
                roce.Group(rank, size, root, timeout=0.2)
            self.assertIsInstance(raised.exception, roce.Error)
        with self.assertRaises(roce.PeerError):
            roce.Group(1, 2, "127.0.0.1:1", interfaces=["lo"], timeout=0.2)
        with self.assertRaises(roce.UsageError):
            roce.Group(0, 1, timeout=-1.0)

    def test_rank_0_learns_its_address_before_it_waits(self):
        told = []
        with self.assertRaises(roce.PeerError):
            roce.Group(
                0, 2, "127.0.0.1:0", interfaces=["lo"], timeout=0.2, on_listen=told.append
            )
        host, port = told[0].rsplit(":", 1)
        self.assertEqual(host, "127.0.0.1")
        self.assertGreater(int(port), 0)

    def test_control_c_ends_the_wait_for_other_ranks(self):
        # At rank 0, and where rank 0 listens but does not answer, so that connecting itself takes long.
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            address = "127.0.0.1:%d" % full.getsockname()[1]
            others = [socket.socket() for _ in range(4)]
            for other in others:
                other.setblocking(False)
                other.connect_ex(full.getsockname())
            for rank, root in ((0, "127.0.0.1:0"), (1, address)):
                begin = time.monotonic()
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                with self.assertRaises(KeyboardInterrupt):
                    roce.Group(rank, 2, root, interfaces=["lo"], timeout=600)
                self.assertLess(time.monotonic() - begin, 2)
            for other in others:
                other.close()

    def test_mistakes_of_this_host_are_told_before_other_ranks_are_waited_for(self):
        for options in ({"interfaces": ["nosuch0"]}, {"interfaces": ["lo"], "gid_index": 200}):
            for rank in (0, 1):
                begin = time.monotonic()
                with self.assertRaises(roce.Error) as raised:
                    roce.Group(rank, 2, "127.0.0.1:0" if rank == 0 else "127.0.0.1:1", timeout=600, **options)
                self.assertNotIsInstance(raised.exception, roce.PeerError)
                self.assertLess(time.monotonic() - begin, 2)

    def test_a_rank_that_waits_says_for_which_others(self):
        for rank, root, expected in (
            (0, "127.0.0.1:0", "roce: rank 0 waits for ranks 1, 2 at 127.0.0.1:"),
            (1, "127.0.0.1:1", "roce: rank 1 waits for rank 0 at 127.0.0.1:1: "),
            (1, "nohost.invalid:1", "roce: rank 1 waits for rank 0 at nohost.invalid:1: "),
        ):
            printed = io.StringIO()
            with contextlib.redirect_stderr(printed), self.assertRaises(roce.PeerError):
                roce.Group(rank, 3, root, interfaces=["lo"], timeout=1.6)
            self.assertIn(expected, printed.getvalue())

    def test_an_array_of_no_dimension_is_refused_with_what_to_do(self):
        with roce.Group(0, 1) as group, self.assertRaises(roce.UsageError) as raised:
            group.all_reduce(np.array(3.0))
        self.assertEqual(str(raised.exception), "the output has no dimension; use output.reshape(1)")

    def test_the_environment_of_a_launcher_names_the_rank(self):
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
        try:
            with roce.Group() as group:
                self.assertEqual((group.rank, group.size), (0, 1))
        finally:
            for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                del os.environ[name]
        with self.assertRaises(roce.UsageError):
            roce.Group()

    def test_files_of_a_package_that_is_not_installed_are_not_found(self):
        with self.assertRaises(FileNotFoundError):
            roce.library_path()


if __name__ == "__main__":
    unittest.main()

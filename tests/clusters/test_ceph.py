"""The Ceph cluster of the tests: objects while an OSD is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.clusters.ceph import POOL, binding_directory, ceph_cluster
from tests.server import environment

pytestmark = pytest.mark.long

_CLIENT = """
import sys
import rados
settings = {"rados_osd_op_timeout": "30"}
with rados.Rados(conffile=sys.argv[1], conf=settings) as cluster:
    with cluster.open_ioctx(sys.argv[2]) as pool:
        if sys.argv[3] == "write":
            for number in range(100):
                pool.write_full(f"object{number}", b"x" * 4096)
        for number in range(100):
            assert pool.read(f"object{number}") == b"x" * 4096
"""


def test_objects_are_written_and_read_while_an_osd_is_missing() -> None:
    with ceph_cluster() as cluster:
        binding = binding_directory(cluster.directory)

        def use(mode: str) -> None:
            # librados would start threads in the process of pytest.
            subprocess.run(
                [sys.executable, "-c", _CLIENT, str(cluster.configuration), POOL, mode],
                check=True,
                timeout=60,
                env={**environment(), "PYTHONPATH": str(binding)},
            )

        use("write")
        cluster.kill_osd(0)
        use("write")
        cluster.start_osd(0)
        cluster.await_osds()
        cluster.pause_osd(1)
        use("read")
        cluster.resume_osd(1)
        cluster.await_healthy()

"""A sweep on a real Ray cluster of two nodes, one of which dies in the middle."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_a_node_dies_and_nothing_is_lost(
    tmp_path: Path, cluster: Any, repositories: Callable[[int], list[Path]], command: Callable[..., list[str]]
) -> None:
    doomed = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    folders = repositories(7)
    lines = [*folders[:5], f"{folders[5]} gpus=1", f"{folders[6]} gpus=2"]
    child = subprocess.Popen(
        command(lines, "--ray", cluster.address),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    records = tmp_path / "out" / "records"
    end = time.monotonic() + 90
    while time.monotonic() < end and len(list(records.glob("*.json"))) < 2:
        time.sleep(0.05)
    cluster.remove_node(doomed, allow_graceful=False)
    before = len(list(records.glob("*.json")))
    _, err = child.communicate(timeout=200)

    assert child.returncode == 1, err
    assert 2 <= before < 7
    results = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [r["entry"]["location"] for r in results] == [str(folder) for folder in folders]
    assert Counter(r["state"] for r in results) == {"done": 6, "failed": 1}, results
    assert all(r["findings"] == {"fixable": 1} for r in results[:6])
    assert results[6]["reason"] == "asks for 2 GPUs, no node of the cluster has more than 1"
    assert len(list(records.glob("*.json"))) == 7


def test_no_cluster_is_one_clear_line(repositories: Callable[[int], list[Path]], sweep: Callable[..., Any]) -> None:
    done = sweep(repositories(1), "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "no cluster answers" in done.stderr
    assert "Traceback" not in done.stderr

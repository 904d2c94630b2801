"""What a rank was built from; ranks that differ are named, fact by fact."""

import pytest
import torch

from trainer.expert_parallel.manifest import differences, own_manifest


def test_a_manifest_tells_the_build_and_the_environment_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NET", "AWS Libfabric")
    monkeypatch.setenv("NCCL_DEBUG_FILE", "/tmp/rank0.log")
    monkeypatch.setenv("HOME_OF_NOBODY", "x")
    manifest = own_manifest({"mode": "gloo", "transport": "tcp"})

    assert manifest["torch"] == torch.__version__
    assert manifest["mode"] == "gloo"
    assert manifest["env.NCCL_NET"] == "AWS Libfabric"
    assert not {"env.NCCL_DEBUG_FILE", "env.HOME_OF_NOBODY"} & set(manifest)
    assert manifest == own_manifest({"transport": "tcp", "mode": "gloo"})


def test_equal_ranks_differ_in_nothing() -> None:
    assert differences([{"nccl": "2.31.2"}] * 3) == []


def test_a_rank_that_differs_or_lacks_something_is_named() -> None:
    ranks = [{"nccl": "2.31.2", "nics": "16"}, {"nccl": "2.31.2", "nics": "16"}, {"nccl": "2.28.9"}]

    assert differences(ranks) == [
        "nccl: rank 0 has 2.31.2, rank 2 has 2.28.9",
        "nics: rank 0 has 16, rank 2 has missing",
    ]


def test_many_ranks_with_the_same_other_value_are_one_line() -> None:
    assert differences([{"a": "1"}, *[{"a": "2"}] * 50]) == ["a: rank 0 has 1, rank 1 has 2"]

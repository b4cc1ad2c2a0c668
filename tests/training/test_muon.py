"""The Muon optimizer, against PyTorch's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training: torch is not installed (requirements/training.txt)")

from training.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(48, 96), (96, 48), (64, 64)])
def test_steps_match_pytorch(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    began = torch.randn(shape)
    ours, theirs = torch.nn.Parameter(began.clone()), torch.nn.Parameter(began.clone())
    options = {"lr": 1e-2, "weight_decay": 0.1}
    own = Muon([ours], **options)
    pytorchs = torch.optim.Muon([theirs], adjust_lr_fn="match_rms_adamw", **options)
    for _ in range(4):
        gradient = torch.randn(shape)
        for matrix, optimizer in ((ours, own), (theirs, pytorchs)):
            matrix.grad = gradient.clone()
            optimizer.step()
    moved = (theirs - began).norm()
    assert (ours - theirs).norm() < 0.01 * moved  # bfloat16 has eight bits


def test_resumes_from_pytorch_state() -> None:
    matrix = torch.nn.Parameter(torch.randn(8, 16))
    matrix.grad = torch.randn(8, 16)
    before = torch.optim.Muon([matrix], lr=1e-2)
    before.step()
    after = Muon([matrix], lr=1e-2, weight_decay=0.1)
    after.load_state_dict(before.state_dict())
    assert torch.equal(after.state[matrix]["momentum_buffer"], before.state[matrix]["momentum_buffer"])


def test_singular_values_become_about_1() -> None:
    torch.manual_seed(2)
    values = torch.linalg.svdvals(orthogonal(torch.randn(64, 128)))
    assert values.min() > 0.6
    assert values.max() < 1.3

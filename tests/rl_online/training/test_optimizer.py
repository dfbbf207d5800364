import pytest
import torch
from torch.nn import Parameter

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.optimizer import MasterOptimizer, join_master, split_master


def optimizer_for(values, dtype=torch.bfloat16, **config):
    parameter = Parameter(torch.tensor(values, dtype=dtype))
    return parameter, MasterOptimizer([("w", parameter)], UpdateConfig(**config))


def learn(parameter, optimizer, gradient, **options):
    (parameter.float() * torch.tensor(gradient)).sum().backward()
    return optimizer.step(**options)


def test_every_master_is_its_weight_and_its_low_bits_exactly():
    bits = torch.randint(-(2**31), 2**31 - 1, (200_000,), generator=torch.Generator().manual_seed(0))
    masters = bits.to(torch.int32).view(torch.float32)
    masters = torch.cat([masters[masters.abs() < 1e38], torch.tensor([0.0, -0.0, 1.00390625, -1.01171875, 1e-40])])
    weight, low = split_master(masters)
    assert torch.equal(join_master(weight, low).view(torch.int32), masters.view(torch.int32))


def test_the_weight_is_the_nearest_bfloat16():
    masters = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    weight, _ = split_master(masters)
    assert (weight.float() - masters).abs().max() <= ((masters.bfloat16().float() - masters).abs()).max()


def test_the_first_step_moves_each_master_by_the_learning_rate_against_the_gradient():
    parameter, optimizer = optimizer_for([1.0, -2.0], learning_rate=1e-3, grad_clip=100.0)
    assert learn(parameter, optimizer, [3.0, -4.0]) == (True, 5.0)
    assert optimizer.masters["w"].tolist() == pytest.approx([1.0 - 1e-3, -2.0 + 1e-3], abs=1e-6)


def test_steps_too_small_for_bfloat16_add_up_in_the_master():
    parameter, optimizer = optimizer_for([1.0], learning_rate=1e-4)
    for _ in range(100):
        learn(parameter, optimizer, [1.0])
    assert optimizer.masters["w"].item() == pytest.approx(0.99, abs=1e-4)
    assert parameter.item() == pytest.approx(0.99, abs=2**-8)


def test_micro_batch_gradients_add_up_in_fp32():
    parameter, optimizer = optimizer_for([1.0])
    for gradient in (1.0, 2**-10):
        (parameter.float() * gradient).sum().backward()
    assert optimizer.gradients["w"].item() == 1.0 + 2**-10  # in bfloat16 the sum would be 1


@pytest.mark.parametrize("gradient", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(gradient):
    parameter, optimizer = optimizer_for([1.0, 2.0])
    is_applied, _ = learn(parameter, optimizer, [gradient, 1.0])
    assert (is_applied, optimizer.step_count, parameter.tolist()) == (False, 0, [1.0, 2.0])
    assert learn(parameter, optimizer, [1.0, 1.0])[0]


def test_a_discarded_gradient_is_gone():
    parameter, optimizer = optimizer_for([1.0])
    assert learn(parameter, optimizer, [1.0], discard=True)[0] is False
    assert optimizer.step() == (False, 0.0)


def test_clipping_scales_the_whole_gradient_to_the_limit():
    parameter, optimizer = optimizer_for([1.0, 1.0], grad_clip=1.0)
    learn(parameter, optimizer, [30.0, 40.0])
    moments = optimizer.optimizers[0].state[optimizer.masters["w"]]["exp_avg"]
    assert moments.tolist() == pytest.approx([0.06, 0.08], rel=1e-5)  # (1 - .9) * [.6, .8]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_stopping_and_going_on_gives_the_same_bits_as_never_stopping(tmp_path, dtype):
    torch.manual_seed(0)
    gradients = torch.randn(6, 50).tolist()
    start = torch.randn(50).tolist()
    parameter, straight = optimizer_for(start, dtype, learning_rate=1e-3)
    for gradient in gradients:
        learn(parameter, straight, gradient)
    first_parameter, first = optimizer_for(start, dtype, learning_rate=1e-3)
    for gradient in gradients[:3]:
        learn(first_parameter, first, gradient)
    first.save(tmp_path)
    second_parameter, second = optimizer_for(first_parameter.tolist(), dtype, learning_rate=1e-3)
    second.load(tmp_path, first.step_count)
    for gradient in gradients[3:]:
        learn(second_parameter, second, gradient)
    assert torch.equal(second_parameter, parameter)
    assert torch.equal(second.masters["w"], straight.masters["w"])
    assert second.step_count == straight.step_count == 6


def test_memory_that_runs_out_while_a_gradient_is_collected_leaves_none_behind(monkeypatch):
    parameter, optimizer = optimizer_for([1.0])
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "float", out_of_memory)
        with pytest.raises(MemoryError):
            (parameter * 3.0).sum().backward()
    (parameter * 3.0).sum().backward()
    assert (optimizer.gradients["w"].item(), parameter.grad) == (3.0, None)


def out_of_memory(tensor):
    raise MemoryError

"""What the shipped catalog says, against facts about torch that are settled elsewhere."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from deinplace.catalog import FunctionInfo, MethodInfo, load


def method(name: str) -> MethodInfo:
    found = load().method(name)
    assert found is not None
    return found


def function(name: str) -> FunctionInfo:
    found = load().function(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh", "exp", "sqrt", "softmax", "log_softmax", "rsqrt"])
def test_these_save_their_result_and_not_their_input(name: str) -> None:
    assert method(name).saves == function(f"torch.{name}").saves == {"result"}
    assert method(name).saves_result


@pytest.mark.parametrize("name", ["add", "sub", "view", "sum", "mean", "cumsum", "reshape", "transpose", "neg"])
def test_these_save_nothing(name: str) -> None:
    assert method(name).ran
    assert not method(name).saves


@pytest.mark.parametrize("name", ["mul", "div", "matmul", "__mul__", "__truediv__", "__matmul__"])
def test_products_save_both_factors(name: str) -> None:
    assert method(name).saves == {"self", "other"}
    assert method(name).saves_argument(1)
    assert not method(name).saves_alone


def test_functions_save_what_their_formula_needs() -> None:
    assert function("torch.nn.functional.leaky_relu").saves == {"input"}
    assert function("torch.nn.functional.leaky_relu").saves_inplace == {"result"}
    assert function("torch.nn.functional.relu").saves == {"result"}
    assert function("torch.nn.functional.conv2d").saves == {"input", "weight"}
    assert {"input", "weight"} <= function("torch.nn.functional.batch_norm").saves
    assert function("torch.nn.functional.gelu").saves == function("torch.nn.functional.silu").saves == {"input"}
    assert "self" in method("pow").saves_alone
    assert not function("torch.cat").saves
    assert not function("torch.stack").saves


def test_modules_save_what_their_functions_do() -> None:
    catalog = load()
    names = ("ReLU", "LeakyReLU", "Conv2d", "Linear", "Sigmoid", "Softmax", "GELU", "Dropout")
    saves = {name: entry.saves for name in names if (entry := catalog.module(f"torch.nn.{name}"))}
    assert saves == {
        "ReLU": {"result"},
        "LeakyReLU": {"input"},
        "Conv2d": {"input", "weight"},
        "Linear": {"input", "weight"},
        "Sigmoid": {"result"},
        "Softmax": {"result"},
        "GELU": {"input"},
        "Dropout": frozenset(),
    }
    relu = catalog.module("torch.nn.ReLU")
    assert relu is not None
    assert relu.functional == "torch.nn.functional.relu"
    assert relu.saves_inplace == {"result"}


def test_twins_agree_only_where_running_them_agreed() -> None:
    for name in ("add_", "mul_", "relu_", "clamp_", "masked_fill_", "index_put_", "t_", "squeeze_"):
        assert (method(name).twin, method(name).twin_exact) == (name[:-1], True)
    for name in ("gt_", "eq_", "logical_not_"):
        assert (method(name).twin, method(name).twin_keeps_dtype) == (name[:-1], False)
        assert not method(name).twin_exact
    assert method("bernoulli_").twin is None
    assert method("bernoulli_").namesake == "bernoulli"
    assert method("normal_").twin is None
    for name in ("uniform_", "exponential_", "random_", "geometric_", "cauchy_", "log_normal_", "normal_"):
        assert (method(name).twin, method(name).random) == (None, True), name
    assert not any(method(name).random for name in ("zero_", "add_", "copy_", "fill_"))
    assert method("add_").twin_promotes
    assert method("mul_").twin_promotes
    assert method("fill_").twin == "torch.fill"


def test_effects_tell_data_from_metadata_and_autograd_state() -> None:
    effects = {n: method(n).effect for n in ("add_", "zero_", "relu_", "copy_", "squeeze_", "t_", "resize_", "set_")}
    assert effects == dict.fromkeys(("add_", "zero_", "relu_", "copy_"), "data") | dict.fromkeys(
        ("squeeze_", "t_", "resize_", "set_"), "metadata"
    )
    assert method("detach_").effect == method("requires_grad_").effect == method("retain_grad").effect == "autograd"
    assert method("share_memory_").effect == method("as_strided_").effect == "metadata"
    assert not method("detach_").writes
    assert method("add_").writes == ("self",)
    assert method("add").effect == "none"
    assert not method("add").in_place


def test_results_are_views_copies_or_either() -> None:
    assert {n: method(n).returns for n in ("view", "transpose", "T", "detach", "data", "expand")} == dict.fromkeys(
        ("view", "transpose", "T", "detach", "data", "expand"), "view"
    )
    assert {method(n).returns for n in ("chunk", "split", "unbind", "tensor_split")} == {"views"}
    for name in ("contiguous", "to", "reshape", "float", "double", "half", "long", "flatten", "cpu", "cuda", "ravel"):
        assert method(name).returns == "maybe_alias", name
    assert {method(n).returns for n in ("clone", "add", "exp", "__add__")} == {"fresh"}
    assert {method(n).returns for n in ("item", "tolist", "size", "numpy")} == {"other"}
    assert method("add_").returns == method("detach_").returns == "self"
    assert method("numpy").aliases == ("self",)
    assert method("__getitem__").returns == "maybe_alias"
    assert function("torch.from_numpy").aliases
    assert function("torch.chunk").returns == "views"
    assert function("torch.chunk").aliases == ("input",)


def test_factories_make_fresh_tensors() -> None:
    for name in ("zeros", "ones", "rand", "randn", "empty", "full", "arange", "eye", "tensor"):
        assert (function(f"torch.{name}").factory, function(f"torch.{name}").returns) == (True, "fresh"), name
    assert not function("torch.relu").factory


def test_augmented_operators_rebind_only_where_tensor_has_no_method() -> None:
    augmented = load().augmented
    assert len(augmented) == 13
    assert {symbol for symbol, entry in augmented.items() if entry.method is None} == {"@="}
    for entry in augmented.values():
        if entry.in_place is not None:
            assert entry.in_place.effect == "data"
            assert entry.in_place.returns == "self"
            assert entry.in_place.twin == entry.plain.name
    assert augmented["*="].plain.saves == {"self", "other"}
    assert not augmented["+="].plain.saves
    assert augmented["+="].in_place is not None
    assert augmented["+="].in_place.twin_promotes


def test_operators_say_what_their_schemas_write() -> None:
    catalog = load()
    add = catalog.operator("aten::add_.Tensor")
    assert add is not None
    assert add.writes == ("self",)
    assert add.positions == (0,)
    assert not add.out
    foreach = catalog.operator("aten::_foreach_add_.Scalar")
    assert foreach is not None
    assert foreach.writes == ("self",)
    out = catalog.operator("aten::topk.values")
    assert out is not None
    assert out.out
    assert out.writes == ("values", "indices")
    assert out.positions == (5, 6)
    split = catalog.operator("aten::split.Tensor")
    assert split is not None
    assert split.aliases == ("self",)
    assert split.many
    assert not split.writes
    assert catalog.operator("aten::no_such_operator") is None


def test_batch_norm_writes_its_running_statistics() -> None:
    assert function("torch.nn.functional.batch_norm").writes == ("running_mean", "running_var")


def test_unknown_names_are_none() -> None:
    catalog = load()
    assert catalog.method("no_such_method") is None
    assert catalog.function("torch.no_such") is None
    assert catalog.module("torch.nn.No") is None


def test_positions_and_keywords_name_parameters() -> None:
    conv = function("torch.nn.functional.conv2d")
    assert conv.parameter(1) == "weight"
    assert conv.parameter(9, "bias") == "bias"
    assert conv.saves_argument(0)
    assert not conv.saves_argument(2)


def test_loading_needs_no_torch_and_takes_milliseconds() -> None:
    code = (
        "import sys, time; from deinplace.catalog import load; start = time.perf_counter();"
        "catalog = load(); catalog.method('add_'); catalog.augmented; print(time.perf_counter() - start);"
        "assert not {'torch', 'libcst', 'numpy'} & set(sys.modules)"
    )
    # The best of three: a busy machine slows single runs down.
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 0.1


def test_building_every_entry_is_quick() -> None:
    start = time.perf_counter()
    catalog = load()
    built = [*catalog.methods(), *catalog.functions(), *catalog.modules(), *catalog.operators()]
    assert len(built) > 4000
    assert time.perf_counter() - start < 1.0


def test_operations_with_several_results_say_which_of_them_gradients_leave() -> None:
    top = method("topk").outputs
    assert top is not None
    assert (top.differentiable, top.names, top.saves) == ((True, False), ("values", "indices"), {"result1"})
    assert top.always
    best = function("torch.max").outputs
    assert best is not None
    assert best.saves == {"result1"}, "with `dim`; without, the largest value is kept, too"
    assert not best.always
    assert function("torch.nn.functional.max_pool2d").outputs != top
    assert not any(f.outputs and f.outputs.always for f in load().functions() if "return_indices" in f.parameters)


def test_views_and_lists_are_no_outputs() -> None:
    for name in ("torch.chunk", "torch.split", "torch.unbind", "torch.split_with_sizes_copy", "torch.meshgrid"):
        assert function(name).outputs is None

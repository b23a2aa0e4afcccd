from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_transformer_engine import FP8, fake_library

from cp_matrix.suites.reference.layout import Layout
from cp_matrix.suites.transformer_engine import precision
from cp_matrix.suites.transformer_engine.problem import Fp8, problem_of

CPU = torch.device("cpu")
GROUP: Any = "all ranks"


def fp8_of(**changed: Any) -> Fp8:
    fp8 = problem_of(FP8 | changed).fp8
    assert fp8 is not None
    return fp8


@pytest.mark.parametrize(
    ("scaling", "recipe", "options"),
    [
        ("delayed", "DelayedScaling", {"fp8_dpa": True, "fp8_mha": False}),
        ("current", "Float8CurrentScaling", {"fp8_dpa": True, "fp8_mha": False}),
        ("mxfp8", "MXFP8BlockScaling", {"fp8_dpa": True, "fp8_mha": False, "fp8_format": "E4M3"}),
    ],
)
def test_a_recipe_is_made_for_each_scaling(scaling: str, recipe: str, options: dict[str, Any]) -> None:
    library = fake_library()
    with precision.region(library, fp8_of(scaling_mode=scaling), GROUP):
        assert library.recipe.log[0] == (recipe, (), options)


def test_a_recipe_knows_of_fp8_inputs() -> None:
    library = fake_library()
    with precision.region(library, fp8_of(scaling_mode="delayed", fp8_mha=True), GROUP):
        assert library.recipe.log[0][2] == {"fp8_dpa": True, "fp8_mha": True}


def test_scales_are_agreed_upon_by_the_whole_group() -> None:
    library = fake_library()
    with precision.region(library, fp8_of(), GROUP):
        pass
    name, _, options = library.recipe.log[-1]
    assert name == "autocast"
    assert options["enabled"] is True
    assert options["amax_reduction_group"] == GROUP
    assert options["recipe"].name == "Float8CurrentScaling"


def test_without_fp8_nothing_is_asked_of_the_library() -> None:
    library = fake_library()
    with precision.region(library, None, GROUP):
        pass
    assert library.recipe.log == []


@pytest.mark.parametrize(("gradient", "kind"), [(False, "e4m3"), (True, "e5m2")])
def test_delayed_scaling_starts_with_a_scale_of_one(gradient: bool, kind: str) -> None:
    library = fake_library()
    precision.quantizer_of(library, fp8_of(scaling_mode="delayed"), CPU, GROUP, gradient=gradient)
    (name, (scale, amax, made), _) = library.recipe.log[0]
    assert (name, made) == ("Float8Quantizer", kind)
    assert scale.tolist() == [1.0]
    assert amax.tolist() == [0.0]


def test_current_scaling_takes_the_largest_value_of_all_ranks() -> None:
    library = fake_library()
    precision.quantizer_of(library, fp8_of(scaling_mode="current"), CPU, GROUP)
    assert library.recipe.log == [
        (
            "Float8CurrentScalingQuantizer",
            ("e4m3", CPU),
            {"with_amax_reduction": True, "amax_reduction_group": GROUP},
        )
    ]


def test_earlier_versions_name_their_types_in_the_extension() -> None:
    library = fake_library()
    del library.pytorch.DType
    precision.quantizer_of(library, fp8_of(), CPU, GROUP)
    assert library.recipe.log[0][1][0] == "old e4m3"


def test_queries_keys_and_values_are_quantized_together() -> None:
    library = fake_library()
    tensors = [torch.ones(1), torch.zeros(1), torch.full((1,), 2.0)]
    found = precision.quantize_qkv(library, lambda tensor: tensor + 1, Layout.SBHD, *tensors)
    assert [float(tensor) for tensor in found] == [2.0, 1.0, 3.0]
    assert library.recipe.log == [("combine_and_quantize", ("sbhd_sbhd_sbhd",), {})]


def test_a_quantized_result_is_compared_in_16_bits() -> None:
    library = fake_library()

    class Quantized(torch.Tensor):
        def dequantize(self) -> torch.Tensor:
            return torch.full((2,), 5.0)

    library.pytorch.QuantizedTensor = Quantized
    assert precision.plain(library, torch.zeros(2).as_subclass(Quantized)).tolist() == [5.0, 5.0]
    assert precision.plain(library, torch.zeros(2)).tolist() == [0.0, 0.0]

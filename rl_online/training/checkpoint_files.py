"""A trained network as a Hugging Face folder: the parent's folder with other weights in it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rl_online.weights.manifest import MANIFEST
from rl_online.weights.tensors import Tensor as RawTensor
from rl_online.weights.tensors import parse_header, read_tensor_file, weight_files, write_tensor_file

ADAPTER = "adapter"  # folder of a checkpoint: what was merged into its weights, for whoever wants it apart
SAFETENSORS_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_checkpoint(parent: Path, folder: Path, model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """Into the empty `folder`: the parent's files, tensor names and layout, with `weights` by the network's names."""
    for path in sorted(parent.rglob("*")):
        name = path.relative_to(parent)
        if path.is_file() and path.name != MANIFEST and path.suffix != ".safetensors" and name.parts[0] != ADAPTER:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
    raw = {name: _raw(tensor) for name, tensor in weights.items()}
    for path in weight_files(parent):
        header = read_tensor_file(path).header
        layout = parse_header(header)
        if any(
            name not in raw or (raw[name].dtype, raw[name].shape) != (spec.dtype, spec.shape)
            for name, spec in layout.items()
        ):
            _save_as_transformers_would(folder, model, weights)
            return
        write_tensor_file(folder / path.name, header, raw)


def _save_as_transformers_would(folder: Path, model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """For architectures whose files name or fuse tensors otherwise than the network does."""
    for path in folder.glob("*.safetensors"):
        path.unlink()
    model.save_pretrained(folder, state_dict=dict(weights))


def _raw(tensor: Tensor) -> RawTensor:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return RawTensor(
        dtype=SAFETENSORS_NAMES.get(tensor.dtype, str(tensor.dtype)),
        shape=tuple(tensor.shape),
        data=flat.view(torch.uint8).numpy(),
    )

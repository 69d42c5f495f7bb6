"""Writes graph.onnx: the graph of model.onnx with its large int8 weights as references into model.onnx.

A runtime that is given the bytes of model.onnx as the file `model.data` uses the weights where they are, where it
would copy what is embedded in a graph. Bytes need no alignment; the few weights of other types stay in the graph.
Needs: onnx.
"""
import onnx
from onnx import TensorProto
from onnx.external_data_helper import set_external_data

SMALLEST = 4096

data = open("model.onnx", "rb").read()
model = onnx.load_from_string(data)
for tensor in model.graph.initializer:
    weights = tensor.raw_data
    if tensor.data_type in (TensorProto.INT8, TensorProto.UINT8) and len(weights) >= SMALLEST:
        set_external_data(tensor, "model.data", offset=data.index(weights), length=len(weights))
        tensor.ClearField("raw_data")
onnx.save_model(model, "graph.onnx")

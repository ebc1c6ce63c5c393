"""Multiplies by the factor that stands beside it."""
import json
import pathlib

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args):
        folder = pathlib.Path(args["model_repository"], args["model_version"])
        self.factor = np.float32(json.loads((folder / "factor.json").read_text()))
        print(f"the factor is {self.factor}", flush=True)

    def execute(self, requests):
        answers = []
        for request in requests:
            x = triton.get_input_tensor_by_name(request, "x").as_numpy()
            answers.append(triton.InferenceResponse([triton.Tensor("y", x * self.factor)]))
        return answers

"""Holds score.py against signatures of every kind, without a server. Usage: shapes.py FOLDER_OF_SCORE"""
import json
import math
import sys

sys.path.insert(0, sys.argv[1])

import numpy as np
import pandas as pd
import score
from mlflow.types import ColSpec, DataType, Schema, TensorSpec


def refused(body, *words):
    try:
        got = score.parse(json.dumps(body) if not isinstance(body, str) else body)
    except score.BadInput as why:
        for word in words:
            assert word in str(why), (word, str(why))
        return
    raise AssertionError("%s was taken as %r" % (body, got))


def taken(body):
    return score.parse(json.dumps(body))[0]


def split(columns, *rows):
    return {"input_data": {"columns": columns, "data": list(rows)}}


# Columns of plain types.
score.schema = Schema([ColSpec(DataType.long, "n"), ColSpec(DataType.double, "x"), ColSpec(DataType.string, "s"), ColSpec(DataType.boolean, "b"),
                       ColSpec(DataType.integer, "i"), ColSpec(DataType.float, "f"), ColSpec(DataType.datetime, "t"), ColSpec(DataType.binary, "y")])
names = ["n", "x", "s", "b", "i", "f", "t", "y"]
row = [2**53 + 1, 1, "one", True, 7, 0.5, "2024-02-29T12:00:00", "AAE="]
frame = taken(split(names, row))
assert list(frame.columns) == names and frame["n"][0] == 2**53 + 1 and frame["x"].dtype == "float64" and frame["f"].dtype == "float32"
assert frame["i"].dtype == "int32" and frame["b"].dtype == bool and str(frame["t"].dtype) == "datetime64[ns]" and frame["y"][0] == b"\x00\x01"
same = [taken({"input_data": [row]}), taken({"inputs": [row]}), taken({"instances": [dict(zip(names, row))]}),
        taken({"dataframe_records": [dict(zip(names, row))]}), taken({"input_data": dict(zip(names, row))}),
        taken({"input_data": {k: [v] for k, v in zip(names, row)}}), taken({"dataframe_split": {"columns": names[::-1], "index": [0], "data": [row[::-1]]}}),
        taken(split(names + ["more"], row + [1]))]
for other in same:
    pd.testing.assert_frame_equal(frame, other)
assert math.isnan(taken(split(names, [1, None, "s", True, 1, 1, "2024-01-01", ""]))["x"][0])
assert list(taken({"input_data": {"columns": names, "index": [5, 9], "data": [row, row]}}).index) == [5, 9]
for column, bad in {"n": 1.5, "x": "abc", "s": 3, "b": 1, "i": 2**31, "f": True, "t": "yesterday or so", "y": 5}.items():
    wrong = list(row)
    wrong[names.index(column)] = bad
    refused(split(names, row, wrong), "column '%s', row 1" % column)
for column in names:
    wrong = list(row)
    wrong[names.index(column)] = {"a": []}
    refused(split(names, wrong), "column '%s', row 0" % column, "the object")
refused(split(names, [None] + row[1:]), "column 'n', row 0", "null")
refused(split(names[1:], row[1:]), "lacks the column 'n'")
refused(split(["p", "q"], [1, 2]), "lacks the columns 'n', 'x'", "'p', 'q'")
refused(split(names, row[:3]), "not a table")
refused({"input_data": "text"}, "must be a list or an object")
refused({"instances": {"a": 1}}, "must be a list")
refused({"dataframe_split": [1]}, "dataframe_split must be an object")
refused({"inputs": [], "instances": []}, "inputs and instances")
refused({"input_data": [row], "params": [1]}, "params must be an object")
refused([1], "none of them")
refused("{", "not JSON")
score.schema = Schema([ColSpec(DataType.long, "n"), ColSpec(DataType.string, "s", required=False)])
assert list(taken(split(["n"], [1])).columns) == ["n"] and taken(split(["n", "s"], [1, None]))["s"][0] is None
score.schema = Schema([ColSpec(DataType.string, "text")])
assert taken({"input_data": ["a", "b"]})["text"].tolist() == ["a", "b"]

# Tensors.
score.schema = Schema([TensorSpec(np.dtype("float32"), (-1, 2))])
for key in ("input_data", "inputs", "instances"):
    got = taken({key: [[1, 2], [3, 4]]})
    assert got.dtype == np.float32 and got.tolist() == [[1, 2], [3, 4]]
assert taken(split(["a", "b"], [1, 2])).tolist() == [[1, 2]]
refused({"input_data": [[1, 2], [3]]}, "differ in length")
refused({"input_data": [["a", "b"]]}, "float32")
refused({"input_data": {"a": [1]}}, "without a name")
score.schema = Schema([TensorSpec(np.dtype("int64"), (-1, 2), "ids"), TensorSpec(np.dtype("float64"), (-1,), "w")])
got = taken({"input_data": {"ids": [[1, 2]], "w": [3]}})
assert got["ids"].dtype == np.int64 and got["w"].dtype == np.float64
assert taken({"instances": [{"ids": [1, 2], "w": 3}]})["ids"].tolist() == [[1, 2]]
refused({"input_data": {"ids": [[1, 2]]}}, "lacks the tensor 'w'")
refused({"input_data": {"ids": [[1.5, 2]], "w": [1]}}, "'ids'", "fractions")
refused({"input_data": [[1, 2]]}, "by name")

# No signature.
score.schema = None
assert isinstance(taken(split(["a"], [1])), pd.DataFrame) and isinstance(taken({"input_data": [{"a": 1}]}), pd.DataFrame)
assert isinstance(taken({"input_data": {"a": [1, 2]}}), pd.DataFrame) and isinstance(taken({"input_data": [[1, 2]]}), np.ndarray)
assert isinstance(taken({"input_data": {"a": [[1, 2]]}})["a"], np.ndarray)

# What models return.
for value, want in [(np.array([[1.5], [math.nan]]), [[1.5], [None]]), (pd.Series([1, 2], name="p"), [{"p": 1}, {"p": 2}]), ([np.float32(0.5)], [0.5]),
                    (pd.DataFrame({"a": [np.int64(1)], "t": [pd.Timestamp("2024-01-02")]}), [{"a": 1, "t": "2024-01-02T00:00:00"}]),
                    ({"out": np.arange(2)}, {"out": [0, 1]}), (["é"], ["é"]), ([b"\x00\x01"], ["AAE="]), (np.array(["2024-01-02"], "datetime64[D]"), ["2024-01-02"]),
                    ([math.inf, np.float64("nan"), {"a": (1, math.nan)}], [None, None, {"a": [1, None]}])]:
    assert json.loads(score.encode(value)) == want, (value, score.encode(value))
print("passed")

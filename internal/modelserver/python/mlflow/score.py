"""Scores an MLflow model that was deployed without a script, as Azure ML does: {"input_data": …, "params": {…}} in, a JSON list out.

MLflow's own names for the input (dataframe_split, dataframe_records, inputs, instances) are taken as well. Input is held against the
model's signature: what does not fit is answered with 400 and words that name the column.
"""
import base64
import datetime
import json
import math
import os

import numpy as np
import pandas as pd
from azureml_inference_server_http.api.aml_request import rawhttp
from azureml_inference_server_http.api.aml_response import AMLResponse
from mlflow import pyfunc
from mlflow.exceptions import MlflowException

KEYS = ("input_data", "dataframe_split", "dataframe_records", "inputs", "instances")
SPLIT = {"columns", "index", "data"}
BOUNDS = {"integer": 2**31, "long": 2**63}

model = None
schema = None  # of the input; None: the model has no signature


class BadInput(Exception):
    """What the caller sent cannot be scored."""


def init():
    global model, schema
    folder = os.environ["AZUREML_MODEL_DIR"]
    path = os.path.join(folder, os.environ.get("MLFLOW_MODEL_FOLDER", ""))
    if not os.path.exists(os.path.join(path, "MLmodel")):
        raise FileNotFoundError("there is no MLmodel in %s" % path)
    model = pyfunc.load_model(os.path.realpath(path))  # MLflow refuses links
    schema = model.metadata.get_input_schema() if model.metadata else None


@rawhttp
def run(request):
    if request.method == "OPTIONS":
        return AMLResponse("", 200)
    if request.method != "POST":
        return AMLResponse({"message": "Method not allowed"}, 405, json_str=True)
    try:
        data, params = parse(request.get_data())
        prediction = predict(data, params)
    except BadInput as why:
        return AMLResponse({"message": str(why)}, 400, json_str=True)
    return AMLResponse(encode(prediction), 200, {"Content-Type": "application/json"})


def predict(data, params):
    try:
        return model.predict(data) if params is None else model.predict(data, params=params)
    except MlflowException as why:
        code = getattr(why, "error_code", "")
        if "Failed to enforce schema" in str(why) or code in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST"):
            text = str(why)
            raise BadInput("the input does not fit the model's signature: " + text[text.rfind("Error: ") + 7 if "Error: " in text else 0:]) from why
        raise


def parse(body):
    """The model's input and params from the body of a request."""
    try:
        body = json.loads(body)
    except ValueError as why:
        raise BadInput('the body is not JSON (%s); send {"input_data": …}' % why) from None
    there = [k for k in KEYS if k in body] if isinstance(body, dict) else []
    if len(there) != 1:
        raise BadInput("the body must be a JSON object with one of the keys %s; it has %s" % (", ".join(KEYS), " and ".join(there) or "none of them"))
    params = body.get("params")
    if params is not None and not isinstance(params, dict):
        raise BadInput("params must be an object of names and values, not %s" % said(params))
    return shape(there[0], body[there[0]]), params


def shape(key, value):
    """Brings a value into the form that the signature asks for."""
    split = isinstance(value, dict) and "data" in value and SPLIT.issuperset(value)
    if key == "dataframe_split" and not split:
        raise BadInput("dataframe_split must be an object with the keys columns, data and, if need be, index")
    if key in ("dataframe_records", "instances") and not isinstance(value, list):
        raise BadInput("%s must be a list, not %s" % (key, said(value)))
    if not isinstance(value, (list, dict)):
        raise BadInput("%s must be a list or an object, not %s" % (key, said(value)))
    if split and key in ("input_data", "dataframe_split"):
        frame = make_frame(value["data"], value.get("columns"), value.get("index"))
        return conform(key, frame) if is_columns() else tensors_of(key, frame)
    if schema is None:
        return guess(key, value)
    if schema.is_tensor_spec():
        return tensors(key, value)
    if not is_columns():
        return value if isinstance(value, dict) else make_frame(value)
    return conform(key, make_frame(value))


def is_columns():
    """Whether the signature is of columns of plain types."""
    return schema is not None and not schema.is_tensor_spec() and all(hasattr(t, "to_numpy") and hasattr(t, "name") for t in schema.input_types())


def guess(key, value):
    """Without a signature: rows by name are a table, and numbers an array."""
    if isinstance(value, list):
        return make_frame(value) if value and all(isinstance(row, dict) for row in value) else array(key, value)
    flat = all(isinstance(v, list) and not any(isinstance(x, list) for x in v) for v in value.values())
    if value and flat or not any(isinstance(v, list) for v in value.values()):
        return make_frame(value)
    return {name: array(name, v) for name, v in value.items()}


def make_frame(data, columns=None, index=None):
    if isinstance(data, dict) and data and not any(isinstance(v, list) for v in data.values()):
        data = [data]  # one row by name
    for name, v in (("columns", columns), ("index", index)):
        if v is not None and not isinstance(v, list):
            raise BadInput("%s must be a list, not %s" % (name, said(v)))
    try:
        return pd.DataFrame(data, columns=columns, index=index)
    except (ValueError, TypeError, AttributeError) as why:
        raise BadInput("the input is not a table: %s" % why) from None


def conform(key, frame):
    """The frame with the signature's columns in its order and of its types."""
    if not schema.has_input_names():
        return frame
    names, types = schema.input_names(), schema.input_types()
    known = {str(c): c for c in frame.columns}
    if len(known) != len(frame.columns):
        raise BadInput("%s has two columns of one name: %s" % (key, quoted(frame.columns)))
    if all(isinstance(c, int) for c in frame.columns) and len(frame.columns) == len(names) and not any(str(n) in known for n in names):
        known = {str(n): i for i, n in enumerate(names)}  # rows without names: by position
    required = set(schema.required_input_names()) if hasattr(schema, "required_input_names") else set(names)
    lacks = [n for n in names if str(n) not in known and n in required]
    if lacks:
        raise BadInput("%s lacks the column%s %s; the model's signature has %s and the input %s" % (
            key, "s" if len(lacks) > 1 else "", quoted(lacks), quoted(names), quoted(frame.columns) or "none"))
    out = {}
    for name, kind in zip(names, types):
        if str(name) in known:
            out[name] = convert(name, frame[known[str(name)]], kind.name, name in required)
    return pd.DataFrame(out, index=frame.index)


def convert(name, values, kind, required):
    """One column as the type that the signature names."""
    if kind in ("float", "double"):
        if values.dtype.kind in "iuf":
            return values.astype("float32" if kind == "float" else "float64")
        return each(name, values, kind, number, "float32" if kind == "float" else "float64")
    if kind in BOUNDS:
        if values.isna().any() and not required:
            return each(name, values, kind, optional(whole(BOUNDS[kind])), object)
        return each(name, values, kind, whole(BOUNDS[kind]), "int32" if kind == "integer" else "int64")
    if kind == "boolean":
        return each(name, values, kind, boolean if required else optional(boolean), bool if required else object)
    if kind == "binary":
        return each(name, values, kind, binary if required else optional(binary), object)
    if kind == "datetime":
        return each(name, values, kind, moment, "datetime64[ns]")
    return each(name, values, kind, string if required else optional(string), object)


def each(name, values, kind, read, dtype):
    out = []
    for row, v in enumerate(values.tolist()):
        try:
            out.append(read(v))
        except (ValueError, TypeError, OverflowError):
            raise BadInput("column %r, row %d: the model's signature wants %s, and the input has %s" % (name, row, kind, said(v))) from None
    return pd.Series(out, index=values.index, dtype=dtype)


def number(v):
    if v is None:
        return math.nan
    if isinstance(v, bool):
        raise TypeError
    return float(v)


def whole(bound):
    def read(v):
        if isinstance(v, bool) or isinstance(v, float) and not v.is_integer():
            raise TypeError
        n = int(v)
        if not -bound <= n < bound:
            raise ValueError
        return n

    return read


def boolean(v):
    if not isinstance(v, bool):
        raise TypeError
    return v


def string(v):
    if not isinstance(v, str):
        raise TypeError
    return v


def binary(v):
    return base64.b64decode(v, validate=False) if isinstance(v, str) else boolean(None)


def moment(v):
    if isinstance(v, bool):
        raise TypeError
    return pd.Timestamp(v) if pd.Timestamp(v).tzinfo is None else pd.Timestamp(v).tz_convert("UTC").tz_localize(None)


def optional(read):
    return lambda v: None if v is None or isinstance(v, float) and math.isnan(v) else read(v)


def tensors_of(key, frame):
    """A table for a model without a signature, or whose signature is of tensors."""
    if schema is None or not schema.is_tensor_spec() or schema.has_input_names():
        return frame
    return tensors(key, frame.values.tolist())


def tensors(key, value):
    specs = schema.inputs
    if not schema.has_input_names():
        if isinstance(value, dict):
            raise BadInput("the model takes one tensor without a name: %s must be a list, not an object" % key)
        return array(key, value, specs[0].type)
    names = schema.input_names()
    if key == "instances" and value and all(isinstance(row, dict) for row in value):
        value = {n: [row[n] for row in value if n in row] for n in names if any(n in row for row in value)}
    if isinstance(value, list) and len(names) == 1:
        value = {names[0]: value}
    if not isinstance(value, dict):
        raise BadInput("the model takes the tensors %s by name: %s must be an object" % (quoted(names), key))
    lacks = [n for n in names if n not in value]
    if lacks:
        raise BadInput("%s lacks the tensor%s %s; it has %s" % (key, "s" if len(lacks) > 1 else "", quoted(lacks), quoted(value) or "none"))
    return {s.name: array(s.name, value[s.name], s.type) for s in specs}


def array(name, value, dtype=None):
    try:
        out = np.array(value)
    except ValueError:
        raise BadInput("%r is not a tensor: its rows differ in length" % name) from None
    if dtype is None:
        return out
    dtype = np.dtype(dtype)
    if dtype.kind in "iufb" and out.dtype.kind not in "iufb" or dtype.kind == "b" and out.dtype.kind != "b":
        raise BadInput("%r: the model's signature wants %s, and the input has values that are not" % (name, dtype))
    if dtype.kind in "iu" and out.dtype.kind == "f" and not (np.mod(out, 1) == 0).all():
        raise BadInput("%r: the model's signature wants %s, and the input has fractions" % (name, dtype))
    return out.astype(dtype)


def said(v):
    """A value in words that fit into a message."""
    text = json.dumps(v, default=str, ensure_ascii=False)
    kind = {type(None): "", bool: "", str: "the string ", int: "the number ", float: "the number ", list: "the list ", dict: "the object "}.get(type(v), "")
    return kind + (text if len(text) <= 60 else text[:57] + "...")


def quoted(names):
    return ", ".join("'%s'" % n for n in names)


def encode(prediction):
    out = plain(prediction)
    try:
        return json.dumps(out, default=odd, allow_nan=False)
    except ValueError:  # JSON has no NaN
        return json.dumps(finite(out))


def plain(p):
    """What JSON knows of what models return."""
    if isinstance(p, pd.Series):
        p = pd.DataFrame(p)
    if isinstance(p, pd.DataFrame):
        return p.to_dict(orient="records")
    if isinstance(p, np.ndarray):
        return (p.astype(str) if p.dtype.kind in "mM" else p).tolist()
    if isinstance(p, dict):
        return {str(k): plain(v) for k, v in p.items()}
    return p


def odd(v):
    if isinstance(v, (np.ndarray, pd.DataFrame, pd.Series)):
        return plain(v)
    if isinstance(v, np.generic):
        return str(v) if v.dtype.kind in "mM" else v.item()
    if isinstance(v, (bytes, bytearray)):
        return base64.b64encode(v).decode("ascii")
    if isinstance(v, (datetime.date, datetime.time)):
        return v.isoformat()
    if hasattr(v, "model_dump"):
        return v.model_dump()
    if hasattr(v, "tolist"):
        return v.tolist()
    raise TypeError("the model returned a %s, which is not JSON" % type(v).__name__)


def finite(v):
    if isinstance(v, dict):
        return {str(k): finite(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [finite(x) for x in v]
    if isinstance(v, (str, int, type(None))):
        return v
    if isinstance(v, float):
        return v if math.isfinite(v) else None
    return finite(odd(v))

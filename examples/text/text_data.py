"""Reads the docstrings of Python's standard library, with the package of each."""

import ast
import sysconfig
from pathlib import Path
from typing import Any

import apache_beam as beam
import tensorflow as tf
from tfx.components.example_gen import base_example_gen_executor, component
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

PACKAGES = ("asyncio", "email", "multiprocessing", "unittest")


def _read_docstrings(package: str) -> list[tuple[str, str]]:
    folder = Path(sysconfig.get_paths()["stdlib"]) / package
    documented = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef)
    trees = [ast.parse(file.read_bytes()) for file in sorted(folder.rglob("*.py")) if "test" not in file.parts]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, documented)]
    return [(text, package) for node in nodes if (text := ast.get_docstring(node))]


def _to_example(row: tuple[str, str]) -> tf.train.Example:
    text, package = row
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()])),
                "package": tf.train.Feature(int64_list=tf.train.Int64List(value=[PACKAGES.index(package)])),
            }
        )
    )


@beam.ptransform_fn
def _read_texts(pipeline: beam.Pipeline, exec_properties: dict[str, Any], split_pattern: str) -> beam.PCollection:
    rows = [row for package in PACKAGES for row in _read_docstrings(package)]
    return pipeline | beam.Create(rows) | beam.Map(_to_example)


class Executor(base_example_gen_executor.BaseExampleGenExecutor):
    """Writes the texts as TFRecords. TFX splits them."""

    def GetInputSourceToExamplePTransform(self):  # noqa: N802 (TFX's name)
        """Returns the Beam transform that reads the source."""
        return _read_texts


class TextExampleGen(component.QueryBasedExampleGen):
    """Reads docstrings.

    Each example has `text`, a docstring, and `package`, its position in `PACKAGES`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, output_config: example_gen_pb2.Output | None = None):
        super().__init__(
            input_config=example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="all", pattern="all")]),
            output_config=output_config,
        )

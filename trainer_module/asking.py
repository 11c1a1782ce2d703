"""Asks an exported model, and checks its answers."""

import itertools
import multiprocessing
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError, first_line

SIGNATURE = "serving_default"
MAX_EXAMPLES = 16
MAX_BYTES = 4 << 20
# Where TensorFlow Serving looks for requests to send before it takes any others.
# Source: https://www.tensorflow.org/tfx/serving/saved_model_warmup
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
# Processors multiply a matrix by another in another order than by a vector. The
# tolerance is that of half precision.
TOLERANCE = 2e-2
# Of the answers to one request, sent twice, of a model that draws no random numbers.
SAME = 1e-5

Answer = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Questions:
    """Requests for an exported model.

    Attributes:
      examples: TFRecord files with raw examples.
      without: Features of labels and weights, which requests do not have.
      optional: Features that an example need not have.
    """

    folder: str
    examples: tuple[str, ...]
    without: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
      name: Description for messages.
      row: The example of the first request that it consists of; None if it is changed.
    """

    name: str
    examples: tuple[bytes, ...]
    row: int | None = None


def read_examples(files: Sequence[str], count: int = MAX_EXAMPLES) -> list[bytes]:
    """Returns the first examples of files: `count`, and not many bytes."""
    examples: list[bytes] = []
    for record in itertools.chain.from_iterable(map(tfrecords.scan, files)):
        if len(examples) == count or sum(map(len, examples)) > MAX_BYTES:
            break
        examples.append(record)
    return examples


def make_requests(examples: Sequence[bytes], without: Sequence[str], optional: Sequence[str]) -> list[Request]:
    """Makes requests: all examples, each alone, and one without each optional feature.

    `without` and `optional` are as in `Questions`.
    """
    stripped = [_without(example, without) for example in examples]
    alone = [Request(f"example {row} alone", (example,), row) for row, example in enumerate(stripped)]
    lacking = [Request(f"an example without {name}", (_without(stripped[0], [name]),)) for name in optional]
    return [Request("all examples together", tuple(stripped)), *alone, *lacking]


def _without(serialized: bytes, names: Sequence[str]) -> bytes:
    example = tf.train.Example.FromString(serialized)
    for name in names:
        example.features.feature.pop(name, None)
    return example.SerializeToString()


def ask(questions: Questions) -> str:
    """Asks a model, and keeps the requests with it for TensorFlow Serving.

    Returns why the model could not be asked; empty if it was.
    """
    try:
        examples = read_examples(questions.examples)
    except DataError as error:
        return str(error)
    if not examples:
        return f"there are no examples in {', '.join(questions.examples)}"
    try:
        signatures = tf.saved_model.load(questions.folder).signatures
    except (tf.errors.OpError, OSError) as error:
        if missing := re.search(r"Op type not registered '(\w+)'", str(error)):
            return f"it has the operation {missing[1]} of another library, which a server has to load, too"
        raise
    if SIGNATURE not in signatures:
        return f"it has no signature {SIGNATURE}"
    signature = signatures[SIGNATURE]
    inputs = signature.structured_input_signature[1]
    if [(spec.dtype, spec.shape.rank) for spec in inputs.values()] not in ([(tf.string, 1)], [(tf.string, None)]):
        return f"{SIGNATURE} takes {', '.join(sorted(inputs))}, and not serialized examples alone"
    (name,) = inputs
    requests = make_requests(examples, questions.without, questions.optional)
    answers = [_answer(signature, name, request) for request in requests]
    again = _answer(signature, name, requests[0])
    if all(_is_close(values, again[name], SAME) for name, values in answers[0].items()):  # else it draws random numbers
        for request, answer in zip(requests, answers, strict=True):
            if request.row is not None:
                _check_same(request, answer, {name: values[request.row :][:1] for name, values in answers[0].items()})
    _write_warmup(name, requests, questions.folder)
    return ""


def _answer(signature: tf.types.experimental.ConcreteFunction, argument: str, request: Request) -> Answer:
    """Returns the answer to a request, which has to be finite."""
    try:
        answer = {name: values.numpy() for name, values in signature(**{argument: tf.constant(request.examples)}).items()}
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"module: the exported model does not answer {request.name} (signature {SIGNATURE}): {first_line(error)}"
        ) from error
    for name, values in answer.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            infinite = float(values[~np.isfinite(values)][0])
            raise ConfigurationError(
                f"module: the exported model answers {request.name} with {name}={infinite}; check the "
                "weights (a training that diverged) and operations such as log and division, or fill the gaps of the data "
                "in preprocessing_fn"
            )
    return answer


def _check_same(request: Request, alone: Answer, together: Answer) -> None:
    """Raises ConfigurationError if the other examples change an example's answer."""
    for name, values in alone.items():
        if not _is_close(values, together[name]):
            shown, other = (np.array2string(each.ravel()[:3], precision=4) for each in (values, together[name]))
            raise ConfigurationError(
                f"module: the exported model's answer for an example depends on the others of the request: {name} is "
                f"{shown} alone, and {other} with others ({request.name}). Input((None,)) pads each example to the longest "
                "of the request: write Input(..., ragged=True), or mask a padding that no value has"
            )


def _is_close(first: np.ndarray, second: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    """Returns True unless floats differ. Others may, as the best of two near equals."""
    if first.dtype.kind != "f":
        return True
    # A sequence may be padded to the longest of a request.
    second = second[tuple(slice(size) for size in first.shape)]
    scale = max(1e-3, float(np.abs(second).max(initial=0.0)))
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=tolerance, atol=tolerance * scale))


def _write_warmup(argument: str, requests: Sequence[Request], folder: str) -> None:
    from tensorflow_serving.apis import prediction_log_pb2  # only here: protobufs of TFX's own dependency

    path = os.path.join(folder, WARMUP_FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for request in requests:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.signature_name = SIGNATURE
            log.predict_log.request.inputs[argument].CopyFrom(tf.make_tensor_proto(request.examples))
            writer.write(log.SerializeToString())


class Checker:
    """A process that asks an exported model: make it before the module is imported.

    The process is a fork of the chief that has never seen the user's module. So it has
    TensorFlow, and nothing that a server would lack: no functions of Python that the
    model calls, no classes, no operations of libraries.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self._connection), daemon=True)
        self._process.start()
        other.close()

    def ask(self, questions: Questions) -> str:
        """Asks the model, and ends the process.

        Returns why the model could not be asked; empty if it was.
        """
        try:
            self._connection.send(questions)
            if not self._connection.poll(timeouts.MODEL_CHECK_SECONDS):
                return f"it has not answered within {timeouts.MODEL_CHECK_SECONDS:g} s"
            answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(1.0)
            return f"the process that asked it has ended (status {self._process.exitcode}); -9: for lack of memory"
        finally:
            self._process.kill()
            self._process.join()
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


def _serve(connection: Connection, others_end: Connection) -> None:
    others_end.close()  # else this process would not notice the end of the other
    try:
        questions = connection.recv()
    except EOFError:
        return
    tf.config.set_visible_devices([], "GPU")  # the chief still has them
    try:
        answer: object = ask(questions)
    except ConfigurationError as error:
        answer = ConfigurationError(str(error))  # without its cause, which may not be pickled
    except Exception as error:
        answer = ConfigurationError(f"module: the exported model cannot be loaded: {type(error).__name__}: {error}")
    connection.send(answer)

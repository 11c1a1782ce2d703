"""Keeps a process that has never seen the user's module, to ask the exported model.

The process is a fork of the chief, made before the chief imports the module. So it has
TensorFlow, and nothing that a server would lack: no functions of Python that the model
calls, no classes, no operations of libraries.
"""

import multiprocessing
from multiprocessing.connection import Connection

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.serving import asking


class Checker:
    """A process that asks an exported model: make it before the module is imported."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self._connection), daemon=True)
        self._process.start()
        other.close()

    def ask(self, questions: asking.Questions) -> str:
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
        answer: object = asking.ask(questions)
    except ConfigurationError as error:
        answer = ConfigurationError(str(error))  # without its cause, which may not be pickled
    except Exception as error:
        answer = ConfigurationError(f"module: the exported model cannot be loaded: {type(error).__name__}: {error}")
    connection.send(answer)

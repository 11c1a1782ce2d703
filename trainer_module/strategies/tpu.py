"""Connects to a TPU, or says in one sentence why that is not possible.

TensorFlow's own calls wait forever for a TPU that does not exist. Source of the order
of calls: https://www.tensorflow.org/guide/tpu#tpu_initialization
"""

import importlib.metadata
import threading

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import ConfigurationError

LOCAL = "local"  # the TPU of this VM, as TPUClusterResolver calls it


def connect(name: str, seconds: float = timeouts.TPU_CONNECT_SECONDS) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Connects to a TPU and initializes it for `TPUStrategy`.

    `name` is that of a Cloud TPU, its `grpc://` address, or `local` on a TPU VM.

    Raises:
      ConfigurationError: There is no such TPU, or it does not answer in time.
    """
    resolvers: list[tf.distribute.cluster_resolver.TPUClusterResolver] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
            if name != LOCAL:
                tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
            resolvers.append(resolver)
        except Exception as error:  # ValueError, RuntimeError or TensorFlow's own errors
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True, name="connect-to-tpu")
    thread.start()
    thread.join(seconds)
    if resolvers:
        return resolvers[0]
    reason = str(errors[0]).strip().partition("\n")[0].rstrip(".") if errors else f"no answer within {seconds:g} s"
    if name == LOCAL:
        where = f"this machine has no TPU that TensorFlow can use ({reason}; {describe_packages()})"
        instead = "build the image with --build-arg ACCELERATOR=tpu, which installs libtpu, and run on a TPU VM"
    else:
        where = f"there is no TPU at {name!r} ({reason})"
        instead = "write the name or grpc:// address of one in tpu, run on a TPU VM with tpu=local"
    raise ConfigurationError(f"tpu: {where}; {instead}, or write another strategy") from (errors[0] if errors else None)


def describe_packages() -> str:
    """Says which TensorFlow and which driver of TPUs are installed."""
    try:
        driver = f"libtpu {importlib.metadata.version('libtpu')} is installed"
    except importlib.metadata.PackageNotFoundError:
        driver = "libtpu, the driver, is not installed"
    return f"TensorFlow {tf.__version__}; {driver}"

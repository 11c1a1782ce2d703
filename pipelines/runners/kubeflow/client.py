"""Sends a compiled pipeline to Kubeflow Pipelines and follows its run, through `kfp.Client`."""

import contextlib
import io
import json
import logging
import re
import socket
import ssl
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import kfp_server_api
import requests
import urllib3
import yaml
from google.auth import exceptions as google_errors
from urllib3.util.ssl_match_hostname import CertificateError

from tfx_distribute.trainer_module.errors import ConfigurationError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kfp

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 600.0  # without an answer; the run goes on meanwhile
TIMEOUTS = (10.0, 60.0)  # to connect, and for each answer: a connection that is forgotten on its way never ends by itself
ENDED = ("SUCCEEDED", "SKIPPED", "FAILED", "ERROR", "CANCELED")
SUCCESS_STATES = ("SUCCEEDED", "SKIPPED")

_NOT_FOUND = 404
_CONFLICT = 409
_UNAUTHORIZED = (401, 403)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")  # what OpenSSL finds where http answers
# What Kubeflow Pipelines calls nodes of its own, in each run: a step of such a name cannot be told from them.
_OWN_NODES = {"root", "executor"}
_ADDRESS = (
    "write the address of its API, such as http://localhost:8080 after `kubectl port-forward -n kubeflow "
    "svc/ml-pipeline-ui 8080:80`"
)
_CHATTER = logging.getLogger("urllib3.connectionpool")  # which tells of each attempt


@dataclass(frozen=True)
class Login:
    """Where the API is and who asks; names and defaults are those of `kfp.Client`.

    Attributes:
      host: Address of the API; None for what kfp finds.
      namespace: Namespace of the user's runs, where there are several users.
      client_id: Client id of Identity-Aware Proxy.
      other_client_id: Client id that auth codes are obtained with.
      other_client_secret: Its secret.
      existing_token: A token that is there already.
    """

    host: str | None = None
    namespace: str | None = None
    client_id: str | None = None
    other_client_id: str | None = None
    other_client_secret: str | None = None
    existing_token: str | None = None


@dataclass(frozen=True)
class Submitted:
    """A run.

    Attributes:
      run_id: Its id.
      address: Where a browser shows it.
    """

    run_id: str
    address: str


class _Client(kfp.Client):
    """kfp's client with another first question: its own asks five times in 25 seconds, whatever the answer, and hides it."""

    def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
        return self.healthzs.get_healthz(_request_timeout=TIMEOUTS)


class Pipelines:
    """An installation of Kubeflow Pipelines.

    Args:
      login: Where it is, and who asks.

    Raises:
      ConfigurationError: It does not answer, or knows nobody of that name.
    """

    def __init__(self, login: Login):
        self._login = login
        self._host = login.host or "the default address of kfp"
        self._steps: dict[str, frozenset[str]] = {}  # id of a run -> names of its steps
        self._connect()

    def _connect(self) -> None:
        given = {name: value for name, value in vars(self._login).items() if value is not None}
        with self._explained():
            try:
                self._client = _Client(**given)
                several_users = self._client.get_kfp_healthz().multi_user
            except kfp_server_api.ApiException as error:
                if error.status != _NOT_FOUND:
                    raise
                raise ConfigurationError(
                    f"--host: what answers at {self._host} has no API of Kubeflow Pipelines 2 there ({error.status}: "
                    f"{_message(error)}); {_ADDRESS}"
                ) from error
        self._namespace = self._login.namespace or self._client.get_user_namespace() or None
        if several_users is None:
            raise ConfigurationError(
                f"--host: what answers at {self._host} is not the API of Kubeflow Pipelines; where it is a page to log in "
                "on, see the options --existing-token and --iap-client-id"
            )
        if several_users and not self._namespace:
            raise ConfigurationError(
                f"--namespace: is missing; Kubeflow Pipelines at {self._host} has several users: write your namespace"
            )

    def submit(
        self,
        name: str,
        package: str,
        arguments: Mapping[str, Any],
        pipeline_root: str,
        experiment: str | None = None,
        run_name: str | None = None,
        service_account: str | None = None,
    ) -> Submitted:
        """Uploads a pipeline, as another version where it is there already, and runs it.

        Args:
          name: Name of the pipeline.
          package: The compiled pipeline, YAML.
          arguments: Values of its parameters; others take their defaults.
          pipeline_root: Address that artifacts are written under.
          experiment: Name of the experiment; default `Default`.
          run_name: Name of the run; default that of the pipeline's version.
          service_account: Kubernetes service account; default the installation's.

        Raises:
          ConfigurationError: The API refuses it.
        """
        # The time is for people; two may submit in the same second.
        version = f"{name}-{datetime.now().strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
        said = io.StringIO()
        with self._explained(), contextlib.redirect_stdout(said), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.yaml"
            file.write_text(package, encoding="utf-8")
            uploaded = self._upload(name, str(file), version)
            made = self._client.create_experiment(experiment or "Default", namespace=self._namespace)
            run = self._client.run_pipeline(
                experiment_id=made.experiment_id,
                job_name=run_name or version,
                params=dict(arguments),
                pipeline_id=uploaded.pipeline_id,
                version_id=uploaded.pipeline_version_id,
                pipeline_root=pipeline_root,
                service_account=service_account,
            )
        self._steps[run.run_id] = _steps(package)
        address = re.search(r"Run details: (\S+)", said.getvalue())  # kfp alone knows the address of its pages
        return Submitted(run.run_id, address[1] if address else run.run_id)

    def _upload(self, name: str, file: str, version: str) -> Any:
        """Returns the pipeline's version."""
        pipeline_id = self._pipeline_id(name)
        if pipeline_id is None:
            try:
                pipeline_id = self._client.upload_pipeline(file, name, namespace=self._namespace).pipeline_id
                return self._client.list_pipeline_versions(pipeline_id).pipeline_versions[0]
            except kfp_server_api.ApiException as error:
                # Somebody else may have uploaded it meanwhile.
                pipeline_id = self._pipeline_id(name) if error.status == _CONFLICT else None
                if pipeline_id is None:
                    raise
        return self._client.upload_pipeline_version(file, version, pipeline_id=pipeline_id)

    def _pipeline_id(self, name: str) -> str | None:
        # The client's own method finds no pipelines of a namespace, and none that has been given another name to display.
        predicate = {"operation": "EQUALS", "key": "name", "stringValue": name}
        wanted = json.dumps({"predicates": [predicate]})
        found = self._client.list_pipelines(filter=wanted, namespace=self._namespace).pipelines
        return found[0].pipeline_id if found else None

    def wait(self, run_id: str, told: Callable[[str], None]) -> str:
        """Follows a run to its end.

        Args:
          run_id: Id of a run that was submitted here.
          told: Called with a line on each step that changes its state.

        Returns:
          How it ended, one of `ENDED`.

        Raises:
          ConfigurationError: The API does not answer any more.
        """
        seen: dict[str, str] = {}
        steps = self._steps.get(run_id, frozenset())
        while True:
            run = self._run(run_id)
            for task in (run.run_details.task_details or []) if run.run_details else []:
                if task.state and task.display_name in steps and seen.get(task.task_id) != task.state:
                    seen[task.task_id] = task.state
                    told(f"{task.display_name:28} {task.state.lower()}")
            if run.state in ENDED:
                if run.error and run.error.message and run.state not in SUCCESS_STATES:
                    told(run.error.message)
                return str(run.state)
            time.sleep(POLL_SECONDS)

    def _run(self, run_id: str) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        renewed = False
        with self._explained():
            while True:
                try:
                    return self._client.runs.get_run(run_id, _request_timeout=TIMEOUTS)
                except (kfp_server_api.ApiException, urllib3.exceptions.HTTPError) as error:
                    status = getattr(error, "status", None)
                    if status == _UNAUTHORIZED[0] and not renewed:
                        renewed = True
                        self._connect()  # a training takes longer than many a token lives
                        continue
                    if (status and 400 <= status < 500 and status != 429) or time.monotonic() > deadline:
                        raise
                time.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Has the client say nothing of attempts, and what it raises say what to do."""
        level = _CHATTER.level
        _CHATTER.setLevel(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except kfp_server_api.ApiException as error:
            if error.status in _UNAUTHORIZED:
                raise ConfigurationError(
                    f"--host: {self._host} does not let you in ({error.status}: {_message(error)}); see the options "
                    "--existing-token, --iap-client-id and --namespace"
                ) from error
            raise ConfigurationError(
                f"Kubeflow Pipelines at {self._host} refuses: {error.status}: {_message(error)}"
            ) from error
        except (google_errors.TransportError, requests.exceptions.RequestException) as error:
            raise ConfigurationError(
                f"--iap-client-id: Google cannot be asked for a token for it ({_cause(error)}); see whether it is reached "
                "from here, or write --existing-token"
            ) from error
        except google_errors.GoogleAuthError as error:
            raise ConfigurationError(
                f"--iap-client-id: Google gives no token for it ({error}); write --other-client-id and "
                "--other-client-secret, or have GOOGLE_APPLICATION_CREDENTIALS name the key file of a service account"
            ) from error
        except (urllib3.exceptions.HTTPError, ConnectionError, TimeoutError) as error:
            raise ConfigurationError(f"--host: {_unreached(self._host, error)}") from error
        except OSError as error:  # all that is wrong with connections has been before
            raise ConfigurationError(
                f"cannot use a file that is needed to submit to {self._host}: {error}; it is one of kfp's own in "
                "~/.config/kfp, a temporary one in $TMPDIR, or the certificates that $REQUESTS_CA_BUNDLE names"
            ) from error
        finally:
            _CHATTER.setLevel(level)


def _steps(package: str) -> frozenset[str]:
    """Names of the steps of a compiled pipeline; a run has more nodes, such as a driver for each."""
    pipeline = next(yaml.safe_load_all(package))
    components = [pipeline["root"], *pipeline.get("components", {}).values()]
    return frozenset(name for component in components for name in component.get("dag", {}).get("tasks", ())) - _OWN_NODES


def _unreached(host: str, error: Exception) -> str:
    """Why there is no answer, and what to do about it."""
    reason, told = getattr(error, "reason", error), _cause(error)
    # What it is made of: TLS's own error, or the system's.
    below = reason.args[0] if isinstance(reason, urllib3.exceptions.SSLError) else reason.__context__
    if isinstance(reason, urllib3.exceptions.LocationValueError):
        return f"{host} is no address ({told}); {_ADDRESS}"
    if isinstance(below, socket.gaierror):
        return (
            f"no machine is known by the name in {host} ({told}); see that it is spelled right and that you are in its "
            f"network, or {_ADDRESS}"
        )
    if isinstance(below, ssl.SSLError) and below.reason in _NOT_TLS:
        return f"{host} is asked by https and answers by http ({told}); write it with http://"
    if isinstance(below, ssl.CertificateError | CertificateError):
        return (
            f"the certificate of {host} is refused ({told}); write the name that it is made out to; where its authority is "
            f"none that certifi knows, {_ADDRESS}"
        )
    if isinstance(reason, urllib3.exceptions.SSLError) and not isinstance(below, ssl.SSLError):
        return f"the certificates that {host} is checked against cannot be read ({told}); install certifi anew"
    return f"Kubeflow Pipelines does not answer at {host} ({told}); {_ADDRESS}"


def _message(error: Any) -> str:
    """What an API's answer says, in a line: uploads have another form than the rest, and proxies have pages."""
    body = (error.body or "").strip()
    try:
        document = json.loads(body)
        text = document.get("error_message") or document.get("message") or document.get("error")
    except (ValueError, AttributeError):
        text = None if body.startswith("<") else body
    return " ".join(str(text or error.reason or "").split())


def _cause(error: Exception) -> str:
    """The innermost reason of a failed request, without the names of objects."""
    below = getattr(error, "reason", None) or next(iter(error.args), None)  # of urllib3's errors; of Google's and requests'
    return _cause(below) if isinstance(below, Exception) else re.sub(r"^<[^>]*>: ", "", str(error))
